"""The models that something is shipped for: their drafts, tables and calibrations, by fingerprint.

A directory of ``draftwood/assets`` with a ``model.json`` is such a model: its name, its
fingerprint, the digest of its vocabulary and the name of its EAGLE-3 head. Beside it are the parts
that exist: ``head/``, ``table.safetensors`` (for the adjacency table) and ``calibration.json`` (for
``auto``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from draftwood.files import decode, read_json
from draftwood.protocols import Fingerprint

ASSETS = Path(str(files("draftwood"))) / "assets"

_COMMON = "smollm2"
"""The model whose calibration is where other models begin: it was counted on ordinary text."""


@dataclass(frozen=True)
class _Manifest:
    """The content of a ``model.json``; ``head`` is empty or what ``head=`` takes."""

    name: str
    head: str
    vocabulary: str
    fingerprint: Fingerprint


@dataclass(frozen=True)
class ShippedModel:
    """A model that something is shipped for.

    Attributes:
        name: in messages.
        fingerprint: of its weights.
        vocabulary: digest of its tokens and their ids.
        parts: what a setting takes, by kind: ``"head"`` (a name), ``"table"`` and
            ``"calibration"`` (paths).
    """

    name: str
    fingerprint: Fingerprint
    vocabulary: str
    parts: Mapping[str, str]


def shipped_for(fingerprint: Fingerprint | None) -> ShippedModel | None:
    """The shipped model of these weights, else the first of near ones.

    None if there is neither, or the weights are unknown.
    """
    if fingerprint is None:
        return None
    known = shipped_models(ASSETS)
    same = (each for each in known if each.fingerprint.matches(fingerprint))
    near = (each for each in known if each.fingerprint.is_near(fingerprint))
    return next(same, next(near, None))


def common_parts() -> Mapping[str, str]:
    """What a model takes that nothing is shipped for: a calibration, if there is a common one."""
    path = ASSETS / _COMMON / "calibration.json"
    return {"calibration": str(path)} if path.is_file() else {}


@cache
def shipped_models(assets: Path) -> tuple[ShippedModel, ...]:
    """The models of a directory, read once."""
    return tuple(_read(path) for path in sorted(assets.glob("*/model.json")))


def _read(path: Path) -> ShippedModel:
    manifest = decode(_Manifest, read_json(path), str(path))
    home = path.parent
    places = {
        "head": (home / "head" / "config.json", manifest.head),
        "table": (home / "table.safetensors", str(home / "table.safetensors")),
        "calibration": (home / "calibration.json", str(home / "calibration.json")),
    }
    parts = {kind: value for kind, (file, value) in places.items() if file.is_file()}
    return ShippedModel(manifest.name, manifest.fingerprint, manifest.vocabulary, parts)

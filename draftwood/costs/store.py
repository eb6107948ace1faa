"""Keeps measured costs in the user's cache directory, one small file for each kind of run.

A file belongs to a :class:`Key` and says so itself; one that is broken, foreign or of another
version is measured anew, with a warning, and replaced. Knows nothing of how costs are measured.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_cache_path

from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.files import write_text

logger = logging.getLogger(__name__)

VARIABLE = "DRAFTWOOD_CACHE"
"""Environment variable that names another cache directory."""

# What two checkpoints of one shape may differ in.
_IMMATERIAL = {"_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"}


@dataclass(frozen=True)
class Key:
    """What costs depend on, and are therefore kept by.

    Attributes:
        model: :func:`identity` of the target's configuration.
        drafters: the same by source name, for drafters with a model, sorted.
        device: name of the device: the GPU, or the processor.
        dtype: of the target's weights.
        threads: of the CPU.
        torch: version.
        draftwood: version, because its kernels change as well.
    """

    model: str
    drafters: tuple[tuple[str, str], ...]
    device: str
    dtype: str
    threads: int
    torch: str
    draftwood: str

    @property
    def digest(self) -> str:
        """A name for a file."""
        return _digest(asdict(self))


def identity(config: Mapping[str, object]) -> str:
    """A digest of a model's configuration: costs depend on its shape, not on its weights' values.

    Args:
        config: what a transformers configuration's ``to_dict()`` gives; where it was loaded from
            does not count.
    """
    return _digest({k: v for k, v in config.items() if k not in _IMMATERIAL})


def directory() -> Path:
    """Where costs are kept: ``$DRAFTWOOD_CACHE/costs``, or ``costs`` in the user's own cache."""
    named = os.environ.get(VARIABLE)
    return (Path(named) if named else user_cache_path("draftwood", appauthor=False)) / "costs"


def read(key: Key) -> StepCosts | None:
    """What is kept for the key; None if nothing is, or nothing that can be used."""
    path = _path(key)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("key") != _plain(key):
            raise DraftwoodError("it belongs to something else")
        return StepCosts.from_json(found.get("costs"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # DraftwoodError and JSON's are ValueErrors
        logger.warning("costs in %s are not used: %s", path, error)
        return None


def write(key: Key, costs: StepCosts) -> Path:
    """Keep the costs; returns the file, which is replaced in one step.

    Raises:
        DraftwoodError: it cannot be written.
    """
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {"key": _plain(key), "costs": costs.to_json()}
        write_text(path, json.dumps(found, indent=1) + "\n")
    except OSError as error:
        raise DraftwoodError(
            f"cannot keep costs in {path}: {error.strerror}; name another directory in {VARIABLE}"
        ) from error
    return path


def recall(key: Key, measure: Callable[[], StepCosts]) -> StepCosts:
    """What is kept for the key, or is measured now, and kept if the cache can be written to."""
    found = read(key)
    if found is None:
        found = measure()
        try:
            write(key, found)
        except DraftwoodError as error:
            logger.warning("%s", error)
    return found


def _path(key: Key) -> Path:
    return directory() / f"{key.digest}.json"


def _plain(key: Key) -> object:
    return json.loads(json.dumps(asdict(key)))


def _digest(found: object) -> str:
    text = json.dumps(found, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]

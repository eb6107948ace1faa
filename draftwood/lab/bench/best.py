"""The file of best settings, written by ``draftwood search`` and read by ``bench --best``.

Settings found on some prompts must be measured on others; :meth:`Best.refuse` checks this.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.files import UNWRITTEN, decode, encode, read_json
from draftwood.lab.bench.document import PublishedAndBest, Searched
from draftwood.lab.bench.grid import grid
from draftwood.lab.bench.peers import names as peer_names
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.quiet import objection
from draftwood.sampling.params import SamplingParams

SCHEMA = 2
TIMELESS = "mean_acceptance_length"
"""The figure of a search that does not depend on times."""

_COMPARED = ("model", "draft", "head", "dtype", "batch", "chat", "max_new_tokens", "threads")
"""Settings in which a run must agree with the search, beside the sampling."""

_NEEDED = (*_COMPARED, "sampling")

_TIMED = ("threads",)
"""Settings on which times alone depend."""

_OPTIONAL = ("draft", "head")
"""Settings that a run may leave out; methods that need them are refused elsewhere."""


@dataclass(frozen=True)
class _Sampling:
    temperature: float


@dataclass(frozen=True)
class _Compared:
    """Settings whose form matters where a run is compared with the search."""

    chat: bool | None
    sampling: _Sampling


@dataclass(frozen=True)
class Tried(PublishedAndBest):
    """A method with the figures of every setting that was tried."""

    tried: Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class Best:
    """The file that ``draftwood search`` writes: best settings, and how they were found.

    Attributes:
        best_settings: :data:`SCHEMA`.
        by: the figure that decided: ``tokens_per_second`` or ``mean_acceptance_length``.
        provenance: of the search.
        methods: by the name of the recipe.
        prompts: digests of the prompts on which it was found.
        file: its path; empty before it is written.
    """

    best_settings: int
    by: str
    provenance: Mapping[str, Any]
    methods: Mapping[str, Tried]
    prompts: tuple[str, ...]
    file: str = field(default="", metadata=UNWRITTEN)

    @property
    def disturbed(self) -> str | None:
        """Reason why the search's times are not reliable; None if they are, or did not decide."""
        return None if self.by == TIMELESS else objection({"provenance": self.provenance})

    def contenders(self, methods: Sequence[str]) -> tuple[str, ...]:
        """The methods; a searched method is replaced by its published and its best setting.

        Raises:
            DraftwoodError: a method with settings to search was not searched.
        """
        found: list[str] = []
        for text in (item.strip() for item in methods):
            pair = self.methods.get(text)
            if pair is not None:
                found += [pair.published, pair.best]
            elif text in peer_names() or ":" in text or not grid(text):
                found.append(text)
            else:
                raise DraftwoodError(
                    f"{self.file} has no best setting of {text}: search it too "
                    f"(draftwood search --methods ...), or leave {text} out"
                )
        return tuple(dict.fromkeys(found))

    def refuse(self, prompts: Sequence[Prompt], settings: Mapping[str, Any]) -> None:
        """Refuse a run for which these settings are not valid.

        Args:
            prompts: prompts of the run.
            settings: settings of the run, as in its provenance.

        Raises:
            DraftwoodError: settings were found on one of the prompts, or with other settings of
                the model, its drafts, the answers or the sampling.
        """
        searched, given = _flat(self.provenance["settings"]), _flat(settings)
        for name in given:
            left_out = name in _OPTIONAL and given[name] is None
            left_out |= name in _TIMED and self.by == TIMELESS
            if searched[name] != given[name] and not left_out:
                raise DraftwoodError(
                    f"{self.file} was searched with {name} {_shown(searched[name])}, not with "
                    f"{_shown(given[name])}: search again with this {name}"
                )
        seen = [prompt.id for prompt in prompts if digest(prompt) in self.prompts]
        if seen:
            more = f" and {len(seen) - 1} more" if len(seen) > 1 else ""
            raise DraftwoodError(
                f"the settings in {self.file} were found on prompt {seen[0]}{more}: measure them "
                "on other prompts of the same kind"
            )

    def recorded(self, methods: Sequence[str]) -> Searched:
        """The part for a document: the pairs of the methods that were asked for."""
        pairs = {
            name: PublishedAndBest(each.published, each.best)
            for name, each in self.methods.items()
            if name in methods
        }
        return Searched(self.file, self.by, pairs, self.disturbed)


def digest(prompt: Prompt) -> str:
    """SHA-256 of a prompt's turns."""
    return hashlib.sha256(json.dumps(prompt.turns).encode()).hexdigest()


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared: the sampling with its defaults, and without a seed."""
    chat = {None: "left to the prompts", True: "on", False: "off"}[settings["chat"]]
    sampling = encode({**vars(SamplingParams()), **settings["sampling"]})
    del sampling["seed"]
    return {**{name: settings[name] for name in _COMPARED}, "chat": chat, **sampling}


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def load(path: Path) -> Best:
    """Read the file of ``draftwood search``.

    Raises:
        DraftwoodError: the file cannot be read, or has another content.
    """
    found = read_json(path)
    if not isinstance(found, dict) or found.get("best_settings") != SCHEMA:
        raise DraftwoodError(
            f"{path} is not a file of best settings of version {SCHEMA}: make one with "
            "draftwood search"
        )
    try:
        best = decode(Best, found)
        settings = decode(dict[str, Any], best.provenance.get("settings"), "provenance.settings")
        objection({"provenance": best.provenance})
        missing = [name for name in _NEEDED if name not in settings]
        if missing:
            raise DraftwoodError(f"provenance has no {missing[0]!r}")
        decode(_Compared, settings, "provenance.settings")
    except DraftwoodError as error:
        raise DraftwoodError(f"{path}: {error}: search again") from error
    return replace(best, file=str(path))

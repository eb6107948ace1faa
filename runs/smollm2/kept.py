"""Figures that are kept in a file, so that a call goes on where the last one stopped."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

import draftwood
from draftwood.costs import cache
from draftwood.files import encode, read_json, write_json
from draftwood.lab.bench.provenance import git_state, versions
from draftwood.lab.replay.file import write
from draftwood.lab.replay.recording import Recording
from runs.smollm2.recorded import answers, facts


def recorded_of(recording: Recording) -> dict[str, Any]:
    """What was recorded, however many rows there are."""
    tokens = [text.paths.main for prompt in recording.prompts for text in prompt.texts]
    return {
        "model": facts(recording),
        "answers": answers(recording),
        "tokens": cache.digest(tokens),
    }


class Kept:
    """Figures by name, written down as soon as they are found.

    Args:
        path: of the file. Figures that are there stay if they were found for the same, by the same
            commit without further changes and with the same versions; others are found anew.
        about: what the figures depend on, beside their names.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        git = git_state(Path(draftwood.__file__).parent)
        self._path = path
        everything = {**about, "git": git, "versions": versions()}
        self._about = json.loads(json.dumps(encode(everything)))
        self._figures: dict[str, Any] = {}
        if path.exists() and git is not None and not git["dirty"]:
            known = read_json(path)
            if known["about"] == self._about:
                self._figures = known["figures"]

    def once(self, name: str, find: Callable[[], Any]) -> Any:
        """The figure of this name: as it was found before, or as it is found now."""
        if name not in self._figures:
            click.echo(name, err=True)
            self._figures[name] = find()
            write_json(self._path, {"about": self._about, "figures": self._figures})
        return self._figures[name]


class KeptReplays(Kept):
    """Figures of replays; the rows that the recording gains are written down with them.

    Args:
        study: what the replays are for; names the file beside the recording.
        path: of the recording.
        recording: read from there.
        settings: on which the figures depend, beside their names.
    """

    def __init__(
        self, study: str, path: Path, recording: Recording, settings: Mapping[str, Any]
    ) -> None:
        super().__init__(path.with_suffix(f".{study}.json"), {**settings, **recorded_of(recording)})
        self._recording, self._at, self._rows = recording, path, recording.size

    def once(self, name: str, find: Callable[[], Any]) -> Any:
        """See :meth:`Kept.once`."""

        def found() -> Any:
            figure = find()
            if self._recording.size > self._rows:
                self._rows = self._recording.size
                write(self._at, self._recording)
            return figure

        return super().once(name, found)

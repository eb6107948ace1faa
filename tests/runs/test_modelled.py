"""Modelled speeds are kept by GPU and shape, so that a long run goes on where it stopped."""

from pathlib import Path
from typing import Any

import pytest

from runs.smollm2 import modelled


def test_what_has_been_found_is_not_replayed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def replayed(_: Path, words: list[str]) -> dict[str, dict[str, Any]]:
        asked.append(words)
        return {"auto": {"1": {"speedup": float(len(asked))}}}

    monkeypatch.setattr(modelled, "replayed", replayed)
    recording, kept = tmp_path / "of.rec", tmp_path / "kept" / "h100_8b.json"
    first = modelled.once(recording, ["--gpu", "h100"], kept)
    assert modelled.once(recording, ["--gpu", "h100"], kept) == first
    assert asked == [["--gpu", "h100"]]
    # Other settings are another question.
    assert modelled.once(recording, ["--gpu", "h100", "--batch", "4"], kept) != first
    assert modelled.once(recording, ["--gpu", "h100"], None) != first
    assert len(asked) == 3

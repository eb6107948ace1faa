"""Progress messages: shown on a terminal after a second, always logged."""

import logging
import time

import pytest

from draftwood.costs import progress
from draftwood.costs.progress import working


@pytest.mark.parametrize(("patience", "shown"), [(0.0, ["doing a thing"]), (60.0, [])])
def test_only_a_long_wait_shows_a_message(
    patience: float,
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "PATIENCE", patience)
    monkeypatch.setattr(progress, "_say", said.append)
    with caplog.at_level(logging.INFO), working("doing a thing"):
        deadline = time.monotonic() + 10
        while shown and not said and time.monotonic() < deadline:
            time.sleep(0.001)
    assert said == shown
    assert "doing a thing: " in caplog.text


def test_a_file_gets_no_such_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progress._say("doing a thing")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress._say("doing a thing")
    assert "draftwood: doing a thing ..." in capsys.readouterr().err

"""SIGTERM unwinds a block, and only that block."""

import os
import signal

import pytest

from draftwood.lab.bench.stopping import stoppable


def test_the_block_is_left_with_the_code_of_shells_and_what_was_before_is_back() -> None:
    seen: list[int] = []

    def before(number: int, frame: object) -> None:
        seen.append(number)

    kept = signal.signal(signal.SIGTERM, before)
    try:
        with pytest.raises(SystemExit) as stop, stoppable():
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.value.code == 143
        assert seen == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, kept)


def test_a_block_that_ends_by_itself_puts_back_what_was_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stoppable():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before

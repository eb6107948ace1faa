"""Stop strings are found wherever the pieces of the text are cut."""

from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.engine.stop import StopMatcher
from draftwood.errors import DraftwoodError


def fed(matcher: StopMatcher, pieces: Iterable[str]) -> list[str]:
    return [matcher.feed(piece) for piece in pieces]


def test_a_stop_string_across_pieces() -> None:
    matcher = StopMatcher(["\n\nQ:"])
    assert fed(matcher, ["A: 4", ".\n", "\n", "Q", ": 5+5", "more"]) == [
        "A: 4",
        ".",
        "",
        "",
        "",
        "",
    ]
    assert matcher.matched == "\n\nQ:"
    assert matcher.flush() == ""


def test_a_stop_string_that_begins_before_it_counts() -> None:
    matcher = StopMatcher(["END", "x"])
    out = [matcher.feed("END E", counts=False), matcher.feed("x EN", counts=False)]
    assert out == ["END ", "Ex "]
    assert matcher.feed("D.") == ""
    assert matcher.matched == "END"


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="must not be empty"):
        StopMatcher(["a", ""])


short = st.text("ab", min_size=1, max_size=5)


@given(
    st.lists(short, max_size=3),
    st.lists(st.text("abc", max_size=6), max_size=6),
    st.integers(0, 3),
)
def test_stops_do_not_depend_on_the_cuts(stops: list[str], pieces: list[str], least: int) -> None:
    """Those that are completed by one of the first pieces do not count."""
    text = "".join(pieces)
    ends = [
        (end, -len(stop))
        for end in range(len("".join(pieces[:least])) + 1, len(text) + 1)
        for stop in stops
        if text[:end].endswith(stop)
    ]
    end, length = min(ends, default=(len(text), 0))
    matcher = StopMatcher(stops)
    out = [matcher.feed(piece, counts=i >= least) for i, piece in enumerate(pieces)]
    shown = "".join(out) + matcher.flush()
    assert shown == text[: end + length]
    assert matcher.matched == (text[end + length : end] if ends else None)
    # Shown text never held a part of a stop string; no more was held back than needed.
    for before, seen in zip(accumulate(out), accumulate(pieces), strict=True):
        assert text[: end + length].startswith(before)
        if matcher.matched is None:
            held = seen[len(before) :]
            assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)

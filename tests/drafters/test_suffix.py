"""The suffix match: the automaton offers exactly what a search through the whole text would."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.drafters import suffix
from draftwood.drafters.suffix import COUNTED, Suffix, SuffixAutomaton, SuffixMatch
from draftwood.methods import method
from draftwood.protocols import Continuation, Outcome, Prefill, TargetInfo, TargetOutput
from draftwood.tree import tree_of
from tests.factories.markov_target import FakeHost
from tests.factories.traced_memory import bytes_allocated

HOST = FakeHost(TargetInfo(1000, 4096, 2, 8, torch.device("cpu"), torch.float32))
NO_ROWS = TargetOutput(
    torch.zeros(1, 1), np.zeros(1, np.int64), np.zeros((1, 0), np.int64), np.zeros((1, 0), "f4")
)


def begin(drafter: SuffixMatch, text: list[int], slot: int = 0) -> None:
    drafter.begin(slot, Prefill(np.array(text[:-1], dtype=np.int64), text[-1], NO_ROWS))


def commit(drafter: SuffixMatch, tokens: list[int], slot: int = 0) -> None:
    drafter.observe(slot, Outcome(tree_of([0], [-1]), (), tuple(tokens), NO_ROWS))


def searched(
    text: list[int], min_match: int = 1, tokens: int = 40, most: int = 4
) -> tuple[Continuation, ...]:
    """The definitions, by comparing every suffix with every passage before it."""
    end = len(text)
    agreeing: Counter[int] = Counter()
    found: dict[int, tuple[int, int, int]] = {}
    for length in range(end - 1, min_match - 1, -1):
        places = [p for p in range(length, end) if text[p - length : p] == text[end - length :]]
        for place in places:
            count = sum(text[p] == text[place] for p in places)
            found.setdefault(text[place], (place, length, count))
        if places:
            agreeing[text[places[0]]] += 1
    return tuple(
        Continuation(
            tuple(text[place : place + tokens]), length, min(count, COUNTED), agreeing[token]
        )
        for token, (place, length, count) in [*found.items()][:most]
    )


# No state of a text of 33 tokens has more than 32 links below it, as many as are looked at.
@given(
    text=st.integers(1, 4).flatmap(
        lambda size: st.lists(st.integers(0, size - 1), min_size=2, max_size=33)
    ),
    cuts=st.sets(st.integers(2, 33)),
    min_match=st.integers(1, 4),
    max_tokens=st.integers(1, 6),
    most=st.integers(1, 4),
)
def test_the_automaton_equals_a_search(
    text: list[int], cuts: set[int], min_match: int, max_tokens: int, most: int
) -> None:
    drafter = Suffix(min_match, max_tokens, most).build(HOST)
    ends = sorted({2, len(text), *(cut for cut in cuts if cut < len(text))})
    begin(drafter, text[: ends[0]])
    assert drafter.continuations([0])[0] == searched(text[:2], min_match, max_tokens, most)
    for start, end in pairwise(ends):
        commit(drafter, text[start:end])
        wanted = searched(text[:end], min_match, max_tokens, most)
        assert drafter.continuations([0])[0] == wanted


@pytest.mark.parametrize("size", [2, 5, 40])
def test_long_texts(size: int) -> None:
    rng = np.random.default_rng(size)
    passage = rng.integers(size, size=80).tolist()
    noise = rng.integers(size, size=150).tolist()
    text = [*passage, *noise[:70], *passage[:45], *noise[70:], *passage, *passage[:30]]
    automaton = SuffixAutomaton()
    matches = set()
    for end, token in enumerate(text, start=1):
        automaton.extend((token,))
        found = automaton.continuations(Suffix())
        wanted = searched(text[:end])
        assert [each.tokens for each in found] == [each.tokens for each in wanted]
        for own, other in zip(found, wanted, strict=True):
            assert (own.match_length, own.count) == (other.match_length, other.count)
        matches |= {each.match_length for each in found}
    assert 1 in matches
    assert max(matches) >= 80, "a match has no bound"


def test_a_loop_is_copied_for_a_period_unless_it_wraps() -> None:
    drafter, wrapping = Suffix().build(HOST), Suffix(max_tokens=7, wrap=True).build(HOST)
    for each in (drafter, wrapping):
        begin(each, [7, 8, *[1, 2, 3] * 5])
    assert drafter.continuations([0])[0] == (Continuation((1, 2, 3), 12, 1, 12),)
    assert wrapping.continuations([0])[0] == (Continuation((1, 2, 3, 1, 2, 3, 1), 12, 1, 12),)
    commit(drafter, [9])
    assert drafter.continuations([0])[0] == ()
    commit(drafter, [1, 2, 3])
    [again, other] = drafter.continuations([0])[0]
    # The earliest of four occurrences is copied.
    assert again == Continuation((*[1, 2, 3] * 4, 9, 1, 2, 3), 3, 4, 3)
    assert other == Continuation((9, 1, 2, 3), 3, 1, 0)


def test_a_long_loop_ends_no_look_up_late() -> None:
    automaton = SuffixAutomaton()
    automaton.extend([4, 5] * 1000 + [4])
    [only] = automaton.continuations(Suffix(max_tokens=5))
    assert only.tokens == (5, 4)
    assert (only.match_length, only.count) == (1999, 1)
    assert only.agreeing == 2 * 32, "32 states, each of two lengths"


def test_a_shortest_match_can_be_asked_for() -> None:
    text = [1, 2, 3, 4, 9, 3, 4]
    assert [c.tokens[0] for c in searched(text)] == [9]
    for least, found in ((1, 1), (2, 1), (3, 0)):
        drafter = Suffix(min_match=least).build(HOST)
        begin(drafter, text)
        assert len(drafter.continuations([0])[0]) == found


def test_memory_grows_with_the_text_and_stays_modest() -> None:
    drafter = Suffix().build(HOST)
    text: list[int] = np.random.default_rng(0).integers(1000, size=4000).tolist()
    small = bytes_allocated(suffix, lambda: begin(drafter, text[:20]))
    assert small < bytes_allocated(suffix, lambda: begin(drafter, text)) < 4000 * 1024


def test_it_answers_the_context_of_any_method() -> None:
    assert isinstance(method("sam").drafters["context"], Suffix)
    assert method("sam:context.min_match=3").drafters["context"] == Suffix(min_match=3)
    assert isinstance(method("goose:context=suffix").drafters["context"], Suffix)
    assert isinstance(method("auto:also=suffix").drafters["suffix"], Suffix)

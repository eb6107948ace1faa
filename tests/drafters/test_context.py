"""The context match: the incremental index offers exactly what rescanning the text would."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.drafters import context
from draftwood.drafters.context import Context, ContextIndex
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    Continuation,
    Outcome,
    Prefill,
    TargetInfo,
    TargetOutput,
)
from draftwood.tree import tree_of
from tests.factories.markov_target import FakeHost
from tests.factories.traced_memory import bytes_allocated

TARGET = TargetInfo(1000, 4096, 2, 8, torch.device("cpu"), torch.float32)
HOST = FakeHost(TARGET)
NO_ROWS = TargetOutput(
    torch.zeros(1, 1), np.zeros(1, np.int64), np.zeros((1, 0), np.int64), np.zeros((1, 0), "f4")
)


def begin(index: ContextIndex, text: list[int], slot: int = 0) -> None:
    index.begin(slot, Prefill(np.array(text[:-1], dtype=np.int64), text[-1], NO_ROWS))


def commit(index: ContextIndex, tokens: list[int], slot: int = 0) -> None:
    index.observe(slot, Outcome(tree_of([0], [-1]), (), tuple(tokens), NO_ROWS))


def offers(text: list[int], settings: Context) -> tuple[Continuation, ...]:
    index = settings.build(HOST)
    begin(index, text)
    return index.continuations([0])[0]


def rescanned(text: list[int], settings: Context) -> tuple[Continuation, ...]:
    """The definitions, computed from the whole text, without a limit on continuations."""
    end = len(text)
    preferred: list[int] = []
    found: dict[int, tuple[int, int]] = {}
    for length in sorted(settings.lengths, reverse=True):
        places = [p for p in range(length, end) if text[p - length : p] == text[end - length :]]
        if end < length or not places:
            continue
        preferred.append(text[places[-1]])
        for place in reversed(places):
            count = sum(text[p] == text[place] for p in places)
            found.setdefault(text[place], (place, count))
    answer = []
    for token, (place, count) in found.items():
        match = 0
        while match < min(place, settings.max_match) and text[place - match - 1] == text[~match]:
            match += 1
        answer.append(
            Continuation(
                tuple(text[place : place + settings.max_tokens]),
                match,
                count,
                preferred.count(token),
            )
        )
    return tuple(answer)


@given(
    text=st.lists(st.integers(0, 3), min_size=2, max_size=80),
    cuts=st.sets(st.integers(2, 80)),
    lengths=st.sampled_from([(5, 4, 3), (3,), (1, 2), (4, 2)]),
    max_tokens=st.integers(1, 6),
    max_match=st.integers(5, 12),
)
def test_the_index_equals_rescanning(
    text: list[int], cuts: set[int], lengths: tuple[int, ...], max_tokens: int, max_match: int
) -> None:
    settings = Context(lengths, max_tokens, max_continuations=4, max_match=max_match)
    index = settings.build(HOST)
    ends = sorted({2, len(text), *(cut for cut in cuts if cut < len(text))})
    begin(index, text[: ends[0]])
    assert index.continuations([0])[0] == rescanned(text[: ends[0]], settings)
    for start, end in pairwise(ends):
        commit(index, text[start:end])
        assert index.continuations([0])[0] == rescanned(text[:end], settings)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=120), st.integers(1, 3))
def test_a_bound_on_continuations_keeps_the_preferred_ones(text: list[int], bound: int) -> None:
    bounded = offers(text, Context((3, 2), max_continuations=bound))
    every = rescanned(text, Context((3, 2)))
    assert [c.tokens for c in bounded] == [c.tokens for c in every[:bound]]
    assert [c.match_length for c in bounded] == [c.match_length for c in every[:bound]]


@given(text=st.lists(st.integers(0, 2), min_size=1, max_size=14), most=st.integers(1, 20))
def test_a_wrapped_copy_continues_with_the_copied_tokens(text: list[int], most: int) -> None:
    plain = offers(text, Context((2, 1), most))
    wrapped = offers(text, Context((2, 1), most, wrap=True))
    for before, after in zip(plain, wrapped, strict=True):
        assert after.tokens[: len(before.tokens)] == before.tokens
        assert after == Continuation(
            after.tokens, before.match_length, before.count, before.agreeing
        )
        assert len(after.tokens) == most
        # Appended token by token, each is the one that stands as far back as the first does.
        place = len(text) - len(before.tokens) if len(before.tokens) < most else None
        if place is not None:
            grown = [*text]
            for token in after.tokens:
                assert token == grown[place]
                grown.append(token)
                place += 1


def test_suffixes_of_large_tokens_do_not_collide() -> None:
    # Equal modulo 2**61 - 1, which is all that Python's hash of an integer keeps.
    low, high = (0, 0, 0, 2**14), (0, 1, 0, 0)
    target = TargetInfo(2**25, 64, 1, 8, torch.device("cpu"), torch.float32)
    index = Context((4,)).build(FakeHost(target))
    begin(index, [*low, 7, *high, 8, *low])
    assert [c.tokens[0] for c in index.continuations([0])[0]] == [7]


def test_memory_grows_with_the_text_and_stays_modest() -> None:
    index = Context().build(HOST)
    small, large = list(range(10)), list(range(1000))
    least = bytes_allocated(context, lambda: begin(index, small))
    assert least < bytes_allocated(context, lambda: begin(index, large)) < 1000 * 512


@pytest.mark.parametrize(
    "wrong",
    [
        {"lengths": ()},
        {"lengths": (3, 3)},
    ],
)
def test_lengths_are_distinct_and_there_is_one(wrong: dict[str, int]) -> None:
    with pytest.raises(DraftwoodError):
        Context(**wrong)  # type: ignore[arg-type]


def test_a_vocabulary_beyond_the_keys_is_refused() -> None:
    target = TargetInfo(2**25 + 1, 64, 1, 8, torch.device("cpu"), torch.float32)
    with pytest.raises(DraftwoodError, match="25 bits"):
        Context().build(FakeHost(target))

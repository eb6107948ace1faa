"""Repeated 8-grams, and when a text counts as looping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.lab.loops import Repeats, pooled, repeats

TEXTS = st.lists(st.integers(0, 2), max_size=60)


def by_hand(tokens: list[int]) -> Repeats:
    """Look up every 8-gram among those before it."""
    grams = [tokens[i : i + 8] for i in range(len(tokens)) if len(tokens[i : i + 8]) == 8]
    return Repeats(sum(gram in grams[:i] for i, gram in enumerate(grams)), len(grams))


@given(TEXTS)
def test_an_8_gram_is_repeated_if_it_occurred_earlier_in_the_text(tokens: list[int]) -> None:
    assert repeats(tokens) == by_hand(tokens)


@pytest.mark.parametrize("count", range(8))
def test_a_text_of_fewer_than_8_tokens_has_no_8_grams_and_does_not_loop(count: int) -> None:
    found = repeats([7] * count)
    assert found == Repeats(0, 0)
    assert found.share == 0.0
    assert not found.loops


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (list(range(100)), False),
        ([7] * 9, True),
        (list(range(8)) * 2, False),
        (list(range(8)) * 3, True),
        # 4 of 20 and 4 of 21 8-grams: a fifth is enough, less is not.
        ([*range(16), *range(11)], True),
        ([*range(17), *range(11)], False),
        # Repeated with another name each time: no exact period, but a loop.
        ([token for k in range(6) for token in (100 + k, *range(12))], True),
        # A loop that ends.
        ([*([1, 2, 3] * 10), *range(50, 90)], True),
    ],
    ids=["none", "one", "twice", "thrice", "a fifth", "less", "variation", "left"],
)
def test_a_text_loops_if_a_fifth_is_repeated(tokens: list[int], expected: bool) -> None:
    assert repeats(tokens).loops is expected


def test_texts_are_pooled_by_counts_not_by_shares() -> None:
    short, long = repeats([7] * 12), repeats(list(range(103)))
    assert (short, long) == (Repeats(4, 5), Repeats(0, 96))
    assert pooled([short, long]) == Repeats(4, 101)
    # 8-grams of another text are no repetitions.
    assert pooled([repeats(list(range(20)))] * 2).repeated == 0
    assert pooled([]) == Repeats()


@given(TEXTS)
def test_a_doubled_text_has_more_repetitions(tokens: list[int]) -> None:
    assert repeats([*tokens, *tokens]).repeated >= repeats(tokens).repeated

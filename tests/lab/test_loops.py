"""How much of a text repeats itself, and from where on it counts as a loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.lab.loops import Repeats, looping, pooled, repeats

TEXTS = st.lists(st.integers(0, 2), max_size=60)


def by_hand(tokens: list[int]) -> Repeats:
    """Every 8-gram looked up among those before it."""
    grams = [tokens[i : i + 8] for i in range(len(tokens)) if len(tokens[i : i + 8]) == 8]
    return Repeats(sum(gram in grams[:i] for i, gram in enumerate(grams)), len(grams))


@given(TEXTS)
def test_an_8_gram_is_repeated_if_it_stands_earlier_in_the_text(tokens: list[int]) -> None:
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
        # Said anew each time with another name: no exact period, and a loop all the same.
        ([token for k in range(6) for token in (100 + k, *range(12))], True),
        # A loop that is left again.
        ([*([1, 2, 3] * 10), *range(50, 90)], True),
    ],
    ids=["none", "one", "twice", "thrice", "a fifth", "less", "variation", "left"],
)
def test_a_text_loops_from_a_fifth_on(tokens: list[int], expected: bool) -> None:
    assert looping(tokens) is expected


def test_texts_are_pooled_by_their_8_grams_and_not_by_their_shares() -> None:
    short, long = repeats([7] * 12), repeats(list(range(103)))
    assert (short, long) == (Repeats(4, 5), Repeats(0, 96))
    assert pooled([short, long]) == Repeats(4, 101)
    # What one text says is no repetition in another.
    assert pooled([repeats(list(range(20)))] * 2).repeated == 0
    assert pooled([]) == Repeats()


@given(TEXTS)
def test_more_of_the_same_loops_more(tokens: list[int]) -> None:
    assert repeats([*tokens, *tokens]).repeated >= repeats(tokens).repeated

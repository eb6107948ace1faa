"""Codes of what sources say: in range, all of them in use, and one cell for every three of them."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.auto.features import (
    CELLS,
    CODES,
    COPIED_CODES,
    OTHER,
    RANKED_CODES,
    SILENT,
    cells,
    copied_code,
    coupled_codes,
    drawn_code,
    ranked_codes,
)

LENGTHS = range(200)
SCORES = np.linspace(0.0005, 1.0, 2000)


def ranked(*scores: float) -> list[int]:
    return [int(code) for code in ranked_codes(np.log([scores]).astype(np.float32))[0]]


def test_copied_codes_are_all_in_use_and_none_is_silence() -> None:
    found = {
        copied_code(length, preferred=preferred, first=first)
        for length, preferred, first in itertools.product(LENGTHS, (False, True), (False, True))
    }
    assert found == set(range(COPIED_CODES)) - {SILENT, OTHER}


def test_copied_codes_tell_apart_what_they_are_made_of() -> None:
    for length in (1, 5, 100):
        codes = {
            copied_code(length, preferred=preferred, first=first)
            for preferred, first in itertools.product((False, True), (False, True))
        }
        assert len(codes) == 4


def test_matches_fall_into_buckets_by_length() -> None:
    codes = [copied_code(length, preferred=True, first=True) for length in LENGTHS]
    assert codes == sorted(codes), "a longer match is never in a lower bucket"
    buckets = [len(list(group)) for _, group in itertools.groupby(codes)]
    assert len(buckets) == (COPIED_CODES - 2) / 4
    # Short matches are told apart finely, long ones coarsely: the last bucket has no end.
    assert buckets[0] <= 2
    assert buckets[-1] == max(buckets)
    assert copied_code(10**9, preferred=True, first=True) == codes[-1]
    # Whatever else is said of a token, the buckets are the same.
    others = [copied_code(length, preferred=False, first=False) for length in LENGTHS]
    assert [len(list(group)) for _, group in itertools.groupby(others)] == buckets


def test_ranked_codes_are_all_in_use_and_none_is_silence() -> None:
    found = ranked_codes(np.log(np.tile(SCORES[:, None], 4)).astype(np.float32))
    assert found.shape == (2000, 4)
    assert found.dtype == np.int64
    assert set(found.ravel().tolist()) == set(range(RANKED_CODES)) - {SILENT, OTHER}


def test_ranks_are_told_apart_up_to_the_third() -> None:
    assert len(set(ranked(0.3, 0.3, 0.3))) == 3
    assert ranked(0.3, 0.3, 0.3, 0.3, 0.3)[2:] == ranked(0.3, 0.3, 0.3)[2:] * 3


def test_scores_fall_into_bins() -> None:
    codes = ranked_codes(np.log(SCORES[:, None]).astype(np.float32))[:, 0].tolist()
    assert codes == sorted(codes), "a likelier token is never in a lower bin"
    assert len(set(codes)) == (RANKED_CODES - 2) / 3
    assert codes[0] < codes[-1]
    # A score is looked up by itself: neither its row nor the rows beside it matter.
    assert ranked(0.8, 0.15) == [*ranked(0.8), ranked(0.1, 0.15)[1]]


def test_scores_of_nothing_and_above_one_have_codes_too() -> None:
    codes = ranked_codes(np.array([[0.5, -math.inf]], dtype=np.float32))[0]
    assert codes[0] == ranked(1.0)[0]
    assert 2 <= codes[1] < RANKED_CODES
    assert ranked_codes(np.zeros((0, 3), dtype=np.float32)).shape == (0, 3)
    assert ranked_codes(np.zeros((2, 0), dtype=np.float32)).shape == (2, 0)


def test_a_coupled_tokens_code_is_its_place_and_share_in_the_race() -> None:
    rows = np.log(np.tile(SCORES[:, None], 4)).astype(np.float32)
    codes = coupled_codes(rows)
    assert set(codes.ravel().tolist()) == set(range(2 * RANKED_CODES - 2, CODES[2]))
    # By the same bins and ranks as those of tokens in their own order.
    assert np.array_equal(codes - ranked_codes(rows), np.full(codes.shape, 2 * RANKED_CODES - 4))


def test_every_three_codes_have_a_cell_of_their_own() -> None:
    codes = np.indices(CODES).reshape(len(CODES), -1).T
    assert math.prod(CODES) == CELLS == len(codes)
    assert np.array_equal(np.sort(cells(codes)), np.arange(CELLS))
    assert cells(np.zeros((0, 3), dtype=np.int64)).shape == (0,)


@given(codes=st.tuples(*(st.integers(0, n - 1) for n in CODES)))
def test_cells_are_laid_out_as_an_array_of_codes_is(codes: tuple[int, int, int]) -> None:
    # Counts by cell are summed over the other sources' codes by reshaping them to CODES.
    assert cells(np.array([codes]))[0] == np.ravel_multi_index(codes, CODES)


def test_a_drawn_tokens_code_is_its_place_and_what_its_siblings_leave() -> None:
    lefts = [0.0, 0.03, 0.07, 0.15, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0]
    codes = [drawn_code(place, left) for place in range(3) for left in lefts]
    assert codes == list(range(RANKED_CODES, 2 * RANKED_CODES - 2))
    assert drawn_code(7, 0.4) == drawn_code(2, 0.4)
    assert drawn_code(0, 0.05) == drawn_code(0, 0.07)

"""Codes are in range and all in use, and every combination of codes has a bucket."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.policies.auto.features import (
    COPIED,
    COPIED_CODES,
    KINDS,
    NOT_ASKED,
    NOT_LISTED,
    RANKED_CODES,
    SOURCES,
    bucket_of,
    codes_of,
    copied_code,
    coupled_codes,
    features_of,
    further_source,
    ranked_codes,
    sampled_code,
)
from tests.policies.auto.known_costs import BUCKETS, CODES

LENGTHS = range(200)
SCORES = np.linspace(0.0005, 1.0, 2000)


def ranked(*scores: float) -> list[int]:
    return [int(code) for code in ranked_codes(np.log([scores]).astype(np.float32))[0]]


def test_copied_codes_are_all_in_use_and_none_means_no_answer() -> None:
    found = {
        copied_code(length, preferred=preferred, first=first)
        for length, preferred, first in itertools.product(LENGTHS, (False, True), (False, True))
    }
    assert found == set(range(COPIED_CODES)) - {NOT_ASKED, NOT_LISTED}


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


def test_ranked_codes_are_all_in_use_and_none_means_no_answer() -> None:
    found = ranked_codes(np.log(np.tile(SCORES[:, None], 4)).astype(np.float32))
    assert found.shape == (2000, 4)
    assert found.dtype == np.int64
    assert set(found.ravel().tolist()) == set(range(RANKED_CODES)) - {NOT_ASKED, NOT_LISTED}


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


def test_a_coupled_tokens_code_is_its_place_and_share() -> None:
    rows = np.log(np.tile(SCORES[:, None], 4)).astype(np.float32)
    codes = coupled_codes(rows)
    assert set(codes.ravel().tolist()) == set(range(2 * RANKED_CODES - 2, CODES[2]))
    # By the same bins and ranks as those of tokens in their own order.
    assert np.array_equal(codes - ranked_codes(rows), np.full(codes.shape, 2 * RANKED_CODES - 4))


@given(codes=st.tuples(*(st.integers(0, n - 1) for n in CODES)))
def test_buckets_are_numbered_as_an_array_of_codes_is(codes: tuple[int, int, int]) -> None:
    assert bucket_of(codes) == np.ravel_multi_index(codes, CODES)
    assert codes_of(bucket_of(codes)) == codes


FURTHER = (*SOURCES, further_source("mine/ranked"), further_source("yours/copied"))


@given(codes=st.tuples(*(st.integers(0, KINDS[source.kind] - 1) for source in FURTHER)))
def test_further_sources_are_higher_digits(codes: tuple[int, ...]) -> None:
    number = bucket_of(codes, FURTHER)
    assert codes_of(number, FURTHER) == codes
    assert number % BUCKETS == bucket_of(codes[:3])
    assert (number < BUCKETS) == (codes[3:] == (NOT_ASKED, NOT_ASKED))


def test_a_bucket_beyond_the_sources_is_refused() -> None:
    with pytest.raises(ValueError, match=f"no bucket {BUCKETS}"):
        codes_of(BUCKETS)


@pytest.mark.parametrize("text", ["mine", "mine/neural", "/ranked", "mine/"])
def test_a_further_source_names_its_kind(text: str) -> None:
    with pytest.raises(DraftwoodError, match="write NAME/copied or NAME/ranked"):
        further_source(text)


def test_features_of_a_candidate_that_one_source_lists() -> None:
    only = features_of(FURTHER).only(0b01001, COPIED)
    assert len(only) == COPIED_CODES
    assert only[7] == (7, NOT_ASKED, NOT_ASKED, NOT_LISTED, NOT_ASKED)
    assert features_of(FURTHER).only(0b01001, 3)[5] == (NOT_LISTED, 0, 0, 5, 0)


def test_a_sampled_tokens_code_is_its_place_and_what_its_siblings_leave() -> None:
    lefts = [0.0, 0.03, 0.07, 0.15, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0]
    codes = [sampled_code(place, left) for place in range(3) for left in lefts]
    assert codes == list(range(RANKED_CODES, 2 * RANKED_CODES - 2))
    assert sampled_code(7, 0.4) == sampled_code(2, 0.4)
    assert sampled_code(0, 0.05) == sampled_code(0, 0.07)

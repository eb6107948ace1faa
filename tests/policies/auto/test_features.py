"""Codes are in range and all in use, and every combination of codes has a bucket."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.policies.auto.features import (
    COPIED,
    COPIED_CODES,
    NOT_ASKED,
    NOT_LISTED,
    RANKED_CODES,
    SOURCES,
    Source,
    bucket_of,
    codes_of,
    copied_codes,
    coupled_codes,
    features_of,
    ranked_codes,
    sampled_code,
)
from draftwood.protocols import Continuation, Evidence, Feature
from tests.policies.auto.codes import copied_code
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


MINE = Source(
    "mine",
    Evidence(
        copied=(Feature("count", (2, 5)), Feature("match_length", (4, 8)), Feature("first")),
        ranked=(Feature("score", (0.25, 0.5)), Feature("rank", (1,))),
    ),
)
YOURS = Source("yours", Evidence(copied=(Feature("agreeing", (2, 3)), Feature("preferred"))))


def test_a_bucket_beyond_the_sources_is_refused() -> None:
    with pytest.raises(ValueError, match=f"no bucket {BUCKETS}"):
        codes_of(BUCKETS)


def test_a_further_sources_copied_codes_are_its_own_features() -> None:
    def codes(count: int, match_length: int) -> list[int]:
        offer = Continuation((7,) * 6, match_length, count, agreeing=1)
        code_of = copied_codes(MINE, offer, preferred=False)
        return [code_of(place) for place in range(6)]

    # The first feature counts most; the match grows along the tokens; the first token has a 1 more.
    assert codes(1, 1) == [2 + 1, 2, 2, 4, 4, 4]
    assert codes(3, 3) == [2 + 6 + 1, 10, 10, 10, 10, 12]
    assert codes(9, 90) == [2 + 12 + 4 + 1, *[18] * 5]
    assert MINE.ranked_from == 2 + 18
    for agreeing, preferred, code in ((1, False, 2), (2, True, 5), (9, True, 7)):
        offer = Continuation((7,), 3, 1, agreeing)
        assert copied_codes(YOURS, offer, preferred=preferred)(0) == code
    assert YOURS.codes == YOURS.ranked_from == 8


def test_a_further_sources_ranked_codes_follow_its_copied_ones() -> None:
    logq = np.log(np.array([[0.6, 0.3, 0.2], [0.1, 0.55, 0.7]])).astype(np.float32)
    assert ranked_codes(logq, MINE).tolist() == [[24, 23, 21], [20, 25, 25]]
    assert MINE.codes == 26
    alone = Source("rank", Evidence(ranked=(Feature("rank", (1, 3)),)))
    assert ranked_codes(np.zeros((1, 5), dtype=np.float32), alone).tolist() == [[2, 3, 3, 4, 4]]


def test_features_of_a_candidate_that_one_source_lists() -> None:
    known = features_of((*SOURCES, MINE, YOURS))
    only = known.only(0b01001, COPIED)
    assert len(only) == COPIED_CODES
    assert only[7] == (7, NOT_ASKED, NOT_ASKED, NOT_LISTED, NOT_ASKED)
    assert known.only(0b01001, 3)[5] == (NOT_LISTED, 0, 0, 5, 0)
    assert len(known.only(0, 3)) == MINE.codes
    assert (known.copying, known.ranking) == ([3, 4], [3])


def test_a_sampled_tokens_code_is_its_place_and_what_its_siblings_leave() -> None:
    lefts = [0.0, 0.03, 0.07, 0.15, 0.3, 0.4, 0.6, 0.8, 0.9, 1.0]
    codes = [sampled_code(place, left) for place in range(3) for left in lefts]
    assert codes == list(range(RANKED_CODES, 2 * RANKED_CODES - 2))
    assert sampled_code(7, 0.4) == sampled_code(2, 0.4)
    assert sampled_code(0, 0.05) == sampled_code(0, 0.07)

"""Evidence is bounded, and what is wrong with it is said when it is declared."""

import pytest

from draftwood.errors import DraftwoodError
from draftwood.protocols import Evidence, Feature
from draftwood.protocols.evidence import values


def test_each_combination_of_bins_is_a_value() -> None:
    features = (Feature("match_length", (2, 5, 9)), Feature("first"))
    assert values(features) == 8
    assert values(()) == 1
    assert bool(Evidence(copied=features))
    assert bool(Evidence(ranked=(Feature("rank"),)))
    assert not Evidence()


@pytest.mark.parametrize(
    ("copied", "ranked", "complaint"),
    [
        ((Feature("rank"),), (), "copied tokens has the features rank: .* of match_length, count"),
        ((), (Feature("first"),), "ranked tokens has the features first: .* of rank, score"),
        ((Feature("first"), Feature("first")), (), "name each at most once"),
        ((Feature("count", (2, 2)),), (), r"count has the edges \(2, 2\): give one or more, asc"),
        ((Feature("count", ()),), (), r"count has the edges \(\): give one or more"),
        (
            (Feature("count", tuple(range(63))), Feature("match_length", tuple(range(31)))),
            (),
            "copied tokens has 2048 combinations of bins: at most 1024",
        ),
    ],
)
def test_evidence_that_cannot_be_learnt_from_is_refused(
    copied: tuple[Feature, ...], ranked: tuple[Feature, ...], complaint: str
) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        Evidence(copied, ranked)

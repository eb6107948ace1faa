"""One answer is not all of a calibration."""

import pytest

from draftwood.lab.counting import capped_sum
from draftwood.policies.auto.calibration import Prior


def test_an_answer_that_repeats_itself_does_not_outvote_the_others() -> None:
    answers: list[dict[str, Prior]] = [
        {"greedy": {(8, 0, 0): (400.0, 396.0), (2, 1, 0): (3.0, 0.0)}},
        {"greedy": {(8, 0, 0): (5.0, 2.0)}},
        {"low": {(8, 0, 0): (20.0, 10.0)}},
    ]
    assert capped_sum(answers, 20.0) == {
        "greedy": {(8, 0, 0): (25.0, pytest.approx(21.8)), (2, 1, 0): (3.0, 0.0)},
        "low": {(8, 0, 0): (20.0, 10.0)},
    }
    assert capped_sum(answers, 1e9)["greedy"][8, 0, 0] == (405.0, 398.0)
    assert capped_sum([], 20.0) == {}

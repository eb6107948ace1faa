"""Servers whose speculation is broken: each fault is found by the check that is there for it."""

import pytest

from tests.factories.toy_server import Faults, Toy
from tests.lab.endpoint.runs import checked, lines, outcomes, settings


def test_a_right_server_passes_all_checks() -> None:
    report = checked(Toy(), settings(samples=300))
    found = outcomes(report)
    assert not found.get("failed", set()) | found.get("undecided", set()), lines(report)
    assert not found.get("not checked"), lines(report)
    names = {
        *("greedy", "streaming", "logprobs", "penalties", "logit_bias", "ends", "n", "seeds"),
        *("law", "speculation"),
    }
    assert found["passed"] == names


@pytest.mark.parametrize(
    ("faults", "failing"),
    [
        (Faults(seedless=True), {"seeds"}),
        (Faults(ignored=("presence_penalty",)), {"penalties"}),
        (Faults(ignored=("repetition_penalty",)), {"penalties"}),
        (Faults(ignored=("logit_bias",)), {"logit_bias"}),
        (Faults(leaks=True), {"ends"}),
        (Faults(logprobs=0.2), {"logprobs"}),
        (Faults(logprobs=-0.2), {"logprobs"}),
        (Faults(scale=1.5), {"logprobs"}),
        (Faults(one=True), {"n"}),
        (Faults(drops=True), {"streaming"}),
    ],
)
def test_a_fault_fails_its_own_check_alone(faults: Faults, failing: set[str]) -> None:
    report = checked(Toy(faults))
    found = outcomes(report)
    assert found["failed"] == failing, lines(report)
    assert "undecided" not in found, lines(report)
    assert not any(each.shared for each in report.results)


def test_a_wrong_token_now_and_then_is_a_fault_with_its_gap() -> None:
    report = checked(Toy(Faults(wrong=9)))
    greedy = [each for each in report.results if each.check == "greedy"]
    assert [each.outcome for each in greedy] == ["failed", "failed"]
    for each in greedy:
        assert each.divergence is not None
        assert each.divergence.token == 8
        assert each.divergence.gap is not None
        assert each.divergence.gap > 0.01
        assert each.divergence.cause == "fault"
        assert [request.body.get("speculate") for request in each.requests] == [None, False]


def test_rounding_is_told_from_a_fault() -> None:
    rounding = Toy(Faults(rounds=0.3))
    report = checked(rounding, settings(tolerance=0.3))
    greedy = [each for each in report.results if each.check == "greedy"]
    assert any(each.divergence for each in greedy), "the server differs"
    assert {each.outcome for each in greedy} == {"passed"}, lines(report)
    assert "rounding" in lines(report)
    assert "failed" not in outcomes(report), lines(report)
    report = checked(rounding, settings(tolerance=0.001))
    assert "greedy" in outcomes(report)["failed"]


def test_one_token_more_than_the_limit() -> None:
    report = checked(Toy(Faults(beyond=1)))
    failed = [each for each in report.results if each.outcome == "failed" and each.check == "ends"]
    assert {each.subject for each in failed} == {f"max_tokens={n}" for n in (1, 5, 17)}
    assert "2 tokens were generated" in failed[0].text


@pytest.mark.parametrize("tops", [20, None])
def test_a_biased_law_fails_with_and_without_log_probabilities(tops: int | None) -> None:
    report = checked(Toy(Faults(eager=0.5), tops=tops), settings(samples=300))
    assert outcomes(report)["failed"] == {"law"}, lines(report)
    law = next(each for each in report.results if each.check == "law")
    assert law.figures["p_value"] < 1e-6
    assert ("probabilities of" in law.text) == (tops is not None)
    assert "top_k=4" in law.text
    right = checked(Toy(tops=tops), settings(samples=300, top_k=0))
    assert "(all tokens)" in lines(right)
    assert "failed" not in outcomes(right), lines(right)


def test_a_fault_without_speculation_is_not_blamed_on_it() -> None:
    report = checked(Toy(Faults(one=True, leaks=True, plain_too=True)))
    failed = [each for each in report.results if each.outcome == "failed"]
    assert {each.check for each in failed} == {"n", "ends"}
    assert all(each.shared and "so does the reference" in each.text for each in failed)


def test_a_server_that_breaks_down_over_a_field_fails() -> None:
    report = checked(Toy(breaks="logit_bias"))
    assert outcomes(report)["failed"] == {"logit_bias"}
    assert "status 500, worker died" in lines(report)
    failed = [each for each in report.results if each.outcome == "failed"]
    assert failed
    assert all("logit_bias" in request.body for each in failed for request in each.requests)


def test_a_reference_that_drafts_is_none() -> None:
    report = checked(Toy(), plain={"speculative": False})
    assert outcomes(report)["undecided"] == {"speculation"}
    assert "the reference drafted" in lines(report)

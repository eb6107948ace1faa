"""Servers whose speculation is broken: each fault is found by the check that is there for it."""

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from draftwood.lab.endpoint.answer import Choice, Token
from draftwood.lab.endpoint.checks.logprobs import same_lists
from tests.factories.toy_server import Faults, Toy
from tests.lab.endpoint.runs import checked, lines, outcomes, settings


def test_a_right_server_passes_all_checks() -> None:
    report = checked(Toy(), settings(samples=300))
    found = outcomes(report)
    assert not found.get("failed", set()) | found.get("undecided", set()), lines(report)
    assert not found.get("not checked"), lines(report)
    names = {
        *("greedy", "streaming", "logprobs", "penalties", "logit_bias", "ends", "n", "seeds"),
        *("distribution", "speculation"),
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


class Lowered(Toy):
    """Lowers the likeliest tokens that were not chosen, but not the values of those that were."""

    async def _complete(self, request: Request) -> Response:
        body, found = await request.json(), await super()._complete(request)
        if body.get("speculate") is False or body.get("stream"):
            return found
        content: dict[str, Any] = json.loads(bytes(found.body))
        for each in content["choices"]:
            logprobs = each.get("logprobs") or {}
            columns = zip(logprobs.get("tokens", ()), logprobs.get("top_logprobs", ()), strict=True)
            for own, top in columns:
                top.update({text: value - 5.0 for text, value in top.items() if text != own})
            for entry in logprobs.get("content", ()):
                for other in entry["top_logprobs"]:
                    other["logprob"] -= 5.0 * (other["token"] != entry["token"])
        return JSONResponse(content)


@pytest.mark.parametrize("chat", [False, True])
def test_likeliest_tokens_that_are_not_the_references_are_a_fault(chat: bool) -> None:
    report = checked(Lowered(chat=chat))
    assert outcomes(report)["failed"] == {"logprobs"}, lines(report)
    failed = [each for each in report.results if each.outcome == "failed"]
    assert [each.subject for each in failed] == ["greedy", "sampled"]
    for each in failed[:1] if chat else failed:  # a list of samples is not in order any more
        assert each.figures["largest_difference"] == pytest.approx(0.0)
        assert each.figures["largest_listed_difference"] == pytest.approx(5.0)
        assert "; the worst: " in each.text


def listing(*tops: tuple[tuple[str, float], ...], ordered: bool = False) -> Choice:
    """An answer of the tokens that are first in each list."""
    tokens, text = [], ""
    for top in tops:
        tokens.append(Token(*top[0], top, len(text), ordered))
        text += top[0][0]
    return Choice(text, "length", tuple(tokens))


def gaps(expected: Choice, found: Choice) -> list[float]:
    return sorted(round(gap, 3) for gap, _ in same_lists([expected], [found]))


def test_only_texts_that_both_lists_have_once_are_compared() -> None:
    one = listing(((" a", -0.1), (" b", -2.0), (" c", -4.0)), ((" d", -0.2), (" e", -3.0)))
    assert gaps(one, one) == [0.0] * 3, "the second list is shorter: it lacks a text of two tokens"
    ends = listing(((" a", -0.1), (" b", -2.5), (" x", -4.0)))
    assert gaps(one, ends) == [0.0, 0.5]
    twice = listing(((" a", -0.1), (" b", -2.5), (" b", -3.0)), ordered=True)
    assert gaps(one, twice) == [0.0]
    other = listing(((" z", -0.1), (" y", -2.0)), ((" d", -0.7), (" e", -1.0)))
    assert gaps(listing(((" a", -0.1), (" b", -2.0)), ((" d", -0.2), (" e", -3.0))), other) == []
    # This side leaves out the spaces, so that its "a" may be the other's " a".
    spaceless = Choice(" a", "length", (Token("a", -0.1, (("a", -0.1), (" b", -9.0))),))
    assert gaps(listing(((" a", -0.1), (" b", -2.0))), spaceless) == []


def test_fewer_tokens_than_the_limit_are_a_fault() -> None:
    class Short(Toy):
        async def _complete(self, request: Request) -> Response:
            body = await request.json()
            if body.get("speculate") is not False and body["max_tokens"] == 64:
                body["max_tokens"] = 60
            request._json = body
            return await super()._complete(request)

    report = checked(Short())
    greedy = [each for each in report.results if each.check == "greedy"]
    assert [each.outcome for each in greedy] == ["failed", "failed"], lines(report)
    for each in greedy:
        assert each.text == "60 tokens, not 64, and the same limit ended both"
    blind = checked(Short(tops=None))
    assert {e.outcome for e in blind.results if e.check == "greedy"} == {"failed"}, lines(blind)


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
def test_a_biased_distribution_fails_with_and_without_log_probabilities(tops: int | None) -> None:
    report = checked(Toy(Faults(eager=0.5), tops=tops), settings(samples=300))
    assert outcomes(report)["failed"] == {"distribution"}, lines(report)
    distribution = next(each for each in report.results if each.check == "distribution")
    assert distribution.figures["p_value"] < 1e-6
    assert ("probabilities of" in distribution.text) == (tops is not None)
    assert "top_k=4" in distribution.text
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

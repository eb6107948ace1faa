"""Requests whose draft model still reads their prompt, beside others: they decode without it."""

import pytest

from draftwood import Engine, Request, SamplingParams, method
from draftwood.drafters._rollout import rollout
from draftwood.engine import phases
from draftwood.methods import recipes
from draftwood.runner.attach import attach
from tests.factories.drafted import drafts, target

PROMPTS = ([5, 6, 7, 5, 6, 7, 5, 6] * 4, [9, 3, 9, 3, 1], [8, 2, 4] * 7)
DRAFTED = {
    name: found
    for name, recipe in recipes().items()
    if (found := {"model", "eagle3"} & set(recipe.drafters.values()))
}


@pytest.mark.parametrize("name", [*DRAFTED, "auto"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_token_changes(monkeypatch: pytest.MonkeyPatch, name: str, temperature: float) -> None:
    monkeypatch.setattr(rollout, "MOST_READ", 8)
    runner = attach(target(), packing=False)
    asked = [
        Request(prompt, 16, SamplingParams(temperature=temperature, seed=i))
        for i, prompt in enumerate(PROMPTS)
    ]
    drafting = method(name, **drafts(DRAFTED.get(name, {"model"})))
    found = Engine(runner, drafting).generate(asked)
    assert all(each.error is None and len(each.tokens) == 16 for each in found)
    if drafting.same_tokens(temperature=temperature):
        wanted = Engine(runner, method("ar")).generate(asked)
        assert [each.tokens for each in found] == [each.tokens for each in wanted]
    if name != "auto":  # which asks where it pays
        assert all(each.tally.drafted for each in found), "once it has been read"
        alone = [Engine(runner, drafting).generate([each])[0].tokens for each in asked]
        assert [each.tokens for each in found] == alone
    runner.detach()


def test_sampled_drafts_would_depend_on_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "MOST_READ", 8)
    monkeypatch.setattr(phases, "SAMPLED", frozenset())
    runner = attach(target(), packing=False)
    drafting = method("traversal", **drafts({"model"}))
    # Where the first drafts are rejected, plain steps may draw the same tokens.
    asked = [Request(PROMPTS[0], 16, SamplingParams(0.8, seed=i)) for i in range(8)]
    found = Engine(runner, drafting).generate(asked)
    alone = [Engine(runner, drafting).generate([each])[0] for each in asked]
    assert [each.tokens for each in found] != [each.tokens for each in alone]
    runner.detach()

"""Requests whose draft model still reads their prompt, beside others: they decode without it."""

from typing import Any

import pytest
from torch import nn

from draftwood import Engine, Request, SamplingParams, method
from draftwood.drafters._rollout import rollout
from draftwood.engine import phases
from draftwood.methods import recipes
from draftwood.runner.attach import attach
from tests.factories.eagle3_heads import HT, LAYERS, V, embedding, tiny_head
from tests.factories.tiny_llama import tiny_llama

ENDLESS: dict[str, Any] = {"eos_token_id": None, "bos_token_id": None}
PROMPTS = ([5, 6, 7, 5, 6, 7, 5, 6] * 4, [9, 3, 9, 3, 1], [8, 2, 4] * 7)
DRAFTED = {
    name: found
    for name, recipe in recipes().items()
    if (found := {"model", "eagle3"} & set(recipe.drafters.values()))
}


def target() -> nn.Module:
    return tiny_llama(layers=LAYERS, vocab_size=V, hidden_size=HT, head_dim=6, **ENDLESS)


def options(parts: set[str]) -> dict[str, nn.Module]:
    """What a method drafts with."""
    found: dict[str, nn.Module] = {}
    if "model" in parts:
        found["draft"] = tiny_llama(seed=1, layers=1, vocab_size=V, **ENDLESS)
    if "eagle3" in parts:
        found["head"] = head = tiny_head()
        head.set_input_embeddings(embedding())
    return found


@pytest.mark.parametrize("name", [*DRAFTED, "auto"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_token_changes(monkeypatch: pytest.MonkeyPatch, name: str, temperature: float) -> None:
    monkeypatch.setattr(rollout, "MOST_READ", 8)
    runner = attach(target(), packing=False)
    asked = [
        Request(prompt, 16, SamplingParams(temperature=temperature, seed=i))
        for i, prompt in enumerate(PROMPTS)
    ]
    drafting = method(name, **options(DRAFTED.get(name, {"model"})))
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
    drafting = method("traversal", **options({"model"}))
    # Where the first drafts are rejected, plain steps may draw the same tokens.
    asked = [Request(PROMPTS[0], 16, SamplingParams(0.8, seed=i)) for i in range(8)]
    found = Engine(runner, drafting).generate(asked)
    alone = [Engine(runner, drafting).generate([each])[0] for each in asked]
    assert [each.tokens for each in found] != [each.tokens for each in alone]
    runner.detach()

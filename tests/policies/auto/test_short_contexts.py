"""``auto`` on models of every short context, and on prompts that leave next to no room."""

from dataclasses import replace
from itertools import product

import pytest

from draftwood.costs import measure
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion, Request
from draftwood.errors import DraftwoodError
from draftwood.files import CACHE_VARIABLE
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from tests.factories.given_costs import drafting_pays
from tests.factories.tiny_llama import VOCAB, tiny_llama

LIMITS = (2, 3, 4, 5, 8, 31, 32, 63, 64, 65, 96, 127, 128)


@pytest.fixture(autouse=True)
def quick(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are measured in no time, and kept nowhere else."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(measure, "USUAL", replace(measure.USUAL, seconds=0.001))


def prompt(length: int) -> list[int]:
    return [7 * i % 5 for i in range(length)]


def decoded(
    target: Runner, host: ModelHost, chosen: Method, lengths: list[int], heat: float
) -> list[Completion]:
    requests = [
        Request(prompt(n), 128, SamplingParams(temperature=heat, seed=i))
        for i, n in enumerate(lengths)
    ]
    return Engine(target, chosen, host=host).generate(requests)


def answers(done: list[Completion]) -> list[tuple[tuple[int, ...], str]]:
    return [(each.tokens, each.reason) for each in done]


@pytest.mark.parametrize("limit", LIMITS)
def test_short_contexts_are_filled_like_by_plain_decoding(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = attach(tiny_llama(context=limit), self_test=False)
    host = ModelHost(target)
    # What is left: as much as there is, half of it, and room for 3, 2 and 1 tokens.
    lengths = sorted({n for n in (1, limit // 2, limit - 3, limit - 2, limit - 1) if n > 0})
    for heat in (0.0, 1.0):
        expected = answers(decoded(target, host, method("ar"), lengths, heat))
        assert [len(tokens) for tokens, _ in expected] == [limit - n for n in lengths]
        assert {reason for _, reason in expected} <= {"context", "length"}
        assert answers(decoded(target, host, method("auto"), lengths, heat)) == expected
        with monkeypatch.context() as patch:  # whatever was measured
            drafting_pays(patch)
            done = decoded(target, host, method("auto"), lengths, heat)
        assert answers(done) == expected
        if limit >= 31:
            assert sum(each.tally.drafted for each in done) > 0


@pytest.mark.parametrize("limit", [1, 5, 64])
def test_a_prompt_that_fills_the_context_is_refused(limit: int) -> None:
    target = attach(tiny_llama(context=limit), self_test=False)
    engine = Engine(target, method("auto"), host=ModelHost(target))
    with pytest.raises(DraftwoodError, match=f"the model's context holds {limit}"):
        engine.add(Request(prompt(limit), 1))


@pytest.mark.parametrize(("limit", "reach"), list(product((3, 64, 128), (1, 2, 3, 4, 16, 64))))
def test_a_draft_model_may_have_a_shorter_context_than_its_target(
    limit: int, reach: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = attach(tiny_llama(context=limit), self_test=False)
    host = ModelHost(target)
    draft = tiny_llama(seed=1, layers=1, context=reach)
    chosen, lengths = method("auto", draft=draft), [1, limit - 2]
    assert draft.config.vocab_size == VOCAB
    expected = answers(decoded(target, host, method("ar"), lengths, 0.0))
    assert answers(decoded(target, host, chosen, lengths, 0.0)) == expected
    drafting_pays(monkeypatch)  # whatever was measured
    done = decoded(target, host, chosen, lengths, 0.0)
    assert answers(done) == expected
    if limit > 3 and reach >= 16:
        assert sum(each.tally.drafted_by_source["draft"] for each in done) > 0

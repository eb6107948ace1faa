"""Names for the scripts, and that each method keeps what it promises of a seed's tokens."""

import pytest
from click import ClickException

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.methods import method, recipes
from draftwood.sampling.sampler import SamplingParams
from runs.contenders import contenders
from tests.factories.markov_target import FakeHost, MarkovTarget

pytestmark = pytest.mark.slow

EVERY = contenders("all", ["model", "eagle3"])
PROMPT = (1, 5, 2, 7, 1, 5, 2, 7, 1)


def decode(name: str, sampling: SamplingParams) -> tuple[int, ...]:
    target = MarkovTarget(sharpness=1.0)
    engine = Engine(target, method(name), host=FakeHost(target.info))
    return engine.generate([Request(PROMPT, 60, sampling)])[0].tokens


@pytest.mark.parametrize("name", EVERY)
def test_tokens_are_plain_decodings_where_a_method_promises_it(name: str) -> None:
    greedy, sampled = SamplingParams(), SamplingParams(temperature=0.8, seed=3)
    assert method(name).same_tokens(0.0)
    assert decode(name, greedy) == decode("ar", greedy)
    # And only there: what promises only the law would otherwise be promised too little.
    assert (decode(name, sampled) == decode("ar", sampled)) == method(name).same_tokens(0.8)


def test_every_method_is_there_with_every_drafter() -> None:
    methods = {name: method(name) for name in recipes()}
    complete = {name for name, own in methods.items() if not own.missing and not own.in_target}
    assert {name.partition(":")[0] for name in EVERY} == complete
    assert len(EVERY) == len(set(EVERY))
    for name in ("talon", "traversal", "auto"):
        own = [method(text) for text in EVERY if text.partition(":")[0] == name]
        kinds = {type(m.drafters["draft"]).__name__ for m in own if "draft" in m.drafters}
        assert kinds == {"Model", "Eagle3"}
    assert "dynatree:chain=context" in EVERY
    without = contenders("all", ["model"])
    assert "eagle3" not in without
    assert "talon" in without


@pytest.mark.parametrize("drafters", [["model"], ["eagle3"], ["model", "eagle3"]])
def test_a_promise_is_of_tokens_or_of_the_law(drafters: list[str]) -> None:
    every = contenders("all", drafters)
    tokens, law = (contenders(f"{kind}:0.8", drafters) for kind in ("tokens", "law"))
    assert sorted(tokens + law) == sorted(every)
    assert tokens
    assert law
    assert contenders("law:0", drafters) == []


def test_an_unknown_promise_is_refused() -> None:
    with pytest.raises(ClickException, match="none of all"):
        contenders("walk", ["model"])

"""Log probabilities of committed tokens, and requests that draft nothing."""

import pytest
import torch

from draftwood.engine.engine import Engine
from draftwood.engine.logprobs import TokenLogprob, token_logprobs
from draftwood.engine.request import Delta, Finished, Request, Stepped
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.sampling.sampler import SamplingParams
from tests.factories.markov_target import FakeHost, MarkovTarget

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)


def expected(target: MarkovTarget, tokens: list[int], most: int) -> list[TokenLogprob]:
    """By the definition, token by token."""
    found = []
    for place in range(len(PROMPT), len(tokens)):
        probs = torch.softmax(target.logits(tokens[:place]).double(), dim=-1).log()
        order = sorted(range(len(probs)), key=lambda i: -probs[i])[:most]
        top = tuple((i, float(probs[i])) for i in order)
        found.append(TokenLogprob(tokens[place], float(probs[tokens[place]]), top))
    return found


@pytest.mark.parametrize("name", ["ar", "goose", "traversal", "auto"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_they_are_those_of_the_raw_logits(name: str, temperature: float) -> None:
    target = MarkovTarget()
    sampling = SamplingParams(temperature=temperature, top_k=4, seed=5)
    engine = Engine(target, method(name), host=FakeHost(target.info))
    events = list(engine.stream([Request(PROMPT, 40, sampling, logprobs=3)]))
    ended = events[-1]
    assert isinstance(ended, Finished)
    completion = ended.completion
    found = completion.logprobs
    assert len(found) == 40
    assert (completion.tally.accepted > 0) == (name != "ar")
    wanted = expected(target, [*PROMPT, *completion.tokens], 3)
    for one, other in zip(found, wanted, strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
        assert [t for t, _ in one.top] == [t for t, _ in other.top]
        assert [p for _, p in one.top] == pytest.approx([p for _, p in other.top], abs=1e-5)
    streamed = [x for event in events if isinstance(event, Delta) for x in event.logprobs]
    assert tuple(streamed) == found


def test_tokens_that_were_cut_off_have_none() -> None:
    logits = torch.randn(3, 8)
    found = token_logprobs(logits, [0, 2], [4, 1], 0)
    rows = torch.log_softmax(logits, dim=-1)
    assert [x.logprob for x in found] == pytest.approx([float(rows[0, 4]), float(rows[2, 1])])
    assert [x.top for x in found] == [(), ()]


def test_by_default_there_are_none() -> None:
    engine = Engine(MarkovTarget(), method("goose"))
    events = list(engine.stream([Request(PROMPT, 9)]))
    assert all(event.logprobs == () for event in events if isinstance(event, Delta))
    assert engine.generate([Request(PROMPT, 9)])[0].logprobs == ()


@pytest.mark.parametrize(("given", "says"), [(-1, "logprobs is -1"), (999, "logprobs is 999")])
def test_a_number_out_of_range_is_refused(given: int, says: str) -> None:
    with pytest.raises(DraftwoodError, match=says):
        Engine(MarkovTarget(), method("ar")).add(Request(PROMPT, 9, logprobs=given))


@pytest.mark.parametrize("name", ["goose", "talon", "auto"])
def test_a_request_that_does_not_speculate_is_decoded_plainly_beside_others(name: str) -> None:
    target = MarkovTarget()
    engine = Engine(target, method(name), host=FakeHost(target.info))
    plain, drafted = Request(PROMPT, 30, speculate=False), Request(PROMPT, 30)
    events = list(engine.stream([plain, drafted]))
    steps = {0: 0, 1: 0}
    for event in events:
        if isinstance(event, Stepped):
            steps[event.request_id] += 1
            assert event.request_id == 1 or event.stats.tree.drafted == 0
    assert steps[0] == 29
    assert steps[1] < 29
    done = [event.completion for event in events if isinstance(event, Finished)]
    assert [c.tokens for c in done] == [target.greedy(PROMPT, 30)] * 2

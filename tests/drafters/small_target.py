"""Decoding a target of few tokens, with whose output random drafts often agree."""

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion, Request
from draftwood.lab.endpoint.counting import power
from draftwood.lab.lossless.model import ModelCheck
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.policies.auto.policy import Auto
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from tests.factories.given_costs import drafting_pays
from tests.factories.tiny_llama import tiny_llama

VOCAB = 14


def small_target(layers: int = 2) -> Runner:
    """A target of :data:`VOCAB` tokens, none of which ends a text."""
    model = tiny_llama(vocab_size=VOCAB, layers=layers, eos_token_id=None, bos_token_id=None)
    return attach(model, chunk=16, self_test=False)


def check_tokens(target: Runner, spelt: str, max_batch: int, least: int = 3) -> None:
    """Compare the tokens of requests of several lengths with plain decoding's.

    Args:
        target: decodes.
        spelt: the method; sampled tokens are compared if they have to be equal.
        max_batch: requests in a batch.
        least: tokens of the drafter that are accepted at least, unless ``auto`` decodes.
    """
    for temperature in (0.0, 0.9):
        if method(spelt).same_tokens(temperature):
            plain = _decoded(target, "ar", temperature, max_batch)
            with pytest.MonkeyPatch.context() as patch:
                drafting_pays(patch)
                found = _decoded(target, spelt, temperature, max_batch)
            assert [done.tokens for done in found] == [done.tokens for done in plain]
            if isinstance(method(spelt).policy, Auto):
                # It stops drafting where little is accepted.
                assert sum(done.tally.drafted_by_source["draft"] for done in found) > 0
                # Also at the costs of this machine.
                found = _decoded(target, spelt, temperature, max_batch)
                assert [done.tokens for done in found] == [done.tokens for done in plain]
            else:
                accepted = sum(done.tally.accepted_by_source["draft"] for done in found)
                assert accepted >= least, "drafts count"


def _decoded(target: Runner, spelt: str, temperature: float, max_batch: int) -> list[Completion]:
    requests = [
        Request([5, 3, 8, 1][:n], 10 + 6 * n, SamplingParams(temperature, seed=n), eos=())
        for n in (4, 1, 3)
    ]
    engine = Engine(target, method(spelt), host=ModelHost(target), max_batch=max_batch)
    return [done.checked() for done in engine.generate(requests)]


def model_check(target: Runner) -> ModelCheck:
    """Counts of sampled continuations against the target's law."""
    return ModelCheck(target, None, [5, 3, 8], SamplingParams(1.0, 4, seed=2))


def check_law(target: Runner, chosen: Method, samples: int = 600, least: int = 100) -> None:
    """Compare sampled continuations of a method with the target's law.

    600 samples find a total variation distance of 0.15 with a probability of 0.8, and 400 samples
    one of 0.18; what differs less may pass.

    Args:
        target: decodes.
        chosen: the method.
        samples: number of continuations.
        least: drafted tokens that are accepted at least.
    """
    found = model_check(target).check_sampled("a method", chosen, samples)
    assert found.passed, str(found)
    assert found.accepted > least
    assert power(found.degrees, (samples,)).distance < (0.15 if samples >= 600 else 0.18)

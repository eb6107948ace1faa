"""Decoding a target of few tokens, with whose output random drafts often agree."""

from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion, Request
from draftwood.lab.lossless.model import ModelCheck
from draftwood.methods import method
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
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
        least: drafted tokens that are accepted at least.
    """
    for temperature in (0.0, 0.9):
        if method(spelt).same_tokens(temperature):
            found = _decoded(target, spelt, temperature, max_batch)
            plain = _decoded(target, "ar", temperature, max_batch)
            assert [done.tokens for done in found] == [done.tokens for done in plain]
            assert sum(done.tally.accepted for done in found) >= least, "drafts count"


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

"""Requests to a peer and its answers, for tests of all peers."""

from collections.abc import Sequence

from draftwood.engine.request import Request
from draftwood.lab.bench.measure import Answer, Contender
from draftwood.lab.bench.peers.hf import HuggingFace
from draftwood.models import Loaded
from draftwood.sampling.sampler import SamplingParams
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

EOS = frozenset({256})
PROMPTS = ([10, 20, 30, 10, 20, 30, 10], [7, 8])

Text = tuple[tuple[int, ...], str]
"""Tokens of an answer, and why it ended."""


def stock(context: int = 256, **changed: int) -> Loaded:
    """An untouched tiny model; ``changed`` are settings of its configuration."""
    return Loaded("tiny", tiny_llama(context=context, **changed), tiny_tokenizer(), EOS)


def answers(
    contender: Contender,
    prompts: Sequence[list[int]] = PROMPTS,
    eos: frozenset[int] = EOS,
    length: int = 24,
) -> list[Answer]:
    """Greedy answers to prompts in one group."""
    requests = [Request(prompt, max_new_tokens=length, eos=eos) for prompt in prompts]
    return contender.begin(len(prompts))(requests)


def texts(found: Sequence[Answer]) -> list[Text]:
    return [(a.completion.tokens, a.completion.reason) for a in found]


def plain(
    model: Loaded,
    prompts: Sequence[list[int]] = PROMPTS,
    eos: frozenset[int] = EOS,
    length: int = 24,
) -> list[Text]:
    """Greedy texts by transformers' plain ``generate``."""
    return texts(answers(HuggingFace().enter(model), prompts, eos, length))


def late_end(model: Loaded) -> frozenset[int]:
    """An end that the first prompt's answer reaches late, behind accepted drafts."""
    ((tokens, _), *_) = plain(model)
    return frozenset({max(set(tokens), key=tokens.index), 256})


def check_sampling(contender: Contender, model: Loaded, *, groups: bool = True) -> None:
    """The seed decides, and one candidate is the greedy token.

    ``groups``: the requests of a group have seeds of their own.
    """
    decode = contender.begin(2)

    def drawn(*seeds: int, top_k: int = 0) -> list[tuple[int, ...]]:
        params = [SamplingParams(temperature=1.0, top_k=top_k, seed=seed) for seed in seeds]
        found = decode([Request(PROMPTS[0], max_new_tokens=12, sampling=p) for p in params])
        return [answer.completion.tokens for answer in found]

    assert drawn(1) == drawn(1) != drawn(2)
    if groups:
        assert drawn(1, 2) == [*drawn(1), *drawn(2)]
    assert drawn(3, top_k=1) == [plain(model, PROMPTS[:1], frozenset(), 12)[0][0]]

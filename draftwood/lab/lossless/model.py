"""A method against plain decoding on a real model: counts of samples, and greedy tokens.

The method runs in the engine with its own drafters and budget, many requests in a batch, each with
its own seed. The reference comes from plain forwards of the target over whole prefixes, without a
tree. Samples can refute losslessness; they cannot prove it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import ClassVar

import torch
from transformers import PreTrainedTokenizerBase

from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion, Request
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.chi_square import chi_square
from draftwood.lab.lossless.tiny import Prefix
from draftwood.lab.rounding import ROUNDINGS
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.protocols import Needs, Target, TargetOutput
from draftwood.sampling.distributions import TreeDistributions
from draftwood.sampling.history import History
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.tree import ROOT, TreeBuilder

LENGTH = 3
"""Tokens of a counted continuation: the first is the prefill's, trees decide the others."""

DEPTH = 16
"""Further tokens that a request could generate, so that its trees are as deep as in decoding."""

LEAST_P = 1e-3
"""A p-value below this is a failure. One of a thousand lossless methods fails, too."""

NO_ACCEPTANCE = "no drafted token was accepted, so this shows little: try another prompt"
LOW_PRECISION = "rounds enough to move tokens in and out of the top k: try --dtype float32"
GREEDY_TOKENS = 64
BATCH = 64


@dataclass(frozen=True)
class SampledCheck:
    """Counts of sampled continuations against their exact distribution.

    Attributes:
        subject: the method.
        passed: whether the p-value is above 1e-3.
        samples: number of continuations.
        tokens: tokens of each.
        statistic: chi-square; infinite if a continuation has probability 0.
        degrees: degrees of freedom.
        p_value: p-value of the statistic.
        accepted: number of accepted drafted tokens.
        dtype: dtype of the target.
    """

    kind: ClassVar = "sampled"

    subject: str
    passed: bool
    samples: int
    tokens: int
    statistic: float
    degrees: int
    p_value: float
    accepted: int
    dtype: str

    def __str__(self) -> str:
        drafted = f"{self.accepted} drafted tokens accepted" if self.accepted else NO_ACCEPTANCE
        coarse = "" if self.passed or self.dtype == "float32" else f"; {self.dtype} {LOW_PRECISION}"
        return (
            f"sampled: {self.samples} continuations of {self.tokens} tokens, chi-square "
            f"{self.statistic:.1f} with {self.degrees} degrees of freedom, p = {self.p_value:.2g} "
            f"(fails below {LEAST_P}); {drafted}{coarse}"
        )


@dataclass(frozen=True)
class GreedyCheck:
    """Greedy tokens against plain decoding's.

    Attributes:
        subject: the method.
        passed: whether they are equal up to the first near tie.
        tokens: number of tokens of plain decoding.
        differs: index of the first difference; None if all are equal.
        gap: difference of the two largest logits there; None likewise.
    """

    kind: ClassVar = "greedy"

    subject: str
    passed: bool
    tokens: int
    differs: int | None = None
    gap: float | None = None

    def __str__(self) -> str:
        if self.differs is None:
            return f"greedy: {self.tokens} tokens, all as plain decoding's"
        found = f"greedy: token {self.differs} of {self.tokens} is not plain decoding's"
        if self.passed:
            return f"{found}, but the two best logits differ by rounding only ({self.gap:.1e})"
        return f"{found}, where the two best logits are {self.gap:.1e} apart"


def check_countable(sampling: SamplingParams) -> None:
    """Make sure that the samples have few enough outcomes to be counted.

    Raises:
        DraftwoodError: they have too many.
    """
    if not sampling.temperature or not 2 <= sampling.top_k <= 16:
        raise DraftwoodError(
            f"temperature {sampling.temperature} and top_k {sampling.top_k} cannot be counted: "
            "give a temperature above 0 and a top_k from 2 to 16"
        )


class ModelCheck:
    """Checks of methods on a model and a prompt.

    Args:
        target: the model, attached.
        tokenizer: the target's, if there is one.
        prompt: token ids.
        sampling: sampling parameters that :func:`check_countable` accepts; requests get its seed
            and the following ones.

    Raises:
        DraftwoodError: the prompt leaves no room.
    """

    def __init__(
        self,
        target: Target,
        tokenizer: PreTrainedTokenizerBase | None,
        prompt: Sequence[int],
        sampling: SamplingParams,
    ) -> None:
        if target.info.context_limit - len(prompt) <= LENGTH:
            raise DraftwoodError(
                f"the prompt has {len(prompt)} tokens and the model's context holds "
                f"{target.info.context_limit}: shorten the prompt"
            )
        self._target = target
        self._tokenizer = tokenizer
        self._host = ModelHost(target, tokenizer)
        self._prompt = tuple(prompt)
        self._sampling = sampling

    @cached_property
    def law(self) -> dict[Prefix, float]:
        """Probabilities of the next tokens by the target alone, one plain forward a prefix."""
        found: dict[Prefix, float] = {(): 1.0}
        for _ in range(LENGTH):
            longer: dict[Prefix, float] = {}
            for (tokens, share), p in zip(found.items(), self._after(list(found)), strict=True):
                for token in p.nonzero()[:, 0].tolist():
                    longer[*tokens, token] = share * float(p[token])
            found = longer
        return found

    @cached_property
    def plain(self) -> tuple[int, ...]:
        """Greedy tokens of plain decoding."""
        return self._greedy(method("ar"))

    def check_sampled(self, subject: str, chosen: Method, samples: int) -> SampledCheck:
        """Draw continuations with a method and count them.

        Raises:
            DraftwoodError: there are too few samples, or the method does not fit the target.
        """
        seeds = ((self._sampling.seed + i) % SEED_LIMIT for i in range(samples))
        settings = [replace(self._sampling, seed=seed) for seed in seeds]
        # Behind an end token too a continuation goes on, as in the law.
        requests = [replace(self._request(each, LENGTH, DEPTH), eos=()) for each in settings]
        done = self._decode(chosen, requests)
        test = chi_square(Counter(completion.tokens for completion in done), self.law)
        return SampledCheck(
            subject,
            test.p_value >= LEAST_P,
            samples,
            LENGTH,
            test.statistic,
            test.degrees,
            test.p_value,
            sum(completion.tally.accepted for completion in done),
            str(self._target.info.dtype).removeprefix("torch."),
        )

    def check_greedy(self, subject: str, chosen: Method) -> GreedyCheck:
        """Compare a method's greedy tokens with plain decoding's.

        Raises:
            DraftwoodError: the method does not fit the target.
        """
        total = len(self.plain)
        for i, (found, wanted) in enumerate(zip_longest(self._greedy(chosen), self.plain)):
            if found != wanted:
                logits = self._rows([self.plain[:i]])[0].logits[-1].float()
                (first, second), tokens = (best.tolist() for best in logits.topk(2))
                gap = first - second
                rounding = torch.finfo(self._target.info.dtype).eps * float(logits.abs().max())
                tied = found in tokens and gap <= ROUNDINGS * rounding
                return GreedyCheck(subject, tied, total, i, gap)
        return GreedyCheck(subject, True, total)

    def _greedy(self, chosen: Method) -> tuple[int, ...]:
        return self._decode(chosen, [self._request(SamplingParams(), GREEDY_TOKENS)])[0].tokens

    def _request(self, sampling: SamplingParams, tokens: int, further: int = 0) -> Request:
        """A request that ends after ``tokens`` tokens with room for ``further`` ones."""
        end = len(self._prompt) + tokens
        return Request(
            self._prompt,
            tokens + further,
            sampling,
            should_stop=lambda ids: ids.shape[1] >= end,
        )

    def _decode(self, chosen: Method, requests: Sequence[Request]) -> list[Completion]:
        engine = Engine(self._target, chosen, self._tokenizer, host=self._host)
        return [completion.checked() for completion in engine.generate(requests)]

    def _after(self, prefixes: Sequence[Prefix]) -> list[torch.Tensor]:
        """p after the prompt and each prefix, float64 ``[V]``."""
        sampler = Sampler(self._sampling, len(self._prompt))
        found = []
        for prefix, rows in zip(prefixes, self._rows(prefixes), strict=True):
            tokens = (*self._prompt, *prefix)
            root = TreeBuilder(tokens[-1]).build()
            p = TreeDistributions(rows, root, sampler, History(tokens)).probabilities([ROOT])[0]
            found.append(p.double() / p.double().sum())
        return found

    def _rows(self, prefixes: Sequence[Prefix]) -> list[TargetOutput]:
        """The target output at the end of the prompt and each prefix."""
        found: list[TargetOutput] = []
        for start in range(0, len(prefixes), BATCH):
            texts = [(*self._prompt, *prefix) for prefix in prefixes[start : start + BATCH]]
            slots = [self._target.open(len(text)) for text in texts]
            found += self._target.prefill(slots, texts, Needs())
            for slot in slots:
                self._target.release(slot)
        return found

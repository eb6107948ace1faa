"""Samples of short continuations have the reference's distribution.

Many continuations of a few tokens are sampled at temperature 1, from the few likeliest tokens if
the server knows ``top_k``, and their texts are counted. With a local model they are tested against
its probabilities. A reference that reports log probabilities gives the probabilities of its
samples, which halves the noise; whether it samples by them is tested on half of its own samples.
Otherwise the two samples are compared with each other.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.answer import Choice
from draftwood.lab.endpoint.checks._common import Check, Cost, Size, attempted
from draftwood.lab.endpoint.client import Refused, Stopped
from draftwood.lab.endpoint.comparison import Comparison
from draftwood.lab.endpoint.counting import (
    LEAST_P,
    Key,
    against_distribution,
    chance_of_one,
    completed,
    key_of,
    power,
    two_samples,
)
from draftwood.lab.endpoint.distribution import distribution_of
from draftwood.lab.endpoint.result import Outcome, Result
from draftwood.lab.endpoint.server import Server
from draftwood.lab.lossless.chi_square import ChiSquare

NAME = "distribution"
LENGTH = 3
"""Tokens of a counted continuation: the first is the prefill's, drafts decide the others."""

_TOPS = 5
"""Likeliest tokens whose log probabilities are asked for if all tokens are sampled from."""

_KNOWN = 0.5
"""Least probability of all texts whose probabilities are known, so that these are compared with."""


def _cost(size: Size) -> Cost:
    return Cost(size.samples * size.sides, size.samples * size.sides * LENGTH)


def _run(run: Comparison) -> Iterator[Result]:
    if run.settings.samples:
        yield attempted(NAME, "", lambda: _distribution(run))


def _distribution(run: Comparison) -> Result:
    top_k = _top_k(run)
    samples = _samples(run, run.endpoint, top_k, 0, None)
    counts = Counter(map(_key, samples))
    try:
        test = _against(run, counts, top_k)
    except Stopped:
        raise
    except DraftwoodError as error:
        return Result(NAME, "", "not checked", str(error))
    found = test.found
    figures = {
        "samples": float(len(samples)),
        "statistic": found.statistic,
        "degrees": float(found.degrees),
        "p_value": found.p_value,
        "distance_found": test.power,
    }
    words = (
        f"{len(samples)} continuations of {LENGTH} tokens ({_kept(top_k)}) against "
        f"{test.against}, chi-square {found.statistic:.1f} with {found.degrees} degrees of "
        f"freedom, p = {found.p_value:.2g} (fails below {LEAST_P:g}); {test.words}"
    )
    passed = found.p_value >= LEAST_P
    requests = () if passed else run.requests(run.settings.sampled_prompt, LENGTH, **_fields(top_k))
    outcome: Outcome = "passed" if passed else "failed"
    return Result(NAME, "", outcome, words, figures=figures, requests=requests)


@dataclass(frozen=True)
class _Test:
    """A test, what it compares with, and its power."""

    found: ChiSquare
    against: str
    power: float
    words: str


def _against(run: Comparison, counts: Counter[Key], top_k: int) -> _Test:
    """The test of the endpoint's counts.

    Raises:
        DraftwoodError: there are too few outcomes, or samples, to count.
    """
    if not isinstance(run.reference, Server):
        least = 1e-6 if top_k else 1 / run.settings.samples
        distribution = run.reference.distribution(run.settings.sampled_prompt, LENGTH, least, top_k)
        return _known(counts, completed(distribution), "the model's probabilities")
    tops = run.tops(run.reference)
    enough = tops is not None and tops >= top_k
    tops = min(tops or 0, top_k + 1 if top_k else _TOPS) if enough else None
    plain = _samples(run, run.reference, top_k, run.settings.samples, tops)
    half = len(plain) // 2
    distribution = distribution_of(plain, LENGTH, top_k)
    if sum(distribution.values()) >= _KNOWN and _follows(plain[:half], plain[half:], top_k):
        return _known(counts, completed(distribution), "the reference's probabilities")
    others = Counter(map(_key, plain))
    found = two_samples(counts, others)
    strength = power(found.degrees, (sum(counts.values()), sum(others.values())))
    return _Test(found, "as many of the reference", strength.distance, str(strength))


def _known(counts: Counter[Key], distribution: dict[Key, float], against: str) -> _Test:
    share = 1 - distribution[None]
    words = f"{against} of {len(distribution) - 1} texts ({share:.2f} of all)"
    try:
        found = against_distribution(counts, distribution)
    except DraftwoodError:
        chance = chance_of_one(counts, distribution)
        if chance >= LEAST_P:
            raise
        return _Test(ChiSquare(math.inf, 1, chance), words, 1.0, "all samples are one text")
    strength = power(found.degrees, (sum(counts.values()),))
    return _Test(found, words, strength.distance, str(strength))


def _follows(first: Sequence[Choice], second: Sequence[Choice], top_k: int) -> bool:
    """Whether the probabilities of some samples are those that the others were sampled by."""
    try:
        test = against_distribution(
            Counter(map(_key, second)), completed(distribution_of(first, LENGTH, top_k))
        )
    except DraftwoodError:
        return False
    return test.p_value >= LEAST_P


def _top_k(run: Comparison) -> int:
    """How many tokens to sample from; 0: all, as a side does not take the field."""
    servers = [side for side in (run.endpoint, run.reference) if isinstance(side, Server)]
    able = all("top_k" in each.abilities.neutral for each in servers)
    return run.settings.top_k if able else 0


def _fields(top_k: int) -> dict[str, Any]:
    return {"temperature": 1.0, **({"top_k": top_k} if top_k else {})}


def _kept(top_k: int) -> str:
    return f"top_k={top_k}" if top_k else "all tokens"


def _samples(
    run: Comparison, side: Server, top_k: int, first: int, tops: int | None
) -> list[Choice]:
    """Samples of a server, each with a seed of its own if it takes seeds."""
    prompt = run.settings.sampled_prompt
    seeds = range(run.settings.seed + first, run.settings.seed + first + run.settings.samples)

    def ask(**seed: int) -> Choice:
        return side.ask(prompt, LENGTH, tops=tops, **_fields(top_k), **seed).first

    try:
        found = [ask(seed=seeds[0])]
    except Refused:
        return run.each(lambda _: ask(), seeds)
    return found + run.each(lambda seed: ask(seed=seed), seeds[1:])


def _whole(choice: Choice) -> bool:
    return choice.reason in (None, "length")


def _key(choice: Choice) -> Key:
    return key_of(choice.text, whole=_whole(choice))


CHECK = Check(NAME, _cost, _run)

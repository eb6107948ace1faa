"""The distribution of short continuations, from log probabilities that a server reports.

The samples of a server visit prefixes, and report the likeliest tokens after each. Where a request
keeps the ``k`` likeliest tokens, these are all tokens that can follow, with their exact
probabilities; where it keeps all, the rest has the probability that is left.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from draftwood.lab.endpoint.answer import Choice, Token, spelt

Path: TypeAlias = tuple[str, ...]
"""Texts of the tokens of a continuation."""

_SPECIAL = "<["
"""How special tokens begin, which end a text or do not show in it. A continuation with one of them
counts among all others, as does one with a token that is no whole character."""


def distribution_of(samples: Sequence[Choice], length: int, top_k: int) -> dict[str, float]:
    """Probabilities of the texts of continuations whose every prefix was sampled.

    Args:
        samples: with log probabilities, sampled at temperature 1.
        length: tokens of a continuation.
        top_k: likeliest tokens that were kept; 0: all.

    Returns:
        Probability by text. The sum is at most 1 if log probabilities are those of the samples.
    """
    after: dict[Path, dict[str, float]] = {}
    for choice in samples:
        texts = tuple(token.text for token in choice.tokens)
        if not choice.text.startswith("".join(texts[:length])):
            continue  # tokens are spelled otherwise than they show in a text
        for number, token in enumerate(choice.tokens[:length]):
            after.setdefault(texts[:number], {}).update(_probabilities(token, top_k))
    distribution: dict[str, float] = {}
    for path, probability in _continuations(after, length):
        text = "".join(path)
        distribution[text] = distribution.get(text, 0.0) + probability
    return distribution


def _probabilities(token: Token, top_k: int) -> Mapping[str, float]:
    """Probabilities of the tokens that may stand at a token's place, as far as they are known."""
    found = {text: math.exp(logprob) for text, logprob in (*token.top, (token.text, token.logprob))}
    if not top_k:
        return found
    kept = sorted(found.items(), key=lambda each: -each[1])[:top_k]
    total = sum(share for _, share in kept)
    return {text: share / total for text, share in kept}


def _continuations(
    after: Mapping[Path, Mapping[str, float]], length: int, path: Path = (), share: float = 1.0
) -> Iterator[tuple[Path, float]]:
    if len(path) == length:
        yield path, share
        return
    for text, probability in after.get(path, {}).items():
        if text and text[0] not in _SPECIAL and spelt(text) == text.encode():
            yield from _continuations(after, length, (*path, text), share * probability)

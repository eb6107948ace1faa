"""What a token is chosen by under a penalty, from the log probability that a server reports.

Servers report log probabilities before penalties. Two tokens are compared, so that a constant does
not matter: a presence or frequency penalty can be subtracted from log probabilities. A repetition
penalty divides logits, which an API does not tell: only tokens that are both new are compared.
Some servers count the prompt's tokens for presence and frequency (llama.cpp), others do not (vLLM),
so that a token whose text is in the prompt has no known score where this matters.
"""

from collections.abc import Sequence

from draftwood.lab.endpoint.answer import Token
from draftwood.lab.endpoint.divergence import Score


def additive(prompt: str, presence: float, frequency: float) -> Score:
    """What tokens are chosen by under a presence and a frequency penalty."""

    def score(text: str, logprob: float, before: Sequence[Token]) -> float | None:
        times = sum(each.text == text for each in before)
        if text.strip() in prompt and (frequency or not times):
            return None
        return logprob - presence * (times > 0) - frequency * times

    return score


def repetition(prompt: str) -> Score:
    """What tokens are chosen by under a repetition penalty, if they are new."""

    def score(text: str, logprob: float, before: Sequence[Token]) -> float | None:
        occurred = text.strip() in prompt or any(each.text == text for each in before)
        return None if occurred else logprob

    return score

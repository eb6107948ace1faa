"""What a token is chosen by under a penalty, from the log probability that a server reports.

Servers report log probabilities before penalties. Two tokens are compared, so that a constant does
not matter: a presence or frequency penalty can be subtracted from log probabilities. A repetition
penalty divides logits, which an API does not tell: only tokens that are both new are compared. For
presence and frequency some servers count the prompt's tokens (llama.cpp), others do not (vLLM).
"""

from collections.abc import Sequence

from draftwood.lab.endpoint.answer import Token
from draftwood.lab.endpoint.divergence import Score


def additive(prompt: str, presence: float, frequency: float) -> Score:
    """What tokens are chosen by under a presence and a frequency penalty.

    Without the prompt's tokens, and with them, as far as the prompt's text shows them.
    """

    def score(text: str, logprob: float, before: Sequence[Token]) -> tuple[float, ...]:
        times = sum(each.text == text for each in before)
        counts = (times, times + prompt.count(text.strip() or text))
        return tuple(logprob - presence * (n > 0) - frequency * n for n in counts)

    return score


def repetition(prompt: str) -> Score:
    """What tokens are chosen by under a repetition penalty, if they are new."""

    def score(text: str, logprob: float, before: Sequence[Token]) -> tuple[float, ...]:
        occurred = text.strip() in prompt or any(each.text == text for each in before)
        return () if occurred else (logprob,)

    return score

"""Sampling parameters of a request, validated."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real

from draftwood.errors import DraftwoodError, integer
from draftwood.sampling.noise import SEED_LIMIT

MIN_TEMPERATURE = MIN_PENALTY = 1e-5
"""Lowest temperature above 0, and repetition penalty: logits divided by less may leave float32."""


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of a request. The defaults are greedy decoding.

    Attributes:
        temperature: divides the logits (1e-5 or more); 0 takes the argmax.
        top_k: keep the k largest logits (0: all).
        top_p: keep the smallest set of tokens with at least this probability, in (0, 1].
        min_p: drop tokens whose probability is below this share of the largest, in [0, 1].
        repetition_penalty: divides positive and multiplies negative logits of all tokens in the
            text, prompt included (CTRL, Keskar et al. 2019), 1e-5 or more; 1 is off.
        presence_penalty: subtracted from the logit of every token generated so far.
        frequency_penalty: subtracted from a token's logit once per time it was generated.
        logit_bias: added to the logits of these token ids.
        banned_tokens: token ids that are never chosen.
        seed: of the request's random numbers, in [0, 2**64).

    ``top_k``, ``top_p`` and ``min_p`` do nothing at temperature 0, as in ``generate``.

    Raises:
        DraftwoodError: a value has the wrong type or is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    # A dict has no hash. Equal parameters still hash equal without it.
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    banned_tokens: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise DraftwoodError("logit_bias must map token ids to numbers")
        if not isinstance(self.banned_tokens, (tuple, list)):
            raise DraftwoodError("banned_tokens must be a tuple of token ids")
        normal = {
            **{name: _in_range(name, getattr(self, name)) for name in _RANGES},
            "presence_penalty": _real("presence_penalty", self.presence_penalty),
            "frequency_penalty": _real("frequency_penalty", self.frequency_penalty),
            "logit_bias": {
                _token("logit_bias", token): _real("each logit_bias", bias)
                for token, bias in self.logit_bias.items()
            },
            "banned_tokens": tuple(_token("banned_tokens", token) for token in self.banned_tokens),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)

    def validate(self, vocab_size: int) -> None:
        """Check the token ids against a vocabulary.

        Raises:
            DraftwoodError: an id lies outside it.
        """
        for name in ("logit_bias", "banned_tokens"):
            for token in getattr(self, name):
                if token >= vocab_size:
                    raise DraftwoodError(
                        f"{name} names token {token}, but the vocabulary ends at {vocab_size - 1}"
                    )


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise DraftwoodError(f"{name} must be a finite number, but is {value!r}")
    return float(value)


_RANGES: dict[str, tuple[Callable[[str, object], float], str, Callable[[float], bool]]] = {
    "temperature": (
        _real,
        f"0 (greedy) or at least {MIN_TEMPERATURE}",
        lambda value: value == 0 or value >= MIN_TEMPERATURE,
    ),
    "top_k": (integer, "0 (off) or more", lambda value: value >= 0),
    "top_p": (_real, "in (0, 1]", lambda value: 0 < value <= 1),
    "min_p": (_real, "in [0, 1]", lambda value: 0 <= value <= 1),
    "repetition_penalty": (_real, f"at least {MIN_PENALTY}", lambda value: value >= MIN_PENALTY),
    "seed": (integer, "in [0, 2**64)", lambda value: 0 <= value < SEED_LIMIT),
}
"""Type and range of the parameters that have a range."""


def _in_range(name: str, value: object) -> float:
    number, words, allowed = _RANGES[name]
    found = number(name, value)
    if not allowed(found):
        raise DraftwoodError(f"{name} must be {words}, but is {found}")
    return found


def _token(name: str, value: object) -> int:
    token = integer(f"each token id of {name}", value)
    if token < 0:
        raise DraftwoodError(f"each token id of {name} must be 0 or more, but one is {token}")
    return token

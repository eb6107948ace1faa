"""Philox4x64-10 and the exponential numbers of a request, as operations on tensors of any device.

The integers are those of ``numpy.random.Philox``. Source: Salmon et al., *Parallel random numbers:
as easy as 1, 2, 3* (2011). PyTorch has no unsigned 64-bit arithmetic on every device, so that
int64, which wraps around, stands in for it.
"""

import torch

_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_INCREMENTS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_ROUNDS = 10
_LOW = 0xFFFFFFFF

WORDS = 4
"""64-bit words of a block."""


def signed(number: int) -> int:
    """The int64 with the bits of an unsigned 64-bit integer."""
    number &= 2**64 - 1
    return number - 2**64 if number >= 2**63 else number


def exponentials(seeds: torch.Tensor, positions: torch.Tensor, size: int) -> torch.Tensor:
    """The Exp(1) variates of :meth:`draftwood.sampling.noise.RequestNoise.exponentials`.

    Args:
        seeds: int64 ``[r]``, see :func:`signed`.
        positions: int64 ``[r]``, of the drawn tokens.
        size: of the vocabulary.

    Returns:
        float64 ``[r, size]`` on their device. The logarithm may be rounded otherwise than NumPy's.
    """
    count = -(-size // WORDS)
    # NumPy counts up before it makes a block.
    blocks = torch.arange(1, count + 1, device=positions.device)[None]
    words = philox(blocks, positions[:, None], seeds[:, None])
    numbers = words.reshape(len(positions), -1)[:, :size] >> 12 & 2**52 - 1
    return (numbers.double() + 0.5).mul_(2.0**-52).log_().neg_()


def philox(first: torch.Tensor, third: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Random words int64 ``[.., 4]`` of counters ``(first, 0, third, 0)`` and keys ``(key, 0)``.

    The arguments are int64 and broadcast.
    """
    a, c = first, third
    b = d = torch.zeros_like(third)
    for i in range(_ROUNDS):
        high, low = _product(a, _MULTIPLIERS[0])
        other_high, other_low = _product(c, _MULTIPLIERS[1])
        a = other_high ^ b ^ (key + signed(i * _INCREMENTS[0]))
        c = high ^ d ^ signed(i * _INCREMENTS[1])
        b, d = other_low, low
    shape = (a ^ c).shape
    return torch.stack([each.expand(shape) for each in (a, b, c, d)], dim=-1)


def _product(x: torch.Tensor, by: int) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 64 bits of an unsigned product."""
    by_low, by_high = by & _LOW, by >> 32
    x_low, x_high = x & _LOW, x >> 32 & _LOW
    carried = x_high * by_low + (x_low * by_low >> 32 & _LOW)
    crossed = x_low * by_high + (carried & _LOW)
    high = x_high * by_high + (carried >> 32 & _LOW) + (crossed >> 32 & _LOW)
    return high, x * signed(by)

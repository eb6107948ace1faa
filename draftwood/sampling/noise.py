"""Counter-based random numbers of one request.

Every number is a pure function of the request's seed, a stream and an absolute position, computed
with Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). So results
depend neither on the batch nor on how many numbers earlier steps used. Plain decoding and every
drafting method draw a token with the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

SEED_LIMIT = 2**64
"""Seeds are integers in ``[0, SEED_LIMIT)``."""


class Stream(IntEnum):
    """The purpose of a number; streams never overlap."""

    TOKEN = 0
    ACCEPT = 1
    DRAFT = 2


class _Numbers:
    """One stream's numbers, addressed by two counters."""

    __slots__ = ("_bits", "_counter", "_generator", "_state")

    def __init__(self, seed: int, stream: Stream) -> None:
        self._bits = np.random.Philox(key=_key(seed, stream))
        self._generator = np.random.Generator(self._bits)
        # Setting the state costs a tenth of building a generator. The buffer of a fresh state is
        # marked as used, so the number depends on the counter alone.
        self._state: Any = self._bits.state
        self._counter = self._state["state"]["counter"]

    def at(self, position: int, lane: int) -> np.random.Generator:
        self._counter[:] = (0, lane, position, 0)
        self._bits.state = self._state
        return self._generator

    def words(self, position: int, size: int) -> NDArray[np.uint64]:
        self.at(position, 0)
        found: NDArray[np.uint64] = self._bits.random_raw(size)
        return found


class _Perturbed:
    """Gumbel variates of some tokens, by position; holds the tokens, whose identity counts."""

    __slots__ = ("tokens", "variates")

    def __init__(self, tokens: NDArray[np.int64]) -> None:
        self.tokens = tokens
        self.variates: dict[int, NDArray[np.float32]] = {}


def _key(seed: int, stream: Stream) -> Any:
    return np.array([seed, int(stream)], dtype=np.uint64)


class RequestNoise:
    """The random numbers of one step of one request.

    Implements :class:`draftwood.protocols.Noise` and :class:`draftwood.protocols.DraftNoise`.

    Args:
        seed: the request's, in ``[0, 2**64)``.
        position: absolute index of the root token, counted from the prompt's first token at 0; it
            is set anew for the next step.
    """

    def __init__(self, seed: int, position: int = 0) -> None:
        self._seed = seed
        self.position = position
        self._perturbed: dict[int, _Perturbed] = {}

    # Created on first use: greedy decoding uses neither.
    @cached_property
    def _token(self) -> _Numbers:
        return _Numbers(self._seed, Stream.TOKEN)

    @cached_property
    def _accept(self) -> _Numbers:
        return _Numbers(self._seed, Stream.ACCEPT)

    def address(self, depth: int) -> tuple[int, int]:
        """Seed and position of the numbers that draw the token after a node at ``depth``."""
        return self._seed, self.position + depth + 1

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        """Draw the token after a node at ``depth`` in proportion to ``weights`` ``[V]``, all >= 0.

        This is the Gumbel-max trick: the argmax of ``weights / exponentials``. An inverse
        cumulative sum would be simpler. But a rounding error in p moves all its V boundaries, and
        some draws with them. Here an error matters only if the two largest keys nearly tie.
        """
        return int(self.gumbel_keys(depth, weights).argmax())

    def gumbel_keys(self, depth: int, weights: torch.Tensor) -> torch.Tensor:
        """The keys of :meth:`choose`, float64 ``[V]``: exp of the perturbed log-weights."""
        return weights / self.exponentials([depth], len(weights), weights.device)[0]

    def exponentials(self, depths: Sequence[int], size: int, device: torch.device) -> torch.Tensor:
        """The Exp(1) variates with which :meth:`choose` draws among ``size`` tokens.

        They depend on the seed and the absolute index of the drawn token, ``position + depth + 1``,
        only. A smaller ``size`` gives a prefix of a larger one. On a device other than the CPU the
        last bit of a logarithm may differ.

        Returns:
            float64 ``[len(depths), size]`` on the device.
        """
        import torch

        from draftwood.sampling import philox

        if device.type == "cpu":
            # NumPy's generator takes a tenth of the tensor operations' time.
            words = [self._token.words(self.position + depth + 1, size) for depth in depths]
            uniform = ((np.stack(words) >> np.uint64(12)) + 0.5) * 2.0**-52  # exact, in (0, 1)
            return torch.from_numpy(-np.log(uniform))
        # An upload would wait for the device.
        positions = torch.cat(
            [torch.full((1,), self.address(depth)[1], device=device) for depth in depths]
        )
        seeds = torch.full_like(positions, philox.signed(self._seed))
        return philox.exponentials(seeds, positions, size)

    def perturbations(self, depth: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Gumbel variates of some tokens: ``-log`` of the :meth:`exponentials` at a depth.

        Args:
            depth: of the node that they follow.
            tokens: ``[n]``; negative: no token, whose variate is -inf.

        Returns:
            float32 ``[n]``, read only; kept for the next steps, which ask for the same positions.
        """
        position = self.position + depth + 1
        # One for each drafter with a vocabulary of its own.
        kept = self._perturbed.get(id(tokens))
        if kept is None:
            kept = self._perturbed[id(tokens)] = _Perturbed(tokens)
        found = kept.variates.get(position)
        if found is None:
            found = self._made(position, tokens)
            beyond = (each for each in kept.variates.items() if each[0] > self.position)
            kept.variates = {**dict(beyond), position: found}
        return found

    def _made(self, position: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        words = self._token.words(position, int(tokens.max(initial=0)) + 1)
        uniform = ((words[tokens] >> np.uint64(12)) + 0.5) * 2.0**-52
        found: NDArray[np.float64] = -np.log(-np.log(uniform))
        found[tokens < 0] = -np.inf
        return found.astype(np.float32)

    def accepts(self, node: int, probability: float) -> bool:
        """Whether to accept ``node`` with this probability."""
        if not 0 < probability < 1:
            return probability > 0
        return float(self._accept.at(self.position, node).random()) < probability

    def draft(self, lane: int = 0) -> np.random.Generator:
        """A fresh generator for sampling a draft.

        Lanes (for example nodes of a tree) are independent. A second call with the same lane
        returns the same numbers.
        """
        counter = np.array([0, lane, self.position, 0], dtype=np.uint64)
        bits = np.random.Philox(key=_key(self._seed, Stream.DRAFT), counter=counter)
        return np.random.Generator(bits)

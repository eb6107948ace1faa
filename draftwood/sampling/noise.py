"""Counter-based random numbers of one request.

Knows nothing of trees, models or batches: every number is a pure function of the request's seed,
a stream and an absolute position, computed with Philox4x64-10 (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"). So a result depends neither on the batch a request ran in nor on how
many numbers a step consumed, and plain decoding draws each token with the number that every
drafting method draws it with.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError

if TYPE_CHECKING:
    import torch

SEED_LIMIT = 2**64
"""Seeds are integers in ``[0, SEED_LIMIT)``."""


class Stream(IntEnum):
    """What a number is for; streams never overlap."""

    TOKEN = 0
    ACCEPT = 1
    DRAFT = 2


class _Numbers:
    """One stream's numbers, addressed by two counters."""

    __slots__ = ("_bits", "_counter", "_generator", "_state")

    def __init__(self, seed: int, stream: Stream) -> None:
        self._bits = np.random.Philox(key=_key(seed, stream))
        self._generator = np.random.Generator(self._bits)
        # Setting the state costs a tenth of building a generator. numpy's own fresh state says
        # that its buffer is spent, so the number comes from the counter alone.
        self._state: Any = self._bits.state
        self._counter = self._state["state"]["counter"]

    def at(self, position: int, lane: int) -> np.random.Generator:
        self._counter[:] = (0, lane, position, 0)
        self._bits.state = self._state
        return self._generator


def _key(seed: int, stream: Stream) -> Any:
    return np.array([seed, int(stream)], dtype=np.uint64)


class RequestNoise:
    """The random decisions of one step of one request.

    Implements :class:`draftwood.protocols.Noise` and :class:`draftwood.protocols.DraftNoise`.
    ``seed`` is the request's, in ``[0, 2**64)``. ``position`` is the absolute index of the root
    token, prompt included and counted from 0; :meth:`move` sets the next step's.

    Raises:
        DraftwoodError: the seed or the position is out of range.
    """

    def __init__(self, seed: int, position: int = 0) -> None:
        if not 0 <= seed < SEED_LIMIT:
            raise DraftwoodError(f"seed must be in [0, 2**64), but is {seed}")
        self._seed = seed
        self._position = 0
        self.move(position)

    # Made when first asked: greedy decoding uses none of them.
    @cached_property
    def _token(self) -> _Numbers:
        return _Numbers(self._seed, Stream.TOKEN)

    @cached_property
    def _accept(self) -> _Numbers:
        return _Numbers(self._seed, Stream.ACCEPT)

    @property
    def position(self) -> int:
        """Absolute index of the root token."""
        return self._position

    def move(self, position: int) -> None:
        """Key everything that follows by a root at ``position``."""
        if not 0 <= position < 2**62:
            raise DraftwoodError(f"a root's position must be in [0, 2**62), but is {position}")
        self._position = position

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        """The token that follows a node at ``depth``, drawn in proportion to ``weights``, ``[V]``.

        The winner of a race of exponential clocks with rates ``weights``, none negative. An inverse
        cumulative sum would be simpler, but a rounding error in p moves every one of its V
        boundaries a little, and some draw falls between; here an error matters only where the two
        fastest clocks nearly tie.
        """
        return int(self.speeds(depth, weights).argmax())

    def speeds(self, depth: int, weights: torch.Tensor) -> torch.Tensor:
        """How fast each token runs in :meth:`choose`'s race, float64 ``[V]``."""
        import torch

        clocks = torch.from_numpy(self.clocks(depth, len(weights)))
        return weights / clocks.to(weights.device)

    def clocks(self, depth: int, size: int) -> NDArray[np.float64]:
        """The exponential clocks of :meth:`choose`'s race among ``size`` tokens, ``[size]``.

        They are keyed by the absolute index of the token that is drawn, ``position + depth + 1``,
        and by nothing else; fewer of them are the first of more.
        """
        clocks = self._token.at(self._position + depth + 1, 0).standard_exponential(size)
        np.maximum(clocks, np.finfo(np.float64).tiny, out=clocks)
        return clocks

    def accepts(self, node: int, probability: float) -> bool:
        """Whether to accept ``node`` of the tree whose root is at ``position``."""
        if not 0 < probability < 1:
            return probability > 0
        return float(self._accept.at(self._position, node).random()) < probability

    def draft(self, lane: int = 0) -> np.random.Generator:
        """A fresh generator for sampling a draft below the root at ``position``.

        Lanes (for instance the levels of a tree) are independent of one another; asking again
        for the same lane starts it over.
        """
        counter = np.array([0, lane, self._position, 0], dtype=np.uint64)
        bits = np.random.Philox(key=_key(self._seed, Stream.DRAFT), counter=counter)
        return np.random.Generator(bits)

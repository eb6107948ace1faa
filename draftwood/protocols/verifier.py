"""The verifier: the accept rule, and the distributions and random numbers that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from draftwood.protocols.step import Verdict
from draftwood.tree import Draw, TokenTree

if TYPE_CHECKING:
    import torch


class Noise(Protocol):
    """Random decisions of one step of one request, keyed by absolute position."""

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        """The token after a node at ``depth``, drawn in proportion to ``weights`` ``[V]``."""
        ...

    def accepts(self, node: int, probability: float) -> bool:
        """True with this probability; to be called once per node."""
        ...


class Distributions(Protocol):
    """The target's distribution p after each node of a tree, processors applied along its path."""

    @property
    def everywhere(self) -> bool:
        """Whether p may be asked after any node; else only after paths that p allows."""
        ...

    def draw(self, node: int, noise: Noise) -> int:
        """The token that follows ``node``, drawn from p (the argmax at temperature 0)."""
        ...

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """p as float32 ``[n, V]`` on the target's device (one-hot at temperature 0); read only.

        A row is NaN where no token can follow, or p cannot be told: :meth:`draw` says why.
        """
        ...


class Proposals(Protocol):
    """The drafters' distributions q that the sampled nodes of a tree were drawn from."""

    def probabilities(self, nodes: Sequence[int]) -> torch.Tensor:
        """q as float32 ``[n, V]`` on the target's device, with earlier siblings; read only."""
        ...


@dataclass(frozen=True, eq=False)
class Verification:
    """A drafted tree to verify, with the target's distributions, the drafters' and the noise."""

    tree: TokenTree
    p: Distributions
    q: Proposals
    noise: Noise


class Verifier(Protocol):
    """The accept rule; pure."""

    @property
    def accepts(self) -> frozenset[Draw]:
        """The kinds of nodes for which the rule is lossless."""
        ...

    @property
    def branching(self) -> bool:
        """Whether the rule is lossless below nodes with several children."""
        ...

    def verify(self, cases: Sequence[Verification]) -> list[Verdict]:
        """Choose the accepted path and the bonus token of each tree of a batch.

        In a tree without sampled nodes these are the target's own draws, one after the other from
        the root, so that a seed's tokens are those of plain decoding.
        """
        ...


class BegunVerification(Protocol):
    """Trees whose verification the device may still be running."""

    @property
    def tensors(self) -> Sequence[torch.Tensor]:
        """What the verdicts need of the device."""
        ...

    def verdicts(
        self, cases: Sequence[Verification], numbers: Sequence[NDArray[Any]]
    ) -> list[Verdict]:
        """The verdicts.

        Args:
            cases: those that were begun, with all of the target's output.
            numbers: :attr:`tensors` on the host.
        """
        ...


@runtime_checkable
class EarlyVerifier(Verifier, Protocol):
    """A verifier that can begin before the target's output has reached the host."""

    def early(self, tree: TokenTree) -> bool:
        """Whether the verification of such a tree can begin early."""
        ...

    def begin(self, cases: Sequence[Verification]) -> BegunVerification:
        """Begin to verify such trees, all of whose p may be asked after any node.

        Args:
            cases: of p, no token can be drawn yet.
        """
        ...

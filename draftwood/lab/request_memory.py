"""The memory that requests take beside the weights, told in tokens and requests."""

from dataclasses import dataclass

from draftwood.engine.memory import SLACK, readable

REQUEST = 1024
"""Tokens of the requests of which is told how many fit."""


@dataclass(frozen=True)
class RequestMemory:
    """What requests take, in the caches of all models.

    Attributes:
        token: bytes of a token's keys and values.
        slot: bytes of a request's recurrent states.
        node: bytes that recurrent layers keep of a tree's node until the commit.
        nodes: of the largest tree, root included.
        block: tokens of a block of the cache; 0: it has rows, which grow.
    """

    token: int
    slot: int
    node: int
    nodes: int
    block: int

    @property
    def request(self) -> float:
        """Bytes of a request of :data:`REQUEST` tokens."""
        slack = 1.0 if self.block else SLACK
        beside = self.slot + self.nodes * self.node
        return max(1.0, REQUEST * self.token * slack + beside)

    def told(self, free: int | None) -> str:
        """What a token and a request take, and how many requests fit.

        ``free``: bytes that are free; None: unknown.
        """
        text = f"{readable(self.token)} a token for keys and values"
        if self.slot:
            text += (
                f", {readable(self.slot)} a request for recurrent states and "
                f"{readable(self.node)} for each of {self.nodes} nodes of its tree"
            )
        if free is None:
            return text
        return (
            f"{text}; {readable(free)} are free: room for {int(free / self.request):,} requests of "
            f"{REQUEST:,} tokens"
        )

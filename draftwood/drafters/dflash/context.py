"""The keys and values of a DFlash drafter's context, for one request."""

from collections.abc import Sequence

from torch import Tensor


class BlockContext:
    """Keys and values of the true positions so far, in every layer.

    Args:
        layers: of the drafter.

    Attributes:
        length: positions, which is also the next one.
    """

    def __init__(self, layers: int) -> None:
        self._stored: list[tuple[Tensor, Tensor] | None] = [None] * layers
        self.length = 0

    def append(self, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Append keys and values ``[kv heads, n, d]`` of each layer."""
        count = layers[0][0].shape[1]
        for index, (keys, values) in enumerate(layers):
            known = self._stored[index]
            self._stored[index] = (
                _appended(known and known[0], keys, self.length),
                _appended(known and known[1], values, self.length),
            )
        self.length += count

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values ``[kv heads, length, d]`` of each layer."""
        found = []
        for stored in self._stored:
            assert stored is not None, "a prompt has a position"
            keys, values = stored
            found.append((keys[:, : self.length], values[:, : self.length]))
        return found


def _appended(stored: Tensor | None, new: Tensor, length: int) -> Tensor:
    """The buffer with new columns behind the first ``length``, in one twice as long if needed."""
    end = length + new.shape[1]
    if stored is None or end > stored.shape[1]:
        grown = new.new_empty(new.shape[0], max(2 * length, end), new.shape[2])
        if stored is not None:
            grown[:, :length] = stored[:, :length]
        stored = grown
    stored[:, length:end] = new
    return stored

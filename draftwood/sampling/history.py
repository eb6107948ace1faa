"""The tokens of one request in a tensor that grows in place.

Logits processors need the whole sequence as a tensor at every token. Here it costs no copy.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

_SPARE = 256


class History:
    """Prompt and committed tokens, the root included.

    Args:
        tokens: the first tokens, usually the prompt.
        capacity: room for this many tokens; it grows as needed.
    """

    def __init__(self, tokens: Sequence[int] | NDArray[np.int64], *, capacity: int = 0) -> None:
        self._buffer = np.zeros((1, max(capacity, len(tokens)) + _SPARE), dtype=np.int64)
        self._tensor = torch.from_numpy(self._buffer)
        self._length = 0
        self.extend(tokens)

    def __len__(self) -> int:
        return self._length

    def append(self, token: int) -> None:
        """Add one committed token."""
        self.extend((token,))

    def extend(self, tokens: Sequence[int] | NDArray[np.int64]) -> None:
        """Add committed tokens; earlier views of a path become invalid."""
        self._write(tokens)
        self._length += len(tokens)

    def view(self, path: Sequence[int] = ()) -> torch.Tensor:
        """A view int64 ``[1, len(self) + len(path)]`` on the host: the tokens, then ``path``.

        The path is written into the spare end of the buffer, and only the path is copied. So a view
        is valid until the next call of any method.
        """
        if path:
            self._write(path)
        return self._tensor[:, : self._length + len(path)]

    def _write(self, tokens: Sequence[int] | NDArray[np.int64]) -> None:
        stop = self._length + len(tokens)
        if stop > self._buffer.shape[1]:
            grown = np.zeros((1, 2 * stop), dtype=np.int64)
            grown[:, : self._length] = self._buffer[:, : self._length]
            self._buffer = grown
            self._tensor = torch.from_numpy(grown)
        self._buffer[0, self._length : stop] = tokens

"""The token windows that a model reads, in an order that does not depend on that of the texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Window: TypeAlias = NDArray[np.int32]
"""Token ids of a part of a document, ``[n]``."""


def windows_of(
    texts: Iterable[str], tokenizer: Any, length: int, limit: int | None
) -> list[Window]:
    """Cut documents into windows of at most ``length`` tokens, sorted by length and content.

    A document gets the special tokens that the tokenizer adds, but no second beginning-of-text
    token, which a rendered chat may have already.

    Args:
        texts: the documents.
        tokenizer: the model's.
        length: most tokens of a window.
        limit: most tokens in all, of the first documents; None: all of them.
    """
    found: list[Window] = []
    left = limit
    for ids in _encoded(texts, tokenizer):
        kept = ids if left is None else ids[:left]
        found += (kept[at : at + length] for at in range(0, len(kept), length))
        if left is not None:
            left -= len(kept)
            if not left:
                break
    return sorted(found, key=lambda window: (len(window), window.tolist()))


def batches_of(windows: Sequence[Window], tokens: int) -> Iterator[list[Window]]:
    """Neighbours, so that little is padded, of at most ``tokens`` tokens with the padding."""
    batch: list[Window] = []
    for window in windows:
        if batch and len(window) * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def shards_of(windows: Sequence[Window], tokens: int) -> list[list[Window]]:
    """Runs of windows of ``tokens`` tokens or a little more."""
    found: list[list[Window]] = [[]]
    size = 0
    for window in windows:
        if size >= tokens:
            found.append([])
            size = 0
        found[-1].append(window)
        size += len(window)
    return found


def digest_of(windows: Iterable[Window]) -> str:
    """SHA-256 of windows in their order.

    It differs where a limit cuts the same texts in another order.
    """
    found = hashlib.sha256()
    for window in windows:
        found.update(len(window).to_bytes(4, "little"))
        found.update(window.astype("<i4").tobytes())
    return found.hexdigest()


def _encoded(texts: Iterable[str], tokenizer: Any) -> Iterator[Window]:
    bos = tokenizer.bos_token
    for text in texts:
        special = bos is None or not text.startswith(bos)
        yield np.array(tokenizer.encode(text, add_special_tokens=special), dtype=np.int32)

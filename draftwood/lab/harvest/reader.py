"""Runs a model over windows of text and sums what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from draftwood.lab.harvest.sums import Sums, sums_of
from draftwood.lab.harvest.windows import Window, batches_of
from draftwood.protocols import Needs, Target

_LOGITS = 1 << 26
"""Most logits of a forward: 268 MB in float32."""


def read_windows(
    target: Target, windows: Sequence[Window], width: int, show: Callable[[int], None]
) -> Sums:
    """The sums of the ``width`` likeliest successors at every position.

    Args:
        target: the model.
        windows: token ids.
        width: successors that are read at a position.
        show: is told the tokens of each forward.
    """
    size = target.info.vocab_size
    keys, tokens, probs = [], [], []
    for batch in batches_of(windows, max(1, _LOGITS // size)):
        slots = [target.open(len(window)) for window in batch]
        try:
            rows = target.prefill(
                slots, [window.tolist() for window in batch], Needs(width, prompt_rows=True)
            )
        finally:
            for slot in slots:
                target.release(slot)
        for window, row in zip(batch, rows, strict=True):
            before = np.concatenate([[size], window[:-1]])
            keys.append(window.astype(np.int64) * (size + 1) + before)
            tokens.append(row.top_tokens)
            probs.append(row.top_probs)
        show(sum(map(len, batch)))
    return sums_of(np.concatenate(keys), np.concatenate(tokens), np.concatenate(probs))

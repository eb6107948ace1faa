"""Top-p sampling that finds the nucleus among the largest scores instead of sorting all.

Sorting 49,152 scores takes 3.4 ms on a CPU, an eighth of a forward of a model of that vocabulary
with 135 million parameters. The nucleus is mostly a few dozen tokens, found in 0.13 ms.
"""

from typing import ClassVar

import torch
from transformers import LogitsProcessor
from transformers.generation.logits_process import TopPLogitsWarper

_SIZES = (256, 4096)
"""Numbers of largest scores among which the nucleus is sought before all are sorted."""


class TopP(TopPLogitsWarper):
    """transformers' top-p with the same result.

    It keeps the likeliest tokens whose likelier ones together have less than ``top_p``. The
    rounding of the cumulative sums differs, and so does the choice among tied tokens at the
    boundary: here the highest ids, there whichever the sort puts last. Other devices than the CPU
    sort.
    """

    keeps_state: ClassVar = False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores ``[n, V]``, those outside the nucleus -inf; rows with a NaN as they are."""
        if scores.device.type != "cpu":
            return super().__call__(input_ids, scores)  # type: ignore[no-any-return]
        kept = torch.full_like(scores, self.filter_value)
        for row, found, p in zip(kept, scores, scores.softmax(-1), strict=True):
            ids = _nucleus(found, p, self.top_p)
            row[ids] = found[ids]
        return kept


def _nucleus(scores: torch.Tensor, p: torch.Tensor, top_p: float) -> torch.Tensor | slice:
    """Ids of the nucleus of one row ``[V]``; all of them if the row holds a NaN."""
    sizes = [size for size in _SIZES if size < len(scores)]
    for size in (*sizes, len(scores)):
        every = size == len(scores)
        largest, ids = scores.sort(descending=True) if every else scores.topk(size)
        sums = p[ids].cumsum(0, dtype=torch.float64)
        count = 1 + int((sums[:-1] < top_p).sum())
        if count < size:
            break
    if bool(sums[-1].isnan()):
        return slice(None)
    if count < size and bool(largest[count] < largest[count - 1]):
        return ids[:count]
    above = ids[largest > largest[count - 1]]
    tied = torch.nonzero(scores == largest[count - 1]).flatten()
    return torch.cat([above, tied[len(tied) - (count - len(above)) :]])


def quicker(processor: LogitsProcessor) -> LogitsProcessor:
    """:class:`TopP` for transformers' own top-p of default settings, else the same."""
    if type(processor) is not TopPLogitsWarper:
        return processor
    usual = processor.min_tokens_to_keep == 1 and processor.top_p < 1
    return TopP(processor.top_p, processor.filter_value) if usual else processor

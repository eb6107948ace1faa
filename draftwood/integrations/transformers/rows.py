"""The rows of ``generate``'s batch: their processors, stopping criteria and reported outputs.

Draftwood decodes rows as separate requests without padding. Processors and stopping criteria were
built by ``generate`` for its padded batch, so they are called with the inputs of that batch. They
must treat rows independently, as all of transformers' own do.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import torch
from transformers import LogitsProcessor, StoppingCriteriaList
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from draftwood.errors import DraftwoodError
from draftwood.protocols import Constraint, Outcome, Prefill
from draftwood.sampling.processors import may_keep_state
from draftwood.sampling.sampler import Sampler
from draftwood.sampling.tree_mask import TreeMask
from draftwood.tree import ROOT, TreeBuilder

# Processors of transformers that hold data for every row of the batch.
_BATCH_SHAPED = (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)


@dataclass(frozen=True, eq=False)
class BatchRow:
    """One row of ``generate``'s batch.

    Attributes:
        index: of the row.
        count: number of rows in the batch.
        prompt: token ids without padding.
        pads: int64 ``[1, p]`` on the batch's device: the padding left of the prompt.
    """

    index: int
    count: int
    prompt: tuple[int, ...]
    pads: torch.Tensor

    @property
    def width(self) -> int:
        """Length of the padded prompt, the same for all rows."""
        return self.pads.shape[1] + len(self.prompt)

    def padded(self, ids: torch.Tensor) -> torch.Tensor:
        """This row's ids ``[1, L]`` with padding: int64 ``[1, p + L]`` on the batch's device."""
        ids = ids.to(self.pads.device)
        return torch.cat([self.pads, ids], dim=1) if self.pads.shape[1] else ids

    def batched(self, row: torch.Tensor) -> torch.Tensor:
        """``[1, ...]`` repeated for all rows: ``[count, ...]``."""
        return row.repeat(self.count, *[1] * (row.dim() - 1)) if self.count > 1 else row


def rows_of(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[BatchRow]:
    """The rows of ``input_ids`` int64 ``[B, L]``; ``attention_mask`` is 0 at left padding.

    Raises:
        DraftwoodError: masked tokens are not on the left, or a row is all padding.
    """
    count, width = input_ids.shape
    lengths = [width] * count
    if attention_mask is not None:
        lengths = attention_mask.ne(0).sum(dim=1).tolist()
        place = torch.arange(width, device=attention_mask.device)
        left = place >= width - attention_mask.ne(0).sum(dim=1, keepdim=True)
        if not torch.equal(left, attention_mask.ne(0)):
            raise DraftwoodError(
                "the attention_mask hides tokens inside or right of a prompt: pad on the left "
                "(tokenizer.padding_side = 'left') and, if a prompt holds the pad token, give "
                "an attention_mask"
            )
    if 0 in lengths:
        raise DraftwoodError(f"row {lengths.index(0)} has no tokens: give every row a prompt")
    ids = input_ids.tolist()
    return [
        BatchRow(i, count, tuple(ids[i][width - n :]), input_ids[i : i + 1, : width - n])
        for i, n in enumerate(lengths)
    ]


def processors_for(
    row: BatchRow, input_ids: torch.Tensor, processors: Sequence[LogitsProcessor]
) -> list[LogitsProcessor]:
    """``generate``'s processors for one row of ``input_ids`` int64 ``[B, L]``."""
    found: list[LogitsProcessor] = []
    own = [_constraint_of(row, processor) for processor in processors]
    for keeps, members in groupby(own, may_keep_state):
        if keeps:
            found += [StatefulRowProcessor(processor, row, input_ids) for processor in members]
        else:
            found.append(StatelessRowProcessors(list(members), row))
    return found


def _constraint_of(row: BatchRow, processor: LogitsProcessor) -> LogitsProcessor:
    """A processor that allows tokens by row, for one row: it knows no other row's tokens."""
    if type(processor) is not PrefixConstrainedLogitsProcessor:
        return processor
    allowed = processor._prefix_allowed_tokens_fn

    def of_row(_: int, ids: torch.Tensor) -> list[int]:
        return allowed(row.index, ids)

    return PrefixConstrainedLogitsProcessor(of_row, 1)


class StatelessRowProcessors(LogitsProcessor):
    """Stateless processors, applied to one row.

    Args:
        processors: in order, built for the whole padded batch.
        row: the row.
    """

    keeps_state: ClassVar = False

    def __init__(self, processors: Sequence[LogitsProcessor], row: BatchRow) -> None:
        self._processors = tuple(processors)
        self._row = row

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores float32 ``[1, V]`` after ``input_ids`` int64 ``[1, L]``, unpadded."""
        row, device = self._row, scores.device
        ids = row.padded(input_ids)
        scores = scores.to(ids.device)
        for processor in self._processors:
            if row.count > 1 and _wants_the_batch(processor):
                scores = processor(row.batched(ids), row.batched(scores))
                scores = scores[row.index : row.index + 1]
            else:
                scores = processor(ids, scores)
        return scores.to(device)


def _wants_the_batch(processor: LogitsProcessor) -> bool:
    own = type(processor).__module__ == LogitsProcessor.__module__
    return isinstance(processor, _BATCH_SHAPED) or not own


class StatefulRowProcessor(LogitsProcessor):
    """A processor that may keep state, applied to one row, called as ``generate`` calls it.

    It may hold a state per row, such as a grammar matcher, which must not see another row's tokens.
    The other rows' tokens are not known here, so these rows continue their prompts with the
    likeliest tokens that the processor allows.

    Args:
        processor: built for the whole padded batch.
        row: the row.
        input_ids: int64 ``[B, L]``, the padded prompts of all rows.
    """

    def __init__(self, processor: Any, row: BatchRow, input_ids: torch.Tensor) -> None:
        self.name = getattr(processor, "name", type(processor).__name__)
        self._processor = processor
        self._index = row.index
        self._pads = row.pads.clone()  # a copy of a view is a copy of all that it views
        self._others = input_ids if row.count > 1 else None
        self._next: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores float32 ``[1, V]`` after ``input_ids`` int64 ``[1, L]``, unpadded."""
        device = scores.device
        ids = torch.cat([self._pads, input_ids.to(self._pads.device)], dim=1)
        scores = scores.to(ids.device)
        if self._others is None:
            alone: torch.Tensor = self._processor(ids, scores)
            return alone.to(device)
        if self._next is not None:
            self._others = torch.cat([self._others, self._next], dim=1)
        batch = self._others.clone()
        batch[self._index] = ids
        found: torch.Tensor = self._processor(batch, scores.repeat(len(batch), 1))
        self._next = found.argmax(dim=-1, keepdim=True)
        return found[self._index : self._index + 1].to(device)


class OutputRecorder:
    """Records the raw logits and processed scores of a row's tokens, as ``generate`` reports them.

    Both are lists of float32 ``[1, V]`` on the batch's device, one per chosen token. They may
    include tokens that a stop later cuts off, but none behind one of ``ends``.
    """

    def __init__(self, row: BatchRow, sampler: Sampler, ends: Collection[int] = ()) -> None:
        self.logits: list[torch.Tensor] = []
        self.scores: list[torch.Tensor] = []
        self._row = row
        self._sampler = sampler.fresh()
        self._ends = ends
        self._ids = list(row.prompt)
        self._constraint: Constraint | None = None

    def __call__(self, record: Prefill | Outcome) -> None:
        """Record the target's rows of the accepted nodes."""
        if isinstance(record, Prefill):
            nodes: tuple[int, ...] = (-1,)
            tokens: tuple[int, ...] = (record.first,)
            self._constraint = record.constraint
            tree = TreeBuilder(self._ids[-1]).build()
        else:
            nodes, tokens, tree = (0, *record.path), record.committed, record.tree
        mask = None if self._constraint is None else TreeMask(self._constraint, tree)
        for node, token in zip(nodes, tokens, strict=True):
            row = record.rows.logits[node][None]
            ids = torch.tensor([self._ids], device=row.device)
            device = self._row.pads.device
            self._sampler.keep_path(ids)
            self.logits.append(row.to(device, torch.float32, copy=True))
            if mask is not None:
                row = mask.masked(row, [max(node, ROOT)], -torch.inf)
            self.scores.append(self._sampler.scores(ids, row).to(device))
            self._ids.append(token)
            if token in self._ends:
                return


class StopTracker:
    """Decides when the rows of one call end, by ``generate``'s criteria.

    With an end-of-sequence criterion, ``generate`` pads finished rows. Without one, it continues
    all rows until each has finished once, and so does this class.
    """

    def __init__(self, criteria: StoppingCriteriaList) -> None:
        self.pads_finished = any(hasattr(criterion, "eos_token_id") for criterion in criteria)
        self._criteria = criteria
        self._finished: dict[int, int] = {}

    def ask(self, row: BatchRow, ids: torch.Tensor, scores: Sequence[torch.Tensor] | None) -> bool:
        """Whether the row ends after ``ids``, int64 ``[1, L]``, unpadded.

        ``scores`` are the row's, ``[1, V]`` per token, if ``generate`` passes them to criteria;
        there may be more scores than tokens.
        """
        ids = row.padded(ids)
        shown = None
        if scores is not None:
            known = scores[: ids.shape[1] - row.width]
            shown = tuple(step.expand(row.count, -1) for step in known)
        held = bool(self._criteria(row.batched(ids), shown)[row.index])
        if held:
            self._finished.setdefault(row.index, ids.shape[1])
        if self.pads_finished:
            return held
        every = len(self._finished) == row.count
        return every and ids.shape[1] >= max(self._finished.values())

    def cut(self, row: BatchRow, tokens: Sequence[int]) -> tuple[int, ...]:
        """The tokens of a finished row, cut to the length of the row that finished last."""
        if self.pads_finished or len(self._finished) < row.count:
            return tuple(tokens)
        return tuple(tokens[: max(self._finished.values()) - row.width])

"""The target's output at every cached token of a request, for drafters of a later request.

A drafter may learn from the top-k or the hidden states of all positions of a prompt. Where a
prompt's first tokens are not computed again, these come from here.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from draftwood.protocols import Needs, Outcome, TargetOutput
from draftwood.tree import ROOT


class TokenRows:
    """The output at the tokens of one request, as far as drafters need it of prompts.

    Args:
        needs: of the drafters.
    """

    def __init__(self, needs: Needs) -> None:
        self._prompt_rows = needs.prompt_rows
        self._any = needs.prompt_rows or bool(needs.taps)
        self._parts: list[TargetOutput] = []

    def begin(self, rows: TargetOutput) -> None:
        """The output of the prompt."""
        if self._any:
            self._parts.append(without_logits(rows))

    def add(self, outcome: Outcome) -> None:
        """The output of a step at the accepted nodes."""
        if self._any:
            self._parts.append(_picked(outcome, self._prompt_rows))

    def first(self, length: int) -> TargetOutput | None:
        """The output at the first tokens; None if drafters need none. It holds views."""
        if not self._any:
            return None
        self._parts = [joined(self._parts, prompt_rows=self._prompt_rows)]
        return first_rows(self._parts[0], length, prompt_rows=self._prompt_rows)

    def copied(self, length: int) -> TargetOutput | None:
        """The same, without keeping the output at further tokens alive."""
        found = self.first(length)
        if found is None:
            return None
        features, whole = found.features, self._parts[0]
        if features is not None and whole.features is not None and length < len(whole.features):
            found = replace(found, features=features.clone())
        if self._prompt_rows and length < len(whole.argmax):
            found = replace(
                found,
                argmax=found.argmax.copy(),
                top_tokens=found.top_tokens.copy(),
                top_probs=found.top_probs.copy(),
            )
        return found


def joined(parts: Sequence[TargetOutput], *, prompt_rows: bool) -> TargetOutput:
    """One output from those of a text's parts, as if it had been cached at once.

    Args:
        parts: in the order of the text, at least one.
        prompt_rows: whether the top-k of all positions are kept, or only the last one's.
    """
    last = parts[-1]
    if len(parts) == 1:
        return last
    found = last
    if last.features is not None:
        features = [part.features for part in parts if part.features is not None]
        found = replace(found, features=torch.cat(features))
    if prompt_rows:
        found = replace(
            found,
            argmax=np.concatenate([part.argmax for part in parts]),
            top_tokens=np.concatenate([part.top_tokens for part in parts]),
            top_probs=np.concatenate([part.top_probs for part in parts]),
        )
    return found


def first_rows(rows: TargetOutput, length: int, *, prompt_rows: bool) -> TargetOutput:
    """The output at the first tokens."""
    found = rows
    if rows.features is not None:
        found = replace(found, features=rows.features[:length])
    return _sliced(found, slice(length)) if prompt_rows else found


def rows_bytes(rows: TargetOutput) -> int:
    """Bytes that the output takes."""
    features = rows.features
    device = 0 if features is None else features.numel() * features.itemsize
    return device + rows.argmax.nbytes + rows.top_tokens.nbytes + rows.top_probs.nbytes


def without_logits(rows: TargetOutput) -> TargetOutput:
    """The output without what is as wide as the vocabulary."""
    # Not a view, which would keep all logits of the step.
    return replace(rows, logits=rows.logits.new_empty((0, rows.logits.shape[-1])), drawn=None)


def _picked(outcome: Outcome, prompt_rows: bool) -> TargetOutput:
    found, nodes = without_logits(outcome.rows), [ROOT, *outcome.path]
    if outcome.features is not None:  # of all requests at once; on a device a list would wait
        found = replace(found, features=outcome.features.clone())
    elif found.features is not None:
        found = replace(found, features=found.features[nodes])
    return _sliced(found, nodes) if prompt_rows else found


def _sliced(rows: TargetOutput, own: slice | list[int]) -> TargetOutput:
    return replace(
        rows,
        argmax=rows.argmax[own],
        top_tokens=rows.top_tokens[own],
        top_probs=rows.top_probs[own],
    )

"""A forward whose output is still on the device."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from numpy.typing import NDArray

from draftwood.copies import downloaded
from draftwood.protocols import Needs, TargetOutput
from draftwood.runner.scored import Scored
from draftwood.runner.to_host import to_host_with, unread


class SubmittedForward:
    """A :class:`draftwood.protocols.Submitted`.

    Args:
        output: logits ``[m, V]`` of all trees behind one another, without the nodes that are not
            read; features ``[n, taps * H]`` of all nodes, or None.
        counts: nodes of each tree.
        unread: of these, the first ones that are not read.
        order: for each tree in this order, its index in the caller's.
        numbers: the uploaded numbers of the caller.
        needs: what is copied to the host.
        plain: see :func:`draftwood.runner.to_host.to_host`.
    """

    def __init__(
        self,
        output: Scored,
        counts: Sequence[int],
        unread: Sequence[int],
        order: Sequence[int],
        numbers: torch.Tensor,
        needs: Needs,
        plain: bool,
    ) -> None:
        self._logits, self._features, self._packed = output
        read = [n - first for n, first in zip(counts, unread, strict=True)]
        self._spans = _last(read, read)
        self._counts, self._feature_spans = counts, _last(counts, read)
        self._places = sorted(range(len(order)), key=order.__getitem__)
        self._order = order
        self._needs, self._plain = needs, plain
        self.numbers = numbers

    def with_all_features(self) -> "SubmittedForward":
        """The same, with the features of nodes that are not read as well."""
        self._feature_spans = _last(self._counts, self._counts)
        return self

    @property
    def logits(self) -> Sequence[torch.Tensor]:
        """Of each tree, ``[n, V]`` on the device."""
        return [self._logits[self._spans[place]] for place in self._places]

    def rows(self, drawn: Sequence[torch.Tensor | None] = ()) -> list[TargetOutput]:
        """Wait for the output."""
        return self.rows_with(drawn, ())[0]

    def rows_with(
        self, drawn: Sequence[torch.Tensor | None], further: Sequence[torch.Tensor]
    ) -> tuple[list[TargetOutput], list[NDArray[Any]]]:
        """Wait for the output, with further tensors in the same copy."""
        with torch.inference_mode():
            if self._needs.host:
                found, rest = self._read(drawn, further)
            else:
                found, rest = self._unread(), downloaded(further) if further else []
        return [found[place] for place in self._places], rest

    def _read(
        self, drawn: Sequence[torch.Tensor | None], further: Sequence[torch.Tensor]
    ) -> tuple[list[TargetOutput], list[NDArray[Any]]]:
        given = [drawn[index] for index in self._order] if drawn else []
        together = self._together(given)
        parts = self._parts()  # while the device computes
        (argmax, tokens, probs), rest = to_host_with(
            self._logits[None],
            further if together is None else [together, *further],
            self._needs.top_k,
            self._plain,
            None if self._packed is None else self._packed[None],
        )
        draws = None if together is None else rest.pop(0)[0]
        owned = given or [None] * len(parts)
        found = [
            TargetOutput(
                logits,
                *(argmax[0, span], tokens[0, span], probs[0, span]),
                features,
                None if draws is None or own is None else draws[span],
            )
            for (logits, features), own, span in zip(parts, owned, self._spans, strict=True)
        ]
        return found, rest

    def _unread(self) -> list[TargetOutput]:
        """The output that stays on the device."""
        return [TargetOutput(logits, *unread(), features) for logits, features in self._parts()]

    def _parts(self) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Logits and features of each tree."""
        features = self._features
        return [
            (self._logits[span], None if features is None else features[own])
            for span, own in zip(self._spans, self._feature_spans, strict=True)
        ]

    def _together(self, given: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        """The drawn tokens of all trees ``[1, n]``, zeros for trees without; None without any."""
        if all(tokens is None for tokens in given):
            return None
        parts = [
            self._logits.new_zeros(span.stop - span.start, dtype=torch.int64)
            if tokens is None
            else tokens
            for tokens, span in zip(given, self._spans, strict=True)
        ]
        return torch.cat(parts)[None]


def _last(counts: Sequence[int], read: Sequence[int]) -> list[slice]:
    """The last ``read`` of each part, where parts of these lengths lie behind one another."""
    ends = accumulate(counts)
    return [slice(end - n, end) for n, end in zip(read, ends, strict=True)]

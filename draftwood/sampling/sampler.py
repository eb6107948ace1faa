"""The sampler of a request: logits to the scores that tokens are drawn from."""

import inspect
from collections.abc import Sequence
from copy import copy
from functools import cached_property

import torch
from transformers import LogitsProcessor

from draftwood.errors import DraftwoodError
from draftwood.sampling.filters import Filters, split_filters
from draftwood.sampling.params import SamplingParams
from draftwood.sampling.processors import (
    WithheldTokens,
    by_rows,
    may_keep_state,
    processors_of,
    reads_history,
)
from draftwood.sampling.stateful import PathProcessor
from draftwood.sampling.top_p import quicker

__all__ = ["Sampler", "SamplingParams"]


class Sampler:
    """The logits processors of one request, and whether it samples or takes the argmax.

    Args:
        params: the request's. Their processors are applied in the order of transformers'
            ``generate``; presence and frequency penalties come where ``generate`` puts a caller's
            own processors, before the temperature.
        prompt_length: number of the request's tokens that were not generated.
        withheld: keeps end tokens from coming too early.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_length: int,
        withheld: WithheldTokens | None = None,
    ) -> None:
        self.temperature = params.temperature
        first = () if withheld is None else (withheld,)
        self._processors = (*first, *processors_of(params, prompt_length))
        self._copies = False  # none of these writes into the scores it is given

    @classmethod
    def from_processors(
        cls, processors: Sequence[LogitsProcessor], *, temperature: float
    ) -> "Sampler":
        """A sampler with given processors, such as the list that ``generate`` prepares.

        Processors that may keep state are copied, and the copies are called
        (:mod:`draftwood.sampling.stateful`).

        Args:
            processors: in the order of application; for one sequence, and not called yet.
            temperature: the one that the processors apply; 0 takes the argmax of the processed
                scores instead of sampling.

        Raises:
            DraftwoodError: a processor cannot be applied to tokens that may be rejected.
        """
        for processor in processors:
            arguments = inspect.signature(processor.__call__).parameters
            if len(arguments) > 2:
                raise DraftwoodError(
                    f"{type(processor).__name__} needs more than token ids and scores, "
                    "which a draft cannot give it; leave it out or decode without drafting"
                )
        sampler = cls(SamplingParams(), 0)
        sampler._processors = tuple(
            PathProcessor(p) if may_keep_state(p) else quicker(p) for p in processors
        )
        sampler.temperature = temperature
        sampler._copies = True
        return sampler

    def fresh(self) -> "Sampler":
        """A sampler with the same processors in their first state, for a new sequence."""
        if not self.stateful:
            return self
        found = copy(self)
        found.__dict__.pop("_split", None)  # of the old processors
        found._processors = tuple(
            p.fresh() if isinstance(p, PathProcessor) else p for p in self._processors
        )
        return found

    @cached_property
    def stateful(self) -> bool:
        """Whether a path may be scored only after each of its prefixes."""
        return any(isinstance(p, PathProcessor) for p in self._processors)

    def keep_path(self, input_ids: torch.Tensor) -> None:
        """Forget the states of all paths but the one to the last token of int64 ``[1, L]``."""
        for processor in self._processors:
            if isinstance(processor, PathProcessor):
                processor.keep_path(input_ids)

    @property
    def do_sample(self) -> bool:
        """Whether tokens are sampled; else the argmax is taken."""
        return self.temperature > 0

    @property
    def plain(self) -> bool:
        """Whether the argmax of the raw logits is the next token."""
        return not self._processors and not self.do_sample

    @cached_property
    def reads_history(self) -> bool:
        """Whether scores depend on earlier tokens; if not, any rows can be scored together."""
        return any(map(reads_history, self._processors))

    @cached_property
    def by_rows(self) -> bool:
        """Whether paths of one length can be scored together."""
        return all(map(by_rows, self._processors))

    @cached_property
    def _split(self) -> tuple[tuple[LogitsProcessor, ...], Filters]:
        return split_filters(self._processors)

    @property
    def filters(self) -> Filters:
        """The filters at the end of the processors."""
        return self._split[1]

    @property
    def only_filters(self) -> bool:
        """Whether there are no processors before :attr:`filters`."""
        return not self._split[0]

    def unfiltered(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """As :meth:`scores`, before :attr:`filters`."""
        return self._applied(self._split[0], input_ids, logits)

    def scores(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Processed scores float32 ``[n, V]`` of raw logits ``[n, V]``, which are not changed.

        ``input_ids`` is int64 ``[1, L]``: the tokens before the next one, for a single row; with
        :attr:`by_rows` ``[n, L]``.
        """
        return self._applied(self._processors, input_ids, logits)

    def _applied(
        self,
        processors: Sequence[LogitsProcessor],
        input_ids: torch.Tensor,
        logits: torch.Tensor,
    ) -> torch.Tensor:
        scores = logits.to(torch.float32, copy=self._copies)
        for processor in processors:
            scores = processor(input_ids, scores)
        return scores

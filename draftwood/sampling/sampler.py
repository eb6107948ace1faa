"""From a row of logits to the scores that tokens are drawn from, as a request asks for.

Knows nothing of models, trees or the accept rule. Processors are transformers' own, in the order in
which ``generate`` applies them.
"""

import inspect
from collections.abc import Sequence
from copy import copy
from functools import cached_property

import torch
from transformers import LogitsProcessor

from draftwood.errors import DraftwoodError
from draftwood.sampling.params import SamplingParams
from draftwood.sampling.processors import may_keep_state, processors_of, reads_history
from draftwood.sampling.stateful import Retraced

__all__ = ["Sampler", "SamplingParams"]


class Sampler:
    """The processors of one request, and whether a token is drawn or the best one taken.

    Args:
        params: the request's settings. Their processors come in the order of transformers'
            ``generate``; the presence and frequency penalties stand where it puts a caller's own
            processors, before the temperature.
        prompt_length: how many of the request's tokens were given and not generated.
    """

    def __init__(self, params: SamplingParams, prompt_length: int) -> None:
        self.temperature = params.temperature
        self._processors = processors_of(params, prompt_length)
        self._copies = False  # none of these writes into the scores it is given

    @classmethod
    def given(cls, processors: Sequence[LogitsProcessor], *, temperature: float) -> "Sampler":
        """A sampler with processors made elsewhere, such as the list that ``generate`` prepares.

        Those that may keep state are copied, and the copies are asked
        (:mod:`draftwood.sampling.stateful`).

        Args:
            processors: in the order of application; of one sequence, and not used yet.
            temperature: what they apply among other things; 0 to take the argmax of the processed
                scores instead of drawing from their softmax.

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
        sampler._processors = tuple(Retraced(p) if may_keep_state(p) else p for p in processors)
        sampler.temperature = temperature
        sampler._copies = True
        return sampler

    def fresh(self) -> "Sampler":
        """One for another sequence, or for the same one over again."""
        if not self.stateful:
            return self
        found = copy(self)
        found._processors = tuple(
            p.fresh() if isinstance(p, Retraced) else p for p in self._processors
        )
        return found

    @cached_property
    def stateful(self) -> bool:
        """Whether a path's scores may be asked for only after those of the paths it goes on from.

        That is: of all shorter ones, down to the first one asked about.
        """
        return any(isinstance(p, Retraced) for p in self._processors)

    def settle(self, input_ids: torch.Tensor) -> None:
        """Forget what was asked about, but for the path to the last of int64 ``[1, L]``."""
        for processor in self._processors:
            if isinstance(processor, Retraced):
                processor.settle(input_ids)

    @property
    def do_sample(self) -> bool:
        """Whether tokens are drawn; else the best one is taken."""
        return self.temperature > 0

    @property
    def plain(self) -> bool:
        """Whether the argmax of the raw logits is the answer."""
        return not self._processors and not self.do_sample

    @cached_property
    def reads_history(self) -> bool:
        """Whether the scores depend on the tokens before; else any rows can be scored together."""
        return any(map(reads_history, self._processors))

    def scores(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Processed scores, float32 ``[n, V]``, of raw logits ``[n, V]``, which are not changed.

        ``input_ids`` is int64 ``[1, L]``: the tokens before the one to be chosen, for a single row.
        """
        scores = logits.to(torch.float32, copy=self._copies)
        for processor in self._processors:
            scores = processor(input_ids, scores)
        return scores

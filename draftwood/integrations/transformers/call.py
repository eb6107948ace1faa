"""One call of ``generate``: its requests to the engine, and its result from their completions."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import (
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessor,
    MaxLengthCriteria,
    MaxTimeCriteria,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)
from transformers.generation.utils import GenerateDecoderOnlyOutput

from draftwood.engine.detokenize import text_stream
from draftwood.engine.request import Completion, Request
from draftwood.errors import DraftwoodError
from draftwood.grammars.grammar import Grammar
from draftwood.integrations.transformers.inputs import pad_token
from draftwood.integrations.transformers.rows import (
    BatchRow,
    OutputRecorder,
    StopTracker,
    processors_for,
    rows_of,
)
from draftwood.sampling.sampler import Sampler, SamplingParams

logger = logging.getLogger(__name__)

Generated = torch.Tensor | GenerateDecoderOnlyOutput
"""The result of ``generate``: int64 ``[B, L]``, or an object if ``return_dict_in_generate``."""


class GenerateCall:
    """One call of ``generate``, as ``generate`` prepared it.

    When sampling, every row gets a seed from torch's default generator (on the CPU), so
    ``torch.manual_seed`` decides the result. Greedy decoding does not use the generator.

    Args:
        input_ids: int64 ``[B, L]``, padded on the left.
        attention_mask: int64 ``[B, L]``, 0 at padding, or None.
        processors: for the padded batch, in order.
        criteria: for the padded batch.
        config: with all defaults filled in.
        grammar: that the text of every row must have.

    Raises:
        DraftwoodError: padding is not on the left, or a processor cannot be applied to drafts.
    """

    def __init__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        processors: Sequence[LogitsProcessor],
        criteria: StoppingCriteriaList,
        config: GenerationConfig,
        grammar: Grammar | None = None,
    ) -> None:
        self._input_ids = input_ids
        self._grammar = grammar
        self._criteria = criteria = StoppingCriteriaList(criteria)  # of this call
        self._config = config
        self._stops = StopTracker(criteria)
        self.rows = rows_of(input_ids, attention_mask)
        self._ends = frozenset(
            token
            for criterion in criteria
            if type(criterion) is EosTokenCriteria
            for token in criterion.eos_token_id.tolist()
        )
        samples = bool(config.do_sample)
        temperature = (
            (1.0 if config.temperature is None else config.temperature) if samples else 0.0
        )
        Sampler.from_processors(
            processors, temperature=temperature
        )  # refuses processors by their own names
        self._samplers = [
            Sampler.from_processors(
                processors_for(row, input_ids, processors), temperature=temperature
            )
            for row in self.rows
        ]
        count = len(self.rows)
        self._seeds = torch.randint(2**63 - 1, (count,)).tolist() if samples else [0] * count
        reported = config.return_dict_in_generate and (config.output_scores or config.output_logits)
        self._recorders = [
            OutputRecorder(row, sampler, self._ends) if reported else None
            for row, sampler in zip(self.rows, self._samplers, strict=True)
        ]

    def postpone(self, seconds: float) -> None:
        """Count the time allowed (``max_time``) from so much later on: nothing was decoded yet."""
        for place, criterion in enumerate(self._criteria):
            if type(criterion) is MaxTimeCriteria:
                begun = criterion.initial_timestamp + seconds
                self._criteria[place] = MaxTimeCriteria(criterion.max_time, begun)

    def requests(self) -> list[Request]:
        """One request per row."""
        return [self._request(row) for row in self.rows]

    def _request(self, row: BatchRow) -> Request:
        lengths = [c.max_length for c in self._criteria if type(c) is MaxLengthCriteria]
        ends = [c for c in self._criteria if type(c) is EosTokenCriteria]
        recorder = self._recorders[row.index]

        def should_stop(ids: torch.Tensor) -> bool:
            scores = recorder.scores if recorder and self._config.output_scores else None
            return self._stops.ask(row, ids, scores)

        # The engine handles these two itself, without torch calls at every token.
        plain = len(lengths) + len(ends) == len(self._criteria)
        return Request(
            prompt=row.prompt,
            # A criterion of the caller's takes the place of the configuration's.
            max_new_tokens=max(1, min(lengths or [self._config.max_length]) - row.width),
            sampling=SamplingParams(seed=self._seeds[row.index]),
            eos=self._ends,
            sampler=self._samplers[row.index],
            should_stop=None if plain else should_stop,
            observer=recorder,
            grammar=self._grammar,
        )

    def finish(
        self, completions: Sequence[Completion], tokenizer: PreTrainedTokenizerBase | None
    ) -> list[Completion]:
        """The completions, without tokens that ``generate`` would not have returned."""
        if any(done.reason == "context" for done in completions):
            logger.warning(
                "a sequence reached the end of the model's context before max_length and was "
                "ended there"
            )
        return [
            self._cut(row, done, tokenizer)
            for row, done in zip(self.rows, completions, strict=True)
        ]

    def _cut(
        self, row: BatchRow, done: Completion, tokenizer: PreTrainedTokenizerBase | None
    ) -> Completion:
        tokens = self._stops.cut(row, done.tokens)
        if tokenizer is None or len(tokens) == len(done.tokens):
            return replace(done, tokens=tokens)
        stream = text_stream(tokenizer, row.prompt)
        return replace(done, tokens=tokens, text=stream.push(tokens) + stream.flush())

    def result(self, completions: Sequence[Completion]) -> Generated:
        """The result of ``generate``.

        Scores and logits at the padding of a finished row are zeros. (``generate`` itself reports
        the model's outputs after padding.)

        Raises:
            DraftwoodError: rows have different lengths and there is no token to pad them with.
        """
        config, device = self._config, self._input_ids.device
        tokens = [done.tokens for done in completions]
        length = max(map(len, tokens))
        if min(map(len, tokens)) < length:
            pad = pad_token(config)
            if pad is None:
                raise DraftwoodError(
                    "rows ended at different lengths: set pad_token_id to fill them up with"
                )
            tokens = [(*row, *[pad] * (length - len(row))) for row in tokens]
        sequences = torch.cat([self._input_ids, torch.tensor(tokens, device=device)], dim=1)
        if not config.return_dict_in_generate:
            return sequences
        counts = [len(done.tokens) for done in completions]
        scores = [recorder.scores for recorder in self._recorders if recorder]
        logits = [recorder.logits for recorder in self._recorders if recorder]
        # transformers declares these fields as tuples of one tensor, which they are not.
        fields: dict[str, Any] = {
            "sequences": sequences,
            "scores": _steps(scores, counts) if config.output_scores else None,
            "logits": _steps(logits, counts) if config.output_logits else None,
        }
        return GenerateDecoderOnlyOutput(**fields)


def _steps(
    rows: Sequence[Sequence[torch.Tensor]], counts: Sequence[int]
) -> tuple[torch.Tensor, ...]:
    """``[B, V]`` for every step, of each row's ``[1, V]`` for its own steps; zeros after them."""
    nothing = torch.zeros_like(rows[0][0])
    return tuple(
        torch.cat([row[t] if t < n else nothing for row, n in zip(rows, counts, strict=True)])
        for t in range(max(counts))
    )

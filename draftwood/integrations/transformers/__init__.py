"""Draftwood behind transformers' ``model.generate``.

``generate`` prepares everything (configuration, processors, stopping criteria) and hands it to the
callable made here, which returns what ``generate`` would have returned. What transformers does not
hand to a callable (``streamer``, ``tokenizer``) is found by
:mod:`draftwood.integrations.transformers.calling_frame`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar, TypeAlias

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from draftwood import methods
from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Delta, Finished, Request
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers.attachment import attachment_of, detach
from draftwood.integrations.transformers.call import GenerateCall, Generated
from draftwood.integrations.transformers.calling_frame import HandsTokenizerBack, kept_back
from draftwood.integrations.transformers.failures import raise_failed
from draftwood.integrations.transformers.inputs import Inputs, arguments, pad_token
from draftwood.integrations.transformers.limits import refuse_unsupported
from draftwood.integrations.transformers.streaming import (
    EndsOnce,
    Streamer,
    put_tokens,
    refuse_rows,
)
from draftwood.methods.recipe import Method

__all__ = ["CustomGenerate", "Generated", "custom_generate", "detach", "generate"]

OnTokens: TypeAlias = Callable[[Delta], None]
OnFinish: TypeAlias = Callable[[list[Completion]], None]


@dataclass(frozen=True, eq=False)
class CustomGenerate:
    """A method, as ``model.generate(custom_generate=...)`` takes it.

    The first call attaches the model, and later calls find it attached; :func:`detach` undoes it.

    Attributes:
        spelling: names the method and all its settings, in messages.
        method: what it names.
        key: equal where all settings are. A model that was given as an object is itself part of
            it: two models of one architecture are spelt alike.
    """

    spelling: str
    method: Method
    key: Hashable

    __signature__: ClassVar = HandsTokenizerBack()

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        on_tokens: OnTokens | None = None,
        on_finish: OnFinish | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        **model_kwargs: Any,
    ) -> Generated:
        """Called by ``generate``, which takes ``on_tokens`` and ``on_finish`` as its own arguments.

        ``generate``'s ``streamer`` is served too, and ended even if decoding fails.

        Args:
            model: the one whose ``generate`` was called.
            input_ids: int64 ``[B, L]``, padded on the left.
            logits_processor: as prepared by ``generate``.
            stopping_criteria: as prepared by ``generate``.
            generation_config: as prepared by ``generate``.
            on_tokens: told of new tokens as they are committed; ``request_id`` is the row.
            on_finish: told of the finished rows, in order, with their statistics.
            tokenizer: makes the text of what ``on_tokens`` and ``on_finish`` are told; without one
                that text is empty.
            model_kwargs: what ``generate`` would have handed to the model.

        Raises:
            DraftwoodError: something was asked for that cannot be honoured; the message names it.
        """
        kept = kept_back(model)
        try:
            refuse_unsupported(model, generation_config, model_kwargs, kept)
            if kept.streamer is not None:
                refuse_rows(input_ids.shape[0])
            call = GenerateCall(
                input_ids,
                model_kwargs.get("attention_mask"),
                logits_processor,
                stopping_criteria,
                generation_config,
            )

            def told(delta: Delta) -> None:
                if kept.streamer is not None:
                    put_tokens(kept.streamer, delta)
                if on_tokens is not None:
                    on_tokens(delta)

            attachment = attachment_of(model)
            with attachment.engine(self.key, self.spelling, self.method, tokenizer) as engine:
                engine.tokenizer = tokenizer
                completions = call.finish(_decode(engine, call.requests(), told), tokenizer)
        finally:
            if kept.streamer is not None:
                kept.streamer.end()
        if on_finish is not None:
            on_finish(completions)
        return call.result(completions)


def _decode(engine: Engine, requests: Sequence[Request], on_tokens: OnTokens) -> list[Completion]:
    rows: dict[int, int] = {}
    done: dict[int, Completion] = {}
    try:
        for row, request in enumerate(requests):
            rows[engine.add(request)] = row
        while engine.busy:
            for event in engine.step():
                if isinstance(event, Finished):
                    row = rows[event.request_id]
                    raise_failed(event.completion, row, len(rows))
                    done[row] = event.completion
                elif isinstance(event, Delta):
                    on_tokens(replace(event, request_id=rows[event.request_id]))
    finally:
        # Whatever a callback, a criterion or the model raised, the engine is kept for later calls.
        for number in rows:
            engine.cancel(number)
    return [done[row] for row in range(len(requests))]


def custom_generate(text: str, **options: object) -> CustomGenerate:
    """A method for ``model.generate(custom_generate=...)``, e.g. ``custom_generate("goose")``.

    Args:
        text: as :func:`draftwood.method` takes it, e.g. ``"goose:budget=16"``.
        options: further settings, e.g. ``budget=16``.

    Raises:
        DraftwoodError: the method or a setting is unknown, or a value is out of range.
    """
    chosen = methods.method(text, **options)
    given = sorted(options.items(), key=itemgetter(0))
    spelt = [f"{name}={_spelt(value)}" for name, value in given]
    key = (text, *((name, type(value), value) for name, value in given))
    return CustomGenerate(":".join([text, *spelt]), chosen, key)


def _spelt(value: object) -> str:
    return type(value).__name__ if isinstance(value, torch.nn.Module) else repr(value)


def generate(
    model: PreTrainedModel,
    inputs: Inputs | None = None,
    method: str | CustomGenerate = "auto",
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    streamer: Streamer | None = None,
    on_tokens: OnTokens | None = None,
    on_finish: OnFinish | None = None,
    **kwargs: Any,
) -> Generated:
    """``model.generate`` with a Draftwood method, for prompts in any form.

    Args:
        model: a decoder-only transformers model.
        inputs: text, token ids, several of either (texts are tokenised one by one and prompts
            padded on the left: no pad token is needed), or what a tokenizer returned, which may
            also be given as ``**inputs``.
        method: its spelling, e.g. ``"goose:budget=16"``, or what :func:`custom_generate` made.
        tokenizer: needed for text and for ``stop_strings``.
        streamer: is put the prompt, then each token as int64 ``[1]``, as by ``generate``; it is
            ended even if decoding fails. For one sequence.
        on_tokens: told of new tokens as they are committed; ``request_id`` is the row.
        on_finish: told of the finished rows, in order, with their statistics.
        kwargs: everything else that ``model.generate`` takes.

    Returns:
        What ``model.generate`` returns: the prompts and the generated tokens, int64 ``[B, L]``.
        Shorter prompts are padded on the left and shorter continuations on the right with the
        model's or tokenizer's pad token, or where there is none with the end-of-sequence token.

    Raises:
        DraftwoodError: something was asked for that cannot be honoured; the message names it.
    """
    ending = None if streamer is None else EndsOnce(streamer)
    try:
        if "custom_generate" in kwargs:
            raise DraftwoodError("custom_generate is given by method: leave it out")
        if kwargs.get("stop_strings") and tokenizer is None:
            raise DraftwoodError("stop_strings need a tokenizer: give one")
        configs = (kwargs.get("generation_config"), model.generation_config, tokenizer)
        pad = pad_token(kwargs, *configs)
        kwargs = arguments(inputs, kwargs, tokenizer, pad, model.device)
        generate: Any = model.generate  # which transformers leaves without a usable type
        generated: Generated = generate(
            **kwargs,
            custom_generate=_chosen(method),
            tokenizer=tokenizer,
            streamer=ending,
            on_tokens=on_tokens,
            on_finish=on_finish,
        )
        return generated
    finally:
        if ending is not None:
            ending.end()


def _chosen(method: object) -> CustomGenerate:
    if isinstance(method, CustomGenerate):
        return method
    if isinstance(method, str):
        return custom_generate(method)
    raise DraftwoodError(
        f"a method cannot be {method!r}: give its name, such as 'auto', or draftwood.auto()"
    )

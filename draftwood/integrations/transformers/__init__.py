"""Draftwood behind transformers' ``model.generate``.

``generate`` prepares configuration, processors and stopping criteria and passes them to the
callable defined here, which returns the result of ``generate``. Arguments that transformers does
not pass (``streamer``, ``tokenizer``) are read by
:mod:`draftwood.integrations.transformers.calling_frame`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from time import perf_counter
from typing import Any, ClassVar, TypeAlias

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)
from transformers.generation.streamers import BaseStreamer

from draftwood import methods
from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Delta, Finished, Request
from draftwood.errors import DraftwoodError
from draftwood.grammars.grammar import Grammar
from draftwood.integrations.transformers.attachment import attachment_of
from draftwood.integrations.transformers.call import GenerateCall, Generated
from draftwood.integrations.transformers.calling_frame import TokenizerSignature, withheld_from
from draftwood.integrations.transformers.failures import raise_failed
from draftwood.integrations.transformers.inputs import (
    Inputs,
    arguments,
    pad_token,
    with_pad_token,
)
from draftwood.integrations.transformers.limits import refuse_paged, refuse_unsupported
from draftwood.integrations.transformers.streaming import (
    SingleEndStreamer,
    put_tokens,
    refuse_rows,
)
from draftwood.methods.recipe import Method

__all__ = ["CustomGenerate", "Generated", "custom_generate", "generate"]

OnTokens: TypeAlias = Callable[[Delta], None]
OnFinish: TypeAlias = Callable[[list[Completion]], None]


@dataclass(frozen=True, eq=False)
class CustomGenerate:
    """A method for ``model.generate(custom_generate=...)``.

    The first call attaches the model; :func:`draftwood.detach` undoes it.

    Attributes:
        spelling: the method and its settings as text, for messages.
        method: the method.
        key: equal for equal settings. It holds a model that was given as an object, because two
            models of one architecture have the same spelling.
    """

    spelling: str
    method: Method
    key: Hashable

    __signature__: ClassVar = TokenizerSignature()

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
        prefix_cache: int | str | None = None,
        grammar: Grammar | None = None,
        **model_kwargs: Any,
    ) -> Generated:
        """Decode for ``generate``, which passes ``on_tokens``, ``on_finish`` and the rest on.

        ``generate``'s ``streamer`` works too, and is ended even if decoding fails.

        Args:
            model: the model whose ``generate`` was called.
            input_ids: int64 ``[B, L]``, padded on the left.
            logits_processor: as prepared by ``generate``.
            stopping_criteria: as prepared by ``generate``.
            generation_config: as prepared by ``generate``.
            on_tokens: called with new tokens as they are committed; ``request_id`` is the row.
            on_finish: called with the finished rows, in order, with their statistics.
            tokenizer: decodes the text that ``on_tokens`` and ``on_finish`` get; without one the
                text is empty.
            prefix_cache: see :func:`generate`.
            grammar: that the text of every row must have; it needs the tokenizer.
            model_kwargs: the arguments that ``generate`` prepared for the model.

        Raises:
            DraftwoodError: an argument is not supported; the message names it.
        """
        withheld = withheld_from(model)
        try:
            refuse_unsupported(model, generation_config, model_kwargs, withheld)
            if withheld.streamer is not None:
                refuse_rows(input_ids.shape[0])
            call = GenerateCall(
                input_ids,
                model_kwargs.get("attention_mask"),
                logits_processor,
                stopping_criteria,
                generation_config,
                grammar,
            )

            def report(delta: Delta) -> None:
                if withheld.streamer is not None:
                    put_tokens(withheld.streamer, delta)
                if on_tokens is not None:
                    on_tokens(delta)

            begun = perf_counter()
            attachment = attachment_of(model)
            with attachment.engine(
                self.key, self.spelling, self.method, tokenizer, prefix_cache
            ) as engine:
                call.postpone(perf_counter() - begun)
                engine.tokenizer = tokenizer
                completions = call.finish(_decode(engine, call.requests(), report), tokenizer)
        finally:
            if withheld.streamer is not None:
                withheld.streamer.end()
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
        # If a callback, a criterion or the model raised, the engine stays usable for later calls.
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
    settings = [f"{name}={_as_text(value)}" for name, value in given]
    key = (text, *((name, type(value), _frozen(value)) for name, value in given))
    return CustomGenerate(":".join([text, *settings]), chosen, key)


def _frozen(value: object) -> object:
    """A setting's value with a hash: a list is taken for a setting of several values, too."""
    return tuple(value) if isinstance(value, list) else value


def _as_text(value: object) -> str:
    return type(value).__name__ if isinstance(value, torch.nn.Module) else repr(value)


def generate(
    model: PreTrainedModel,
    inputs: Inputs | None = None,
    method: str | CustomGenerate = "auto",
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    streamer: BaseStreamer | None = None,
    on_tokens: OnTokens | None = None,
    on_finish: OnFinish | None = None,
    prefix_cache: int | str | None = None,
    grammar: Grammar | None = None,
    **kwargs: Any,
) -> Generated:
    """``model.generate`` with a Draftwood method, for prompts in any form.

    Args:
        model: a decoder-only transformers model.
        inputs: text, token ids, a list of either, or a tokenizer's output, which may also be given
            as ``**inputs``. Texts are tokenised one by one and prompts padded on the left; no pad
            token is needed.
        method: its spelling, e.g. ``"goose:budget=16"``, or a result of :func:`custom_generate`.
        tokenizer: needed for text and for ``stop_strings``.
        streamer: gets the prompt, then each token as int64 ``[1]``, as from ``generate``; it is
            ended even if decoding fails. For one sequence.
        on_tokens: called with new tokens as they are committed; ``request_id`` is the row.
        on_finish: called with the finished rows, in order, with their statistics.
        prefix_cache: most bytes of finished texts whose keys and values are kept for later calls
            with the same method, or a text such as ``"1GB"``; None: none. A prompt that begins like
            one of them computes only what is new.
        grammar: that every generated text must have; it needs the tokenizer.
        kwargs: further arguments of ``model.generate``.

    Returns:
        The result of ``model.generate``: the prompts and the generated tokens, int64 ``[B, L]``.
        Shorter prompts are padded on the left and shorter continuations on the right, with the pad
        token of the model or tokenizer, or else the end-of-sequence token.

    Raises:
        DraftwoodError: an argument is not supported; the message names it.
    """
    ending = None if streamer is None else SingleEndStreamer(streamer)
    try:
        if "custom_generate" in kwargs:
            raise DraftwoodError("custom_generate is given by method: leave it out")
        refuse_paged(kwargs)
        if kwargs.get("stop_strings") and tokenizer is None:
            raise DraftwoodError("stop_strings need a tokenizer: give one")
        config = kwargs.get("generation_config")
        pad = pad_token(kwargs, config, model.generation_config, tokenizer)
        kwargs = arguments(inputs, kwargs, tokenizer, pad or 0, model.device)
        kwargs = with_pad_token(kwargs, model.generation_config, tokenizer)
        generate: Any = model.generate  # which transformers leaves without a usable type
        generated: Generated = generate(
            **kwargs,
            custom_generate=_chosen(method),
            tokenizer=tokenizer,
            streamer=ending,
            on_tokens=on_tokens,
            on_finish=on_finish,
            prefix_cache=prefix_cache,
            grammar=grammar,
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

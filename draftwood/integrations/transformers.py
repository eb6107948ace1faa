"""Draftwood behind transformers' ``model.generate``.

``generate`` prepares everything (configuration, processors, stopping criteria) and hands it to the
callable made here, which returns what ``generate`` would have returned. What transformers does not
hand to a callable (``streamer``, ``tokenizer``) is taken by :func:`generate`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
    StopStringCriteria,
)

from draftwood import methods
from draftwood.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.integrations.attachment import attachment_of, detach
from draftwood.integrations.generate_call import GenerateCall, Generated
from draftwood.integrations.generate_limits import refuse_unsupported
from draftwood.recipes import Method
from draftwood.requests import Completion, Delta, Finished, Request

__all__ = ["CustomGenerate", "Generated", "custom_generate", "detach", "generate"]

OnTokens: TypeAlias = Callable[[Delta], None]
OnFinish: TypeAlias = Callable[[list[Completion]], None]


class Streamer(Protocol):
    """What transformers' streamers do."""

    def put(self, value: torch.Tensor) -> object:
        """Take the prompt int64 ``[1, L]``, then token after token int64 ``[1]``."""
        ...

    def end(self) -> object:
        """There is no more."""
        ...


@dataclass(frozen=True, eq=False)
class CustomGenerate:
    """A method, as ``model.generate(custom_generate=...)`` takes it.

    The first call attaches the model, and later calls find it attached; :func:`detach` undoes it.

    Attributes:
        spelling: names the method and all its settings.
        method: what it names.
    """

    spelling: str
    method: Method

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        on_tokens: OnTokens | None = None,
        on_finish: OnFinish | None = None,
        **model_kwargs: Any,
    ) -> Generated:
        """Called by ``generate``, which takes ``on_tokens`` and ``on_finish`` as its own arguments.

        Args:
            model: the one whose ``generate`` was called.
            input_ids: int64 ``[B, L]``, padded on the left.
            logits_processor: as prepared by ``generate``.
            stopping_criteria: as prepared by ``generate``.
            generation_config: as prepared by ``generate``.
            on_tokens: told of new tokens as they are committed; ``request_id`` is the row.
            on_finish: told of the finished rows, in order, with their statistics.
            model_kwargs: what ``generate`` would have handed to the model.

        Raises:
            DraftwoodError: something was asked for that cannot be honoured; the message names it.
        """
        refuse_unsupported(model, generation_config, model_kwargs)
        call = GenerateCall(
            input_ids,
            model_kwargs.get("attention_mask"),
            logits_processor,
            stopping_criteria,
            generation_config,
        )
        with attachment_of(model).engine(self.spelling, self.method) as engine:
            completions = call.finish(_decode(engine, call.requests(), on_tokens))
        if on_finish is not None:
            on_finish(completions)
        return call.result(completions)


def _decode(
    engine: Engine, requests: Sequence[Request], on_tokens: OnTokens | None
) -> list[Completion]:
    rows: dict[int, int] = {}
    done: dict[int, Completion] = {}
    try:
        for row, request in enumerate(requests):
            rows[engine.add(request)] = row
        while engine.busy:
            for event in engine.step():
                if isinstance(event, Finished):
                    done[rows[event.request_id]] = event.completion
                elif isinstance(event, Delta) and on_tokens is not None:
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
    spelt = [f"{name}={value!r}" for name, value in sorted(options.items())]
    return CustomGenerate(":".join([text, *spelt]), chosen)


def generate(
    model: PreTrainedModel,
    inputs: str | Sequence[str] | torch.Tensor,
    method: str | CustomGenerate = "goose",
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    streamer: Streamer | None = None,
    on_tokens: OnTokens | None = None,
    on_finish: OnFinish | None = None,
    **kwargs: Any,
) -> Generated:
    """``model.generate`` with a Draftwood method, streamers and stop strings included.

    Args:
        model: a decoder-only transformers model.
        inputs: text, several texts, or token ids int64 ``[L]`` or ``[B, L]``.
        method: its spelling, e.g. ``"goose:budget=16"``, or what :func:`custom_generate` made.
        tokenizer: needed for text and for ``stop_strings``.
        streamer: is put the prompt, then each token as int64 ``[1]``, as by ``generate``; it is
            ended even if decoding fails. For one sequence.
        on_tokens: told of new tokens as they are committed; ``request_id`` is the row.
        on_finish: told of the finished rows, in order, with their statistics.
        kwargs: everything else that ``model.generate`` takes.

    Returns:
        What ``model.generate`` returns: the prompt and the generated tokens.

    Raises:
        DraftwoodError: something was asked for that cannot be honoured; the message names it.
    """
    if isinstance(method, str):
        method = custom_generate(method)
    if "custom_generate" in kwargs:
        raise DraftwoodError("custom_generate is given by method: leave it out")
    kwargs = _inputs(model, inputs, tokenizer) | _with_stop_strings(model, tokenizer, kwargs)
    kwargs |= {"custom_generate": method, "on_finish": on_finish}
    if streamer is None:
        return _generate(model, **kwargs, on_tokens=on_tokens)
    if kwargs["input_ids"].shape[0] != 1:
        raise DraftwoodError("a streamer takes one sequence: give one prompt")

    def put(delta: Delta) -> None:
        if delta.request_id != 0:
            raise DraftwoodError("a streamer takes one sequence: leave num_return_sequences at 1")
        for token in delta.tokens:
            streamer.put(torch.tensor([token]))
        if on_tokens is not None:
            on_tokens(delta)

    try:
        streamer.put(kwargs["input_ids"].cpu())
        return _generate(model, **kwargs, on_tokens=put)
    finally:
        streamer.end()


def _generate(model: PreTrainedModel, **kwargs: Any) -> Generated:
    generate: Any = model.generate  # which transformers leaves without a usable type
    generated: Generated = generate(**kwargs)
    return generated


def _inputs(
    model: PreTrainedModel,
    inputs: str | Sequence[str] | torch.Tensor,
    tokenizer: PreTrainedTokenizerBase | None,
) -> dict[str, Any]:
    if isinstance(inputs, torch.Tensor):
        ids = inputs.to(model.device)
        return {"input_ids": ids[None] if ids.dim() == 1 else ids}
    if tokenizer is None:
        raise DraftwoodError("a prompt that is text needs a tokenizer: give one, or token ids")
    if isinstance(inputs, str):
        encoded = tokenizer([inputs], return_tensors="pt")
    else:
        encoded = tokenizer(list(inputs), padding=True, padding_side="left", return_tensors="pt")
    return {name: encoded[name].to(model.device) for name in ("input_ids", "attention_mask")}


def _with_stop_strings(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments with stop strings as a criterion: to callables transformers refuses them."""
    found = kwargs.get("stop_strings")
    if "stop_strings" not in kwargs:
        configs = (kwargs.get("generation_config"), model.generation_config)
        strings = [getattr(config, "stop_strings", None) for config in configs]
        found = next((s for s in strings if s is not None), None)
    if not found:
        return kwargs
    if tokenizer is None:
        raise DraftwoodError("stop_strings need a tokenizer: give one")
    criteria = StoppingCriteriaList(kwargs.get("stopping_criteria") or ())
    criteria.append(StopStringCriteria(tokenizer, found))
    return kwargs | {"stop_strings": None, "stopping_criteria": criteria}

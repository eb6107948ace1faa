"""The service of a loaded model, for ``draftwood serve`` and for other hosts of the application."""

from collections.abc import Sequence
from typing import Literal

from draftwood.engine.arguments import Makes, target_of
from draftwood.engine.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.models import Loaded
from draftwood.server.parsing import parser_maker, response_template, tag_tokens
from draftwood.server.service import Service, started
from draftwood.server.settings import (
    PREFIX_CACHE,
    Names,
    ServeSettings,
    checked_keys,
    checked_origins,
    model_defaults,
)
from draftwood.server.tools import call_form

_KEPT = 10**9
"""Bytes of finished texts."""


def service_of(
    loaded: Loaded,
    method: Method | Makes | str = "auto",
    *,
    names: Sequence[str] = (),
    template: str | None = None,
    api_keys: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    max_batch: int = 64,
    max_queue: int = 256,
    memory: int | str | None = None,
    prefix_cache: int | str | None = PREFIX_CACHE,
    max_model_len: int | None = None,
    max_body: int = 8 << 20,
    sampling_defaults: Literal["model", "openai"] = "model",
    metrics_names: Names = "draftwood",
) -> Service:
    """A service with an engine of its own, which decodes from now on until it is closed.

    Args:
        loaded: the model and its tokenizer, of :func:`draftwood.load`.
        method: as :class:`draftwood.Engine` takes it.
        names: that clients call the model by; empty: the name it was loaded by.
        template: chat template, in the place of the model's own.
        api_keys: one of them is asked for, if there are any.
        allowed_origins: whose pages may ask from a browser, such as ``"https://chat.example"``;
            ``"*"``: all pages.
        max_batch: most requests decoded together.
        max_queue: most requests that are held beyond these.
        memory: most memory of keys and values, in bytes or as ``"4GB"``; None: no limit.
        prefix_cache: memory of finished texts, likewise; None or 0: none are kept; ``"auto"``:
            1 GB, or none of a model with recurrent layers.
        max_model_len: most tokens of a prompt and its answer; None: the model's context.
        max_body: most bytes of a request's body.
        sampling_defaults: of requests that leave sampling out: the model's generation config, or
            the API's.
        metrics_names: what the names of metrics begin with.

    Raises:
        DraftwoodError: the model or the method cannot be used, memory is no number of bytes, a key
            or an origin is none, or ``max_model_len`` exceeds the model's context.
    """
    keys, origins = checked_keys(api_keys), checked_origins(allowed_origins)
    model, tokenizer = loaded.model, loaded.tokenizer
    target = target_of(model)
    if prefix_cache == PREFIX_CACHE:
        # A text takes several states there, each of them as much as thousands of tokens.
        prefix_cache = None if target.info.slot_bytes else _KEPT
    engine = Engine(
        target, method, tokenizer, max_batch=max_batch, memory=memory, prefix_cache=prefix_cache
    )
    config = model.generation_config if sampling_defaults == "model" else None
    sampling, max_tokens = model_defaults(config)
    answers = response_template(tokenizer, model)
    settings = ServeSettings(
        names=tuple(names) or (loaded.name,),
        root=loaded.name,
        context=_context(engine, max_model_len),
        max_body=max_body,
        api_keys=keys,
        allowed_origins=origins,
        metrics_names=metrics_names,
        sampling=sampling,
        max_tokens=max_tokens,
    )
    return started(
        engine,
        settings,
        most=max_batch + max_queue,
        template=template,
        parser=parser_maker(tokenizer, model),
        tags=tag_tokens(tokenizer, answers),
        call_form=call_form(answers),
        eos=loaded.eos,
    )


def _context(engine: Engine, given: int | None) -> int:
    """Most tokens of a prompt and its answer."""
    own = engine.target.info.context_limit
    if given is not None and given > own:
        raise DraftwoodError(
            f"max_model_len is {given}: the model's context holds {own}; ask for no more"
        )
    return own if given is None else given

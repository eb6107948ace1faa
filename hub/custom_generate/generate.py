"""``model.generate`` through Draftwood, as the ``custom_generate`` of a Hub repository.

transformers calls :func:`generate` for ``model.generate(custom_generate="THIS_REPOSITORY")``, and
in place of ``model.generate`` for a checkpoint that holds this file as
``custom_generate/generate.py``.
"""

from typing import Any

from transformers import GenerationMixin, PreTrainedModel

import draftwood

METHOD = "auto"
"""The method of callers that name none. A checkpoint's own copy of this file may name another."""


def generate(
    *inputs: Any,
    model: PreTrainedModel,
    method: str | draftwood.CustomGenerate | None = None,
    custom_generate: Any = None,
    **kwargs: Any,
) -> Any:
    """The result of ``model.generate(*inputs, **kwargs)``, decoded by a Draftwood method.

    Args:
        inputs: the prompts, if they are given by position, as to ``model.generate``.
        model: a decoder-only model in ``eval()`` mode. By keyword, as both of transformers' calls
            give it: the prompts of a checkpoint's own ``generate`` come first.
        method: its spelling, e.g. ``"goose:budget=16"``, or what ``draftwood.goose(budget=16)``
            returns; None: ``METHOD``.
        custom_generate: a caller's own decoding, which then runs instead.
        kwargs: further arguments of ``model.generate``, and Draftwood's ``on_tokens``,
            ``on_finish``, ``prefix_cache`` and ``grammar``.

    Raises:
        DraftwoodError: the method is unknown, a setting is wrong, or an argument is not supported;
            the message names it.
    """
    if custom_generate is not None:
        if method is not None:
            raise draftwood.DraftwoodError(
                "method and custom_generate both say how to decode: leave one of them out"
            )
    elif isinstance(method, draftwood.CustomGenerate):
        custom_generate = method
    else:
        custom_generate = draftwood.custom_generate(METHOD if method is None else method)
    if kwargs.get("cache_implementation") == "paged":
        raise draftwood.DraftwoodError(
            "cache_implementation='paged' decodes without Draftwood: leave it out"
        )
    # Not model.generate, which is this function for a checkpoint that holds this file.
    plain: Any = GenerationMixin.generate
    return plain(model, *inputs, custom_generate=custom_generate, **kwargs)

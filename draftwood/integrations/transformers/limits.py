"""Refuses, by name, arguments of ``generate`` that Draftwood does not support.

``generate`` passes all its settings to a callable and relies on it. So every setting that is not
known to be supported is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed as dist
from transformers import GenerationConfig, PreTrainedModel
from transformers.distributed.fsdp import is_fsdp_managed_module
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers.calling_frame import Withheld
from draftwood.runner.attach import refuse_model

_REASONS = {
    "output_attentions": "attention weights of a tree are not those of a sequence",
    "output_hidden_states": "hidden states of a tree are not those of a sequence",
    "num_beams": "beam search is not supported: remove num_beams or custom_generate",
    "num_beam_groups": "beam search is not supported: remove num_beams or custom_generate",
    "constraints": "they need beam search",
    "force_words_ids": "they need beam search",
    "penalty_alpha": "contrastive search is not sampling from the model",
    "dola_layers": "DoLa is not sampling from the model",
    "prompt_lookup_num_tokens": "it drafts by itself; use custom_generate=draftwood.pld()",
    "assistant_early_exit": "it drafts by itself",
    "use_mtp": "it drafts by itself",
    "speculation_type": "it drafts by itself",
    "is_assistant": "the model drafts for another one",
    "cache_implementation": "Draftwood keeps its own cache",
    "cache_config": "Draftwood keeps its own cache",
    "max_cache_len": "Draftwood keeps its own cache",
    "prefill_chunk_size": "Draftwood caches prompts in chunks of its own; draftwood.attach takes "
    "chunk=N",
    "low_memory": "Draftwood keeps its own cache",
    "compile_config": "Draftwood does not compile the model",
}
_HARMLESS = {"num_beams": 1, "num_beam_groups": 1}
# What generate itself adds to the model's arguments.
_KNOWN = {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep"}


def refuse_unsupported(
    model: PreTrainedModel,
    config: GenerationConfig,
    model_kwargs: Mapping[str, Any],
    withheld: Withheld,
) -> None:
    """Check the arguments that ``generate`` prepared, and those that it withholds.

    Raises:
        DraftwoodError: an argument is not supported; the message names it.
    """
    refuse_model(model)
    # A wrapper such as PEFT replaces this method while its generate calls the model's own.
    refuse_model(getattr(model.prepare_inputs_for_generation, "__self__", model))
    _refuse_adapters(model)
    _refuse_withheld(withheld, model)
    for name, reason in _REASONS.items():
        value = getattr(config, name, None)
        if value and value != _HARMLESS.get(name):
            raise _refusal(name, value, reason)
    if config.use_cache is False:
        raise DraftwoodError(
            "generate(use_cache=False) cannot be honoured, because drafting needs a cache: leave "
            "it out"
        )
    for name, value in model_kwargs.items():
        # For text alone, generate adds an empty mapping of the other modalities.
        nothing = value is None or (isinstance(value, Mapping) and not value)
        if not nothing and name not in _KNOWN:
            raise DraftwoodError(
                f"generate({name}=...) is not supported by a Draftwood method: leave it out"
            )
    _refuse_cache(model_kwargs.get("past_key_values"))
    _refuse_positions(model_kwargs.get("position_ids"), model_kwargs.get("attention_mask"))


def refuse_paged(kwargs: Mapping[str, Any]) -> None:
    """Refuse the setting with which ``generate`` decodes by itself, whatever callable it is given.

    Raises:
        DraftwoodError: it is among a call's keyword arguments.
    """
    name = "cache_implementation"
    if kwargs.get(name) == "paged":
        raise _refusal(name, "paged", _REASONS[name])


def _refusal(name: str, value: object, reason: str) -> DraftwoodError:
    return DraftwoodError(
        f"generate({name}={value!r}) cannot be combined with a Draftwood method: {reason}"
    )


def _refuse_adapters(model: PreTrainedModel) -> None:
    """Refuse a choice of adapters by row. PEFT keeps it in hooks and hands it to nobody."""
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            names = getattr(hook, "keywords", {}).get("adapter_names", ())
            if len(names) > 1:
                raise DraftwoodError(
                    "generate(adapter_names=...) of several rows is not supported, because a step "
                    "computes all rows in one: call generate once for each row"
                )


def _divided_by_parameters(model: PreTrainedModel) -> bool:
    """Whether processes hold parts of the parameters, as ``generate`` itself finds out."""
    zero3: Callable[[], bool] = is_deepspeed_zero3_enabled
    divided = zero3() or is_fsdp_managed_module(model)
    return bool(divided) and _processes() > 1


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _refuse_withheld(withheld: Withheld, model: PreTrainedModel) -> None:
    if withheld.assistant_model is not None:
        raise DraftwoodError(
            "generate(assistant_model=...) is transformers' own assisted decoding and would be "
            "ignored: leave it out and give the model to the method, as in "
            "custom_generate=draftwood.talon(draft=assistant_model)"
        )
    if withheld.synced_gpus or (withheld.synced_gpus is None and _divided_by_parameters(model)):
        raise DraftwoodError(
            "generate(synced_gpus=True), which DeepSpeed's ZeRO-3 and FSDP set, cannot be "
            "honoured: processes would take different numbers of steps; keep the whole model on "
            "each device"
        )


def _refuse_cache(cache: Any) -> None:
    # generate marks a cache that the user gave; its own one is empty.
    if cache is not None and (
        getattr(cache, "_is_user_defined", False) or cache.get_seq_length() > 0
    ):
        raise DraftwoodError(
            "generate(past_key_values=...) is not supported: Draftwood keeps its own cache, "
            "so give the whole sequence as input_ids"
        )


def _refuse_positions(positions: torch.Tensor | None, mask: torch.Tensor | None) -> None:
    if positions is None:
        return
    # Models that read images place a token on several axes, on all of which text counts alike.
    same = positions.dim() <= 3
    if mask is None:
        expected = torch.arange(positions.shape[-1], device=positions.device)
        same = same and bool((positions == expected).all())
    else:
        expected = mask.ne(0).long().cumsum(-1) - 1
        same = same and positions.shape[-2:] == mask.shape
        same = same and bool(((positions == expected) | mask.eq(0)).all())
    if not same:
        raise DraftwoodError(
            "generate(position_ids=...) is not supported, because positions count the prompt's "
            "tokens from 0: leave it out"
        )

"""Attaches a Hugging Face causal language model, and detaches it.

A model that cannot decode trees losslessly is refused with the reason. Every other model must pass
a self-test.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers

from draftwood.costs.progress import working
from draftwood.costs.store import identity
from draftwood.errors import DraftwoodError, integer
from draftwood.kernels.functions import kernels_version
from draftwood.models import eos_of, fingerprint_of, origin_of
from draftwood.models.devices import KINDS
from draftwood.protocols import Needs, TargetInfo
from draftwood.runner.attached_models import (
    attached_runner,
    find_attached,
    mark_attached,
    unmark_attached,
)
from draftwood.runner.attention import PREFIX, register
from draftwood.runner.attention_check import attention_on
from draftwood.runner.autocast import refuse_autocast
from draftwood.runner.block_cache import BlockCache
from draftwood.runner.cache import KVCache
from draftwood.runner.cpu.calls import DirectCalls, find_direct_calls
from draftwood.runner.cpu.int8 import Int8Linear, patch_int8
from draftwood.runner.cpu.layers import FusedLayers, fuse_layers
from draftwood.runner.cpu.layout_cache import cached_layouts
from draftwood.runner.cpu.norms import fuse_norms
from draftwood.runner.cpu.packing import PackedLinear, pack
from draftwood.runner.cuda_graphs import CudaGraphs
from draftwood.runner.device_masks import DeviceMasks
from draftwood.runner.device_trees import DeviceTrees
from draftwood.runner.eager import eagerly
from draftwood.runner.forward import ForwardPass
from draftwood.runner.gpu_layers import GpuLayers, fuse_gpu_layers
from draftwood.runner.implementations import kept, set_for_text
from draftwood.runner.masks import LayerKind, MaskBuilder, TreeMasks, attend_only, layer_kinds
from draftwood.runner.place import attention_of
from draftwood.runner.prefill import CHUNK
from draftwood.runner.probe import OWN_ATTENTION, CacheLayout, probe_cache
from draftwood.runner.quantised import row_mixing
from draftwood.runner.ranks import Ranks, ranks_of
from draftwood.runner.recompute import RecomputingRunner, recompute_limit
from draftwood.runner.recurrent.mixers import Mixer, find_mixers, served_states
from draftwood.runner.recurrent.states import RecurrentStates
from draftwood.runner.rotary import context_limit_of, patch_rotary, position_limits
from draftwood.runner.row_cache import RowCache
from draftwood.runner.runner import Runner
from draftwood.runner.selftest import Reference, check_reference, make_references
from draftwood.runner.static import StaticForward
from draftwood.tree import tree_of

logger = logging.getLogger(__name__)

UNBOUNDED = 1 << 30
"""``context_limit`` of a model whose config names none."""


def attach(
    model: Any,
    *,
    packing: bool = True,
    fresh: bool = False,
    chunk: int | None = None,
    self_test: bool = True,
) -> Runner:
    """Attach ``model`` so that it scores token trees; :func:`detach` undoes it.

    The model keeps its modules, its ``state_dict`` and its own ``generate``. If it is attached
    already with the same settings, its runner is returned.

    Args:
        model: a decoder-only causal language model of transformers (PEFT-wrapped, quantised or
            plain), in ``eval()`` mode, on one device, or divided among processes by tensor
            parallelism (:mod:`draftwood.runner.ranks`). Each of them attaches it.
        packing: on a CPU, pack weights in place (:func:`draftwood.runner.cpu.packing.pack`) and
            fuse norms; on a GPU, make linears of one input one product
            (:mod:`draftwood.runner.joined_linears`). A divided model is left as it is.
        fresh: choose weight layouts anew instead of using those cached for this machine.
        chunk: prompt tokens per sequence and prefill forward, at least 1; by default 512 on a CPU,
            and 4,096 at a prompt's beginning where attention needs no mask, unless it comes alone
            and layers are fused for 512; 2,048 on other devices, 1,024 with recurrent layers.
        self_test: compare trees with the model's own forward before returning.

    Raises:
        DraftwoodError: the model cannot decode trees losslessly; the message says why. Or it is
            attached with other settings, or its device, dtype or vocabulary has changed since.
    """
    chunk = None if chunk is None else integer("chunk", chunk)
    if chunk is not None and chunk < 1:
        raise DraftwoodError(f"chunk is {chunk}; give at least 1 token per prefill forward")
    refuse_model(model)
    settings = f"packing={packing!r}, chunk={chunk}"
    known = find_attached(model)
    if known is not None:
        if known.settings != settings or (self_test and not known.tested):
            untested = "" if known.tested else ", self_test=False"
            raise DraftwoodError(
                f"this {type(model).__name__} is attached with {known.settings}{untested}: call "
                "draftwood.detach(model) first to attach it with other settings"
            )
        return known.runner
    config, device, mixers = _admit(model)
    ranks = _admit_divided(model, device, mixers)
    kinds = layer_kinds(config, recurrent=bool(mixers))
    name = register(config._attn_implementation)
    lengths = position_limits(config)
    references: list[Reference] = []
    if self_test:
        with (
            working(f"computing reference logits of {type(model).__name__} for the self-test"),
            eagerly(model),
        ):
            references = make_references(
                model, config.vocab_size, device, kinds, lengths, recurrent=bool(mixers)
            )
    with ExitStack() as failing:
        undo = failing.enter_context(ExitStack())
        undo.callback(unmark_attached, model)
        undo.callback(kept(model))
        set_for_text(model, name)
        layers = config.num_hidden_layers
        with eagerly(model):
            layout = probe_cache(model, kinds, layers, device, served_states(mixers))
        weights = fingerprint_of(model)  # packing moves them
        direct_calls = DirectCalls()
        fused_layers: FusedLayers | GpuLayers = FusedLayers()
        packed: list[PackedLinear | Int8Linear] = []
        # What is timed here, or replaced, would differ from process to process.
        if device.type == "cpu" and packing and ranks is None:
            packed = _patched(model, mixers, undo, fresh=fresh)
            direct_calls = find_direct_calls(model)
            fused_layers = fuse_layers(model)
        # After the direct calls, which hand on one argument only.
        recurrent = _recurrent(mixers, device, undo)
        masks = _mask_builders(kinds, layout, device)
        if isinstance(masks[0], DeviceTrees) and ranks is None:
            with eagerly(model):
                fused_layers = fuse_gpu_layers(
                    model, masks[0].kernel, layout.dtype, device, join=packing
                )
            undo.callback(fused_layers.undo)
        info = TargetInfo(
            vocab_size=layout.vocab_size,
            context_limit=context_limit_of(config) or UNBOUNDED,
            layers=layers,
            hidden_size=config.hidden_size,
            device=device,
            dtype=layout.dtype,
            # The costs of a divided model are measured each time: the processes of one machine
            # disturb one another, and only one could write them down.
            identity="" if ranks is not None else identity(config.to_dict()),
            origin=origin_of(model.config),
            eos=eos_of(model),
            fingerprint=weights,
            layouts=tuple(sorted({linear.layout_name for linear in packed})),
            kernels=kernels_version() if device.type == "cpu" else "",
            token_bytes=layout.token_bytes,
            config=config.to_dict(),
        )
        caches = [_cache(each, layout) for each in masks]
        rotary = _with_extents(model, lengths, undo)
        forward_pass = ForwardPass(
            *(model, caches[0], masks[0], device, direct_calls, rotary, fused_layers),
            drops_step=layout.drops_step,
        )
        forward_pass.recurrent, forward_pass.ranks = recurrent, ranks
        # Recurrent layers keep states at the ends of forwards. On a GPU it is not measured.
        forward_pass.large_beginning = (
            device.type == "cpu" and not mixers and not _whole_scores(model, config, layout)
        )
        forward_pass.fused_chunk = (
            isinstance(fused_layers, FusedLayers)
            and len(fused_layers) == layers
            and fused_layers.most >= CHUNK
        )
        # Rotary factors that depend on the texts' lengths ask for these in every forward, recurrent
        # layers for the trees, and the parts of a divided model for one another.
        if isinstance(caches[0], BlockCache) and not rotary and not mixers and ranks is None:
            _repeat(forward_pass, caches[0], device, undo)
        limit = recompute_limit(model, lengths, device) if rotary else None
        parts = (model, info, forward_pass, chunk, undo, packed)
        runner = Runner(*parts) if limit is None else RecomputingRunner(limit, *parts)
        with working("comparing the logits of a tree with those of its paths"):
            _check(runner, forward_pass, [*zip(masks, caches, strict=True)], references)
        runner.info = replace(_with_states(runner, recurrent), recomputed_above=limit)
        mark_attached(model, runner, settings, tested=self_test)
        failing.pop_all()
    logger.info(
        "%s attached: %d layers, %s on %s, %d CPU threads, %d linears packed%s, %d layers fused",
        type(model).__name__,
        info.layers,
        str(info.dtype).removeprefix("torch."),
        info.device,
        torch.get_num_threads(),
        len(packed),
        f" ({', '.join(info.layouts)})" if packed else "",
        len(fused_layers),
    )
    return runner


def _whole_scores(model: Any, config: Any, layout: CacheLayout) -> bool:
    """Whether attention keeps the scores of all pairs of tokens in memory at once."""
    pairs = [pair for pair in layout.layers if isinstance(pair, tuple)]
    return (
        getattr(config, "attn_logit_softcapping", None) is not None
        or any(getattr(module, "sinks", None) is not None for module in model.modules())
        or any(keys.width != values.width for keys, values in pairs)
    )


def _patched(
    model: Any, mixers: Sequence[Mixer], undo: ExitStack, *, fresh: bool
) -> list[PackedLinear | Int8Linear]:
    """Pack the linears of a model on a CPU and fuse its norms; returns the linears."""
    plain = {each for mixer in mixers for each in mixer.multiplied}
    packed: list[PackedLinear | Int8Linear] = [
        *pack(model, partial(cached_layouts, fresh=fresh), plain),
        *patch_int8(model),
    ]
    for patch in (*packed, *fuse_norms(model)):
        undo.callback(patch.undo)
    return packed


def _recurrent(
    mixers: Sequence[Mixer], device: torch.device, undo: ExitStack
) -> RecurrentStates | None:
    """The states of a model's recurrent layers, which read them from now on; None without any."""
    if not mixers:
        return None
    states = RecurrentStates(device)
    for mixer in mixers:
        mixer.serve(states)
        undo.callback(mixer.undo)
    return states


def _with_extents(model: Any, lengths: Sequence[int], undo: ExitStack) -> bool:
    """Patch rotary modules that need the length of a token's text; whether there are any."""
    patches = patch_rotary(model, lengths)
    for patch in patches:
        undo.callback(patch.undo)
    return bool(patches)


def _repeat(
    forward_pass: ForwardPass, cache: BlockCache, device: torch.device, undo: ExitStack
) -> None:
    """Have forwards over trees recorded as CUDA graphs and repeated."""
    graphs = CudaGraphs(device)
    forward_pass.static = StaticForward(forward_pass.call, cache, device, graphs)
    undo.callback(setattr, forward_pass, "static", None)


def _with_states(runner: Runner, states: RecurrentStates | None) -> TargetInfo:
    """The runner's facts with the bytes of recurrent states, which layers make when they run."""
    if states is None:
        return runner.info
    slot = runner.open(2)
    runner.prefill([slot], [[0]], Needs())
    runner.forward([slot], [tree_of([0], [-1])], Needs())
    of_a_node = states.node_bytes(slot)
    found = replace(runner.info, slot_bytes=states.slot_bytes, node_bytes=of_a_node)
    runner.release(slot)
    runner.trim()
    return found


def _mask_builders(
    kinds: tuple[LayerKind, ...], layout: CacheLayout, device: torch.device
) -> list[MaskBuilder]:
    """What can make the masks of a model, the best first."""
    facts = (kinds, layout.group, layout.dtype)
    if device.type == "cpu":
        return [TreeMasks(*facts)]
    kernel = None
    if device.type == "cuda" and layout.attended_as_cached:
        kernel = attention_on(device, layout.dtype, layout.attended)
    masks: list[MaskBuilder] = [DeviceMasks(*facts, device)]
    return masks if kernel is None else [DeviceTrees(kernel, *facts, device), *masks]


def _cache(masks: MaskBuilder, layout: CacheLayout) -> KVCache:
    """The cache that the attention of a mask builder reads."""
    of = BlockCache if isinstance(masks, DeviceTrees) else RowCache
    return of(layout.layers)


def _check(
    runner: Runner,
    forward_pass: ForwardPass,
    ways: Sequence[tuple[MaskBuilder, KVCache]],
    references: Sequence[Reference],
) -> None:
    """Compare the logits of trees, with the first masks with which they are right.

    Raises:
        DraftwoodError: they are right with none.
    """
    for masks, cache in ways:
        forward_pass.masks, forward_pass.cache = masks, cache
        try:
            for reference in references:
                check_reference(runner, reference)
        except Exception as error:  # a kernel may not even compile
            if masks is ways[-1][0]:
                raise
            logger.warning("trees attend with masks, as the kernel failed: %s", error)
            forward_pass.static = None
        else:
            return


def runner_of(model: Any) -> Runner:
    """The model's runner. A model that is not attached is attached with default settings.

    Raises:
        DraftwoodError: as :func:`attach`.
    """
    refuse_model(model)
    known = find_attached(model)
    return attach(model) if known is None else known.runner


def detach(model: Any) -> None:
    """Undo the attachment that :func:`attach`, an engine or ``generate`` made.

    The model is as it was before. If it is not attached, nothing happens but a warning in the log.
    Must not be called from a callback of ``generate``.

    Raises:
        DraftwoodError: this is no transformers model.
    """
    _refuse_other(model)
    runner = attached_runner(model)
    if runner is None:
        logger.warning("this %s is not attached: there is nothing to undo", type(model).__name__)
    else:
        runner.detach()


def _refuse_other(model: Any) -> None:
    if not hasattr(model, "set_attn_implementation") or not hasattr(model, "config"):
        raise DraftwoodError(
            f"{type(model).__name__} is not a transformers model; load it with transformers"
        )


def refuse_model(model: Any) -> None:
    """Refuse models that cannot decode trees losslessly, as far as their config tells.

    Raises:
        DraftwoodError: models of this kind cannot; the message says why.
    """
    _refuse_other(model)
    kind = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise DraftwoodError(f"{kind} is an encoder-decoder; only decoder-only models can be used")
    if getattr(model, "_is_stateful", False):
        _refuse_states(model)
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise DraftwoodError(
            f"the adapter of this {kind} puts virtual tokens before every text, which trees would "
            "not see; decode it without draftwood"
        )
    adapters = getattr(model, "peft_config", {})
    if any(getattr(each, "alora_invocation_tokens", None) for each in adapters.values()):
        raise DraftwoodError(
            f"an adapter of this {kind} is an activated LoRA, which begins in the middle of a "
            "text, and trees would not know where; decode it without draftwood"
        )
    if not getattr(model, "_can_set_attn_implementation", lambda: True)():
        raise DraftwoodError(f"{kind} {OWN_ATTENTION}")


def _refuse_states(model: Any) -> None:
    """Refuse recurrent layers that are not served, and models that have no others.

    Some classes of hybrids are also those of models whose layers all have attention.
    """
    kind, mixers = type(model).__name__, find_mixers(model)
    types = getattr(model.config.get_text_config(), "layer_types", None) or ()
    if not mixers and types and attend_only(types):
        return
    if not mixers:
        raise DraftwoodError(
            f"{kind} keeps a recurrent state, which cannot branch into a tree as transformers "
            f"{transformers.__version__} computes it; decode it without draftwood"
        )
    if not hasattr(model.config.get_text_config(), "num_attention_heads"):
        raise DraftwoodError(
            f"{kind} keeps a recurrent state and has no layer with attention, which is not served; "
            "decode it without draftwood"
        )


def _admit(model: Any) -> tuple[Any, torch.device, list[Mixer]]:
    """Text config, device and recurrent layers of a model that may be attached; refuse others."""
    kind = type(model).__name__
    config = model.config.get_text_config()
    if attention_of(model).startswith(PREFIX):
        raise DraftwoodError(
            f"this {kind} is a copy of an attached model or shares its configuration: call "
            "draftwood.detach on that model before you copy it, or "
            "copy.set_attn_implementation('sdpa') on the copy"
        )
    if getattr(config, "attn_temperature_tuning", False):
        raise DraftwoodError(
            f"{kind} scales the queries of its layers without rotary positions by the cache slot "
            "(attn_temperature_tuning), and the nodes of a tree have other slots than positions: "
            "it would take a scale by position; decode it without draftwood"
        )
    places = getattr(model, "hf_device_map", {}).values()
    devices = {parameter.device for parameter in model.parameters()}
    if ("cpu" in places and len(set(places)) > 1) or "disk" in places or len(devices) != 1:
        raise DraftwoodError(
            f"{kind} is spread over several devices or offloaded; load it on a single one"
        )
    device = devices.pop()
    if device.type not in KINDS:
        raise DraftwoodError(
            f"{kind} is on the device {str(device)!r}, and Draftwood runs on CPUs and CUDA GPUs "
            "only; load it on one of these"
        )
    if model.training:
        raise DraftwoodError(
            f"{kind} is in training mode, where dropout makes every forward random; call "
            "model.eval() first"
        )
    refuse_autocast(model, device)
    mixers = find_mixers(model)
    if any(mixer.replaced for mixer in mixers):
        raise DraftwoodError(
            f"{kind} has recurrent layers whose forward was replaced, by a kernel or a hook; load "
            "it with use_kernels=False and without hooks"
        )
    foreign = sorted({name for mixer in mixers for name in mixer.foreign})
    if foreign:
        raise DraftwoodError(
            f"{kind} has recurrent layers whose {', '.join(foreign)} is not the function of "
            f"transformers {transformers.__version__} and does not lead to it; load it without "
            "kernels and code of its own"
        )
    reason = row_mixing(model)
    if reason is not None:
        raise DraftwoodError(f"{kind} cannot decode trees losslessly: {reason}")
    return config, device, mixers


def _admit_divided(model: Any, device: torch.device, mixers: Sequence[Mixer]) -> Ranks | None:
    """The processes among which a model is divided, or None; refuse it if it cannot be served."""
    ranks = ranks_of(model, device)
    if ranks is not None and mixers:
        raise DraftwoodError(
            f"{type(model).__name__} has recurrent layers and is divided among processes, which "
            "has not been checked: load it on one device"
        )
    return ranks

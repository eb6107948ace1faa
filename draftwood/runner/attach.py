"""Attaching a Hugging Face causal language model, and taking the attachment back.

Refuses, each with a sentence, what cannot decode trees losslessly, and has everything else prove
itself in a self-test. Knows what an attachment consists of; nothing of how a step runs.
"""

import logging
from functools import partial
from typing import Any

import torch

from draftwood.costs.progress import working
from draftwood.costs.store import identity
from draftwood.errors import DraftwoodError, integer
from draftwood.models import eos_of, origin_of
from draftwood.protocols import TargetInfo
from draftwood.runner.attached import forget, found, keep
from draftwood.runner.attention import PREFIX, register
from draftwood.runner.cache import KVCache
from draftwood.runner.cpu.calls import Shortcuts, shorten
from draftwood.runner.cpu.chosen import remembered
from draftwood.runner.cpu.norms import FusedNorms, fuse_norms
from draftwood.runner.cpu.packing import Packed, pack
from draftwood.runner.eager import eagerly
from draftwood.runner.forward import Passes
from draftwood.runner.masks import TreeMasks, layer_kinds
from draftwood.runner.probe import learn_layout
from draftwood.runner.quantised import mixing
from draftwood.runner.recompute import RecomputingRunner, recomputed_at
from draftwood.runner.rotary import Ropes, context_of, follow, named_lengths
from draftwood.runner.runner import Runner
from draftwood.runner.selftest import Exam, examine, prepare

logger = logging.getLogger(__name__)

UNBOUNDED = 1 << 30
"""``context_limit`` of a model whose config names none."""

_OWN_ATTENTION = (
    "{} computes attention by itself and ignores set_attn_implementation; decode it without "
    "draftwood"
)


def attach(
    model: Any,
    *,
    packing: bool = True,
    fresh: bool = False,
    chunk: int = 512,
    self_test: bool = True,
) -> Runner:
    """Make ``model`` score token trees; undone by :func:`detach` or :meth:`Runner.detach`.

    The model keeps its modules, its ``state_dict`` and its own ``generate`` throughout. A model
    that is attached in this way already keeps the runner it has.

    Args:
        model: a decoder-only causal language model of transformers (PEFT-wrapped, quantised or
            plain), in ``eval()`` mode, on one device.
        packing: lay weights on a CPU out for few rows, in place
            (:func:`draftwood.runner.cpu.packing.pack`), and shorten the way to them and to norms.
        fresh: choose the weights' layouts anew instead of taking those kept for this machine.
        chunk: prompt tokens per sequence and prefill forward.
        self_test: compare trees with the model's own forward before returning.

    Raises:
        DraftwoodError: the model cannot decode trees losslessly; says why. Or it is attached in
            another way, or was moved since.
    """
    chunk = integer("chunk", chunk)
    if chunk < 1:
        raise DraftwoodError(f"chunk is {chunk}; give at least 1 token per prefill forward")
    refuse_model(model)
    ways = f"packing={packing!r}, chunk={chunk}"
    known = found(model)
    if known is not None:
        if known.ways != ways or (self_test and not known.tested):
            untested = "" if known.tested else ", self_test=False"
            raise DraftwoodError(
                f"this {type(model).__name__} is attached with {known.ways}{untested}: call "
                "draftwood.detach(model) first to attach it in another way"
            )
        return known.runner
    config, device = _admit(model)
    kinds = layer_kinds(config)
    original = config._attn_implementation
    name = register(original)
    lengths = named_lengths(config)
    exams: list[Exam] = []
    if self_test:
        with (
            working(f"computing what {type(model).__name__} says of a tree's paths"),
            eagerly(model),
        ):
            exams = prepare(model, config.vocab_size, device, kinds, lengths)
    model.set_attn_implementation(name)
    patches: list[Packed | FusedNorms | Ropes] = []
    shortcuts = Shortcuts()

    def undo() -> None:
        for patch in patches:
            patch.undo()
        patches.clear()
        model.set_attn_implementation(original)
        forget(model)

    try:
        if config._attn_implementation != name:
            raise DraftwoodError(_OWN_ATTENTION.format(type(model).__name__))
        layers = config.num_hidden_layers
        with eagerly(model):
            layout = learn_layout(model, kinds, layers, device)
        packed = Packed([])
        if device.type == "cpu" and packing:
            packed = pack(model, partial(remembered, fresh=fresh))
            patches += [packed, fuse_norms(model)]
            shortcuts = shorten(model)
        masks = TreeMasks(kinds, layout.group, layout.dtype, device)
        info = TargetInfo(
            vocab_size=layout.vocab_size,
            context_limit=context_of(config) or UNBOUNDED,
            layers=layers,
            hidden_size=config.hidden_size,
            device=device,
            dtype=layout.dtype,
            identity=identity(config.to_dict()),
            origin=origin_of(model.config),
            eos=eos_of(model),
        )
        slab = KVCache(layout.layers)
        ropes = follow(model, lengths)
        patches.append(ropes)
        passes = Passes(model, slab, device, shortcuts, ropes)
        limit = recomputed_at(model, lengths, device) if ropes else None
        parts = (model, info, slab, masks, passes, chunk, undo, packed.refresh)
        runner = Runner(*parts) if limit is None else RecomputingRunner(limit, *parts)
        with working("checking that trees get the logits of their paths"):
            for exam in exams:
                examine(runner, exam)
    except BaseException:
        undo()
        raise
    keep(model, runner, ways, tested=self_test)
    logger.info(
        "%s attached: %d layers, %s on %s, %d CPU threads, %d linears packed",
        type(model).__name__,
        info.layers,
        str(info.dtype).removeprefix("torch."),
        info.device,
        torch.get_num_threads(),
        len(packed),
    )
    return runner


def runner_of(model: Any) -> Runner:
    """The model's runner; it is attached with the defaults of :func:`attach` if it is not yet.

    Raises:
        DraftwoodError: as :func:`attach`.
    """
    refuse_model(model)
    known = found(model)
    return attach(model) if known is None else known.runner


def detach(model: Any) -> None:
    """Give the model back as it was before it was attached, by whatever attached it.

    A model that is not attached is left alone, with a warning in the log.

    Raises:
        DraftwoodError: this is no model of transformers.
    """
    refuse_other(model)
    runner = forget(model)
    if runner is None:
        logger.warning("this %s is not attached: there is nothing to undo", type(model).__name__)
    else:
        runner.detach()


def refuse_other(model: Any) -> None:
    """Check that this is a model of transformers, of whatever kind.

    Raises:
        DraftwoodError: it is something else.
    """
    if not hasattr(model, "set_attn_implementation") or not hasattr(model, "config"):
        raise DraftwoodError(
            f"{type(model).__name__} is not a transformers model; load it with transformers"
        )


def refuse_model(model: Any) -> None:
    """Check what is known of a model's kind without running it.

    Raises:
        DraftwoodError: models of this kind cannot decode trees losslessly; says why.
    """
    refuse_other(model)
    kind = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise DraftwoodError(f"{kind} is an encoder-decoder; only decoder-only models can be used")
    if getattr(model, "_is_stateful", False):
        raise DraftwoodError(
            f"{kind} keeps a recurrent state, which cannot branch into a tree; decode it without "
            "draftwood"
        )
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise DraftwoodError(
            f"the adapter of this {kind} puts virtual tokens before every text, which trees would "
            "not see; decode it without draftwood"
        )
    if not getattr(model, "_can_set_attn_implementation", lambda: True)():
        raise DraftwoodError(_OWN_ATTENTION.format(kind))


def _admit(model: Any) -> tuple[Any, torch.device]:
    """The text config and the device of a model that may be attached."""
    kind = type(model).__name__
    config = model.config.get_text_config()
    if getattr(config, "_attn_implementation", "").startswith(PREFIX):
        raise DraftwoodError(
            f"this {kind} is a copy of an attached model or shares its configuration: call "
            "draftwood.detach on that model first"
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
    if model.training:
        raise DraftwoodError(
            f"{kind} is in training mode, where dropout makes every forward random; call "
            "model.eval() first"
        )
    reason = mixing(model)
    if reason is not None:
        raise DraftwoodError(f"{kind} cannot decode trees losslessly: {reason}")
    return config, devices.pop()

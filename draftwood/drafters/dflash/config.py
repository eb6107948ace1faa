"""The configuration of a DFlash, DFlash2 or DSpark drafter, read from each published layout.

* z-lab's: a Qwen3 configuration with ``dflash_config``, also of DFlash2; so is SpecForge's of
  DSpark (``DSparkDraftModel``, ``projector_type: dspark``);
* that of ``speculators`` (``speculators_model_type: dflash``, ``dflash2`` or ``dspark``), with the
  layers' configuration under ``transformer_layer_config``;
* DeepSpec's (``Qwen3DSparkModel``), with everything at the top level. Without a Markov head
  (``markov_rank: 0``) it is DFlash;
* transformers' own (:mod:`draftwood.drafters.dflash.assistant`).

They name the hidden states that are read in ways that differ by one. z-lab's and DeepSpec's id i is
the output of layer i, which is the state entering layer i + 1, and DeepSpec's -1 the embedding.
speculators' id i is the state entering layer i. Slot j of a block is the token at position j, or
with ``sample_from_anchor`` the one after it. The latter is what DSpark is trained with, and all of
DeepSpec's drafters, unless the configuration says otherwise.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from transformers import Qwen3Config

from draftwood.drafters._config import (
    architectures,
    check_layer,
    layers,
    number,
    part,
    reading,
    whole,
    without_nulls,
)
from draftwood.drafters.dflash.assistant import as_others, is_assistant
from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetInfo

NOUN = "a DFlash drafter"
WHOSE = "the DFlash drafter's"
_BLOCK = 16
_RELATIVES = {
    "DominoDraftModel": "Domino",
    "Gemma4DSparkModel": "DSpark with layers of Gemma 4",
    "JetSpecDraftModel": "JetSpec",
    "domino": "Domino",
    "jetspec": "JetSpec",
    "xpress": "XPress",
}
"""Formats of the same family that compute something else, by the name that a configuration has."""

_DEEPSPEC = "Qwen3DSparkModel"
_DSPARK = {_DEEPSPEC, "DSparkDraftModel", "dspark"}
_DFLASH2 = {"DFlash2DraftModel", "dflash2"}
_OTHERS = ("architectures", "auto_map", "model_type", "dtype", "torch_dtype")
"""Fields that say nothing of the layers."""
_NULL = ("num_key_value_heads",)
"""Fields of the layers whose null is no default: as many as ``num_attention_heads``."""
_INSIDE = "dspark_block_size"
_MARKOV_RANK = 256
_MARKOV_HEADS = ("vanilla", "gated", "rnn")


@dataclass(frozen=True)
class SelectorSizes:
    """What DFlash2 adds to DFlash.

    Attributes:
        kernel: slots that a convolution sees.
        group: channels that share a slot's part of a kernel.
        rank: width of the selector's codebooks.
        top_k: candidates of a slot.
    """

    kernel: int
    group: int
    rank: int
    top_k: int


@dataclass(frozen=True)
class DFlashConfig:
    """The configuration of a DFlash drafter.

    Attributes:
        layers: sizes and RoPE of its layers.
        taps: the target's hidden states that are read, as in :class:`draftwood.protocols.Needs`.
        block_size: slots of a block, the anchor's included.
        mask_token: id of the token in all slots but the anchor's.
        from_anchor: whether slot j is the token after position j, and not the one at it.
        windows: of each layer, the keys before a query that it sees; None: all.
        causal: of each layer, whether a slot sees the slots before it only.
        input_scale: factor of embeddings.
        output_scale: factor of logits.
        softcap: of the logits, ``c * tanh(x / c)``; None: none.
        markov: kind of its Markov head (DSpark), ``vanilla``, ``gated`` or ``rnn``; empty: none.
        markov_rank: width of that head; 0 without one.
        selector: sizes of DFlash2's parts; None: it is not DFlash2.
    """

    layers: Qwen3Config
    taps: tuple[int, ...]
    block_size: int
    mask_token: int
    from_anchor: bool
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    input_scale: float = 1.0
    output_scale: float = 1.0
    softcap: float | None = None
    markov: str = ""
    markov_rank: int = 0
    selector: SelectorSizes | None = None

    @property
    def drafted(self) -> int:
        """Tokens that a block drafts."""
        return self.block_size if self.from_anchor else self.block_size - 1

    def ahead(self, most: int) -> int:
        """Tokens drafted if ``most`` are wanted; 0: all of :attr:`drafted`."""
        return min(most or self.drafted, self.drafted)


def is_dflash(raw: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is of DFlash's family."""
    known = {"DFlashDraftModel", "dflash", *_DFLASH2, *_DSPARK, *_RELATIVES}
    named = "dflash_config" in raw or _INSIDE in raw or is_assistant(raw)
    return named or bool(_names(raw) & known)


@reading(WHOSE)
def read_config(raw: Mapping[str, Any], target: TargetInfo) -> DFlashConfig:
    """The configuration in a ``config.json``, for a target.

    Raises:
        DraftwoodError: it is not valid, of another format, of a variant that computes something
            else, or made for another target.
    """
    if is_assistant(raw):
        raw = as_others(raw)
    options = part(raw, "dflash_config")
    _refuse_relatives(raw, options)
    speculators = raw.get("speculators_model_type") in ("dflash", "dflash2", "dspark")
    inner = raw.get("transformer_layer_config") if speculators else raw
    shape = _layers(inner)
    if shape.hidden_size != target.hidden_size:
        raise DraftwoodError(
            f"the DFlash drafter has width {shape.hidden_size}, and the target "
            f"{target.hidden_size}: give a drafter made for this target"
        )
    names = _names(raw, options)
    dspark, second = bool(names & _DSPARK), bool(names & _DFLASH2)
    merged = {**without_nulls(inner or {}), **without_nulls(raw), **options}
    if second and speculators:
        merged.setdefault("sliding_window_non_causal", True)
    if "markov_rank" in raw:
        merged.setdefault("markov_rank", 0)  # null: no head
    depth = int(shape.num_hidden_layers or 0)
    windows = _windows(merged, depth)
    mask = merged.get("mask_token_id")
    if not isinstance(mask, int):
        raise DraftwoodError(
            "the DFlash drafter's config.json lacks mask_token_id: give a complete one"
        )
    block = whole(merged, "block_size", 8 if speculators else _BLOCK)
    selector = _selector(merged, shape.hidden_size) if second else None
    markov, rank = _markov(merged, _MARKOV_RANK if dspark and speculators else 0)
    found = DFlashConfig(
        layers=shape,
        taps=_taps(merged, target.layers, depth, entering=speculators),
        block_size=block,
        mask_token=mask,
        from_anchor=_from_anchor(merged, dspark, bool(rank)),
        windows=windows,
        causal=_causal(merged, windows),
        input_scale=number(merged, "input_embedding_scale", 1.0),
        output_scale=number(merged, "output_multiplier", 1.0),
        softcap=_softcap(merged),
        markov=markov,
        markov_rank=rank,
        selector=selector,
    )
    if markov == "rnn" and not found.from_anchor:
        # In training the recurrence runs through the first slot, and inference starts behind it.
        raise DraftwoodError(
            "the DSpark drafter has an rnn head, and its first slot drafts nothing "
            "(sample_from_anchor false), which is not supported: give another drafter"
        )
    if found.drafted < 1:
        raise DraftwoodError(f"the DFlash drafter's block_size is {block}, which drafts nothing")
    return found


def _softcap(merged: Mapping[str, Any]) -> float | None:
    name = "final_logit_softcapping"
    return number(merged, name, 0.0) if name in merged else None


def _names(raw: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> set[str]:
    """The names of formats that a configuration has."""
    kinds = raw.get("speculators_model_type"), (options or {}).get("projector_type")
    return {*architectures(raw), *(str(kind) for kind in kinds if kind)}


def _refuse_relatives(raw: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    names = _names(raw, options)
    found = next((kind for name, kind in _RELATIVES.items() if name in names), None)
    if options.get("causal_head"):
        found = "JetSpec"
    if _INSIDE in raw:
        found = "DSpark inside DeepSeek-V4"
    if found is not None:
        raise DraftwoodError(
            f"this is {found}, which is not supported: give a DFlash, DFlash2 or DSpark drafter"
        )
    flags = (
        "attention_sink_bias",
        "add_swa_attention_sink_bias",
        "dspark_backbone_conv_enabled",
    )
    wrong = [name for name in flags if raw.get(name) or options.get(name)]
    if raw.get("is_neox_style") is False:
        wrong.append("is_neox_style: false")
    if wrong:
        raise DraftwoodError(
            f"the DFlash drafter's config.json has {', '.join(wrong)}, which is not supported: "
            "give another drafter"
        )


def _markov(merged: Mapping[str, Any], default: int) -> tuple[str, int]:
    """The kind and the rank of the Markov head."""
    rank = whole(merged, "markov_rank", default)
    kind = str(merged.get("markov_head_type") or "vanilla")
    if rank and kind not in _MARKOV_HEADS:
        raise DraftwoodError(
            f"markov_head_type is {kind!r}, which is not supported: give a DSpark drafter with "
            f"{', '.join(_MARKOV_HEADS[:-1])} or {_MARKOV_HEADS[-1]}"
        )
    return (kind, rank) if rank else ("", 0)


def _selector(merged: Mapping[str, Any], width: int) -> SelectorSizes:
    """The sizes of DFlash2's parts."""
    for name in ("markov_rank", "sample_from_anchor"):
        if merged.get(name):
            raise DraftwoodError(
                f"the DFlash2 drafter's config.json has {name}, which is not supported: give "
                "another drafter"
            )
    found = SelectorSizes(
        kernel=whole(merged, "conv_kernel_size", 2),
        group=whole(merged, "conv_group_size", 16),
        rank=whole(merged, "selector_rank", 256),
        top_k=whole(merged, "selector_top_k", 16),
    )
    if min(found.kernel, found.group, found.rank, found.top_k) < 1 or width % found.group:
        raise DraftwoodError(
            f"the DFlash2 drafter's conv_kernel_size is {found.kernel}, its conv_group_size "
            f"{found.group} for a width of {width}, its selector_rank {found.rank} and its "
            f"selector_top_k {found.top_k}, which do not fit: give a complete drafter"
        )
    return found


def _from_anchor(merged: Mapping[str, Any], dspark: bool, markov: bool) -> bool:
    """Whether the anchor's slot drafts."""
    if "sample_from_anchor" in merged:
        return bool(merged["sample_from_anchor"])
    if "dspark_bonus_anchor" in merged:
        return not merged["dspark_bonus_anchor"]
    if markov and not dspark:
        raise DraftwoodError(
            "the drafter has a Markov head, and neither its architecture nor sample_from_anchor "
            "says which token its first slot drafts: add sample_from_anchor to its config.json"
        )
    return dspark


def _layers(raw: Any) -> Qwen3Config:
    if not isinstance(raw, dict) or raw.get("model_type", "qwen3") not in ("qwen3", "llama"):
        kind = raw.get("model_type") if isinstance(raw, dict) else None
        raise DraftwoodError(
            f"the layers of this DFlash drafter are of type {kind}: give one with layers of Qwen3"
        )
    own = {
        name: value
        for name, value in raw.items()
        if name not in _OTHERS and (value is not None or name in _NULL)
    }
    # A copy, since transformers completes the rope parameters in place.
    config = Qwen3Config(**deepcopy(own))
    check_layer(config, WHOSE)
    return config


def _taps(merged: Mapping[str, Any], target: int, own: int, *, entering: bool) -> tuple[int, ...]:
    """The hidden states that are read, by the layer that they enter."""
    if entering:
        ids = layers(merged, "aux_hidden_state_layer_ids") or (2, target // 2, target - 3)
        taps = ids
    else:
        ids = layers(merged, "target_layer_ids") or _default_ids(target, own)
        taps = tuple(each + 1 for each in ids)
    if target in taps:
        raise DraftwoodError(
            "the DFlash drafter reads the output of the target's last layer before its final norm, "
            "which is not available: give another drafter"
        )
    stated = merged.get("num_target_layers")
    if not all(0 <= tap < target for tap in taps) or stated not in (None, target):
        raise DraftwoodError(
            f"the DFlash drafter reads layers {', '.join(map(str, ids))} of a target of "
            f"{stated or 'more'} layers, and this one has {target}: give a drafter made for it"
        )
    return taps


def _default_ids(target: int, own: int) -> tuple[int, ...]:
    """z-lab's: from the second layer to the fourth from the end, evenly."""
    if own == 1:
        return (target // 2,)
    return tuple(round(1 + i * (target - 4) / (own - 1)) for i in range(own))


def _windows(merged: Mapping[str, Any], depth: int) -> tuple[int | None, ...]:
    if merged.get("use_swa"):
        if "swa_window_size" not in merged:
            raise ValueError("it has use_swa and no swa_window_size")
        return (whole(merged, "swa_window_size", 0),) * depth
    kinds = merged.get("layer_types") or ["full_attention"] * depth
    window = whole(merged, "sliding_window", 0)
    if "sliding_attention" in kinds and not window:
        raise DraftwoodError(
            "the DFlash drafter's config.json has sliding layers and no sliding_window: give a "
            "complete one"
        )
    return tuple(window if each == "sliding_attention" else None for each in kinds)


def _causal(merged: Mapping[str, Any], windows: Sequence[int | None]) -> tuple[bool, ...]:
    """Whether each layer is causal in a block.

    Where nothing is said, sliding layers are and full ones are not.
    """
    if merged.get("use_swa"):
        return (False,) * len(windows)
    if "sliding_window_non_causal" in merged:
        sliding = not merged["sliding_window_non_causal"]
        return tuple(sliding and window is not None for window in windows)
    said = merged.get("is_causal", merged.get("causal"))
    if said is not None:
        return (bool(said),) * len(windows)
    return tuple(window is not None for window in windows)

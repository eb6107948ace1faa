"""The configuration of an EAGLE-3 head, read from either public layout of ``config.json``.

Source: Li et al., *EAGLE-3* (2025), section 3, and the two layouts in which heads are published:
the *original* one (a Llama config beside ``draft_vocab_size``) and that of the ``speculators``
library (``speculators_model_type: eagle3``, the Llama config under ``transformer_layer_config``).
Sizes and variants that a config leaves out are taken from the tensors (:class:`Stored`). Variants
that compute something else are refused by their flag.

The layers whose hidden states a head reads are written in conventions that differ by one:

* ``eagle_aux_hidden_state_layer_ids`` at the top level (speculators, vLLM): id i is the hidden
  state *entering* layer i, that is, the output of layer i - 1;
* the same name inside ``eagle_config`` (SpecForge, SGLang), and ``target_layer_ids`` at the top
  level: id i is the *output* of layer i, that is, the hidden state entering layer i + 1;
* none: the states entering layers 2, L//2 and L-3, as in the paper's release and all loaders;
* ``use_aux_hidden_state: false`` (NVIDIA ModelOpt): the target's last hidden state alone, after its
  final norm, without ``fc``.

A *tap* is always the layer that the state enters, as in ``Needs.taps``. Tap L of a target with L
layers is the output of its final norm.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import LlamaConfig, Qwen3Config

from draftwood.drafters._config import check_layer, layers, part, reading, without_nulls
from draftwood.drafters._mask_token import mask_token, reads_masks
from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetInfo

LLAMA_FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "initializer_range",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "attention_bias",
    "mlp_bias",
    "num_hidden_layers",
)
"""Fields of a Llama config that shape the layer; all others are ignored."""

# Flags of variants that compute something else, with the only supported value.
_FIXED: dict[str, object] = {
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "use_sliding_window": False,
    "logit_scale": 1.0,
    "partial_rotary_factor": 1.0,
}
# Fields of LLAMA_FIELDS for which Qwen3's config class has other defaults.
_QWEN3 = {
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
}
_IDS = "eagle_aux_hidden_state_layer_ids"
_OUTPUTS = "target_layer_ids"
_ENTERED = "aux_hidden_state_layer_ids"
_LAYER_IDS = "layer_ids"
_STATES = "aux_hidden_states_layer_ids"
_LAYERS = {"llama": LlamaConfig, "qwen3": Qwen3Config}


@dataclass(frozen=True)
class Stored:
    """A head's variant and sizes as its checkpoint's tensors show them; None: not shown.

    Attributes:
        own_embedding: there is ``embed_tokens``.
        own_output: there is ``lm_head``, or rows of another table for it.
        draft_vocab_size: number of outputs.
        layers: number of decoder layers.
        head_dim: width of an attention head.
        attention_bias: the attention has biases.
        qk_norm: queries and keys are normed.
        fc_bias: ``fc`` has a bias.
        input_norm: there is a norm of the joined features.
        fc_norm: there is a norm for each tap.
        mask: there is ``mask_hidden``.
    """

    own_embedding: bool = False
    own_output: bool = True
    draft_vocab_size: int | None = None
    layers: int | None = None
    head_dim: int | None = None
    attention_bias: bool | None = None
    qk_norm: bool | None = None
    fc_bias: bool | None = None
    input_norm: bool | None = None
    fc_norm: bool | None = None
    mask: bool = False


@strict
class Eagle3Config(LlamaConfig):  # type: ignore[no-untyped-call]
    """A Llama config of one or a few layers, with EAGLE-3's fields.

    Attributes:
        vocab_size: V, tokens of the target.
        hidden_size: H, width of the head.
        draft_vocab_size: Vd, tokens the head can draft.
        target_hidden_size: Ht, width of the target's hidden states.
        taps: the target's layers whose entering hidden states are the features, in the order in
            which ``fc`` expects them.
        norm_before_residual: the layer's residual is the normed hidden state (some speculators
            checkpoints); else the hidden state itself, as in the paper.
        own_embedding: the head has ``embed_tokens``; else it shares the target's.
        own_output: the head has ``lm_head``; else it shares the target's, and Vd is V.
        fuse: features go through ``fc``; else the single tap is h itself.
        fc_bias: ``fc`` has a bias.
        norm_before_fc: the joined features are normed (``input_norm``).
        fc_norm: each tap is normed before they are joined.
        norm_output: the next row's h is the output of the final norm (EAGLE-3.1), not its input.
        qk_norm: queries and keys are normed head by head, as in Qwen3.
        mask_token: the mask that a P-EAGLE head reads in place of drafted tokens; None: it is none.
    """

    model_type = "draftwood_eagle3"

    num_hidden_layers: int = 1
    draft_vocab_size: int = 32000
    target_hidden_size: int = 4096
    taps: tuple[int, ...] | list[int] = (2, 16, 29)
    norm_before_residual: bool = False
    own_embedding: bool = False
    own_output: bool = True
    fuse: bool = True
    fc_bias: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    qk_norm: bool = False
    mask_token: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        if self.num_hidden_layers < 1:
            raise DraftwoodError(
                f"num_hidden_layers is {self.num_hidden_layers}; an EAGLE-3 head has 1 or more"
            )
        if not 1 <= self.draft_vocab_size <= self.vocab_size:
            raise DraftwoodError(
                f"draft_vocab_size is {self.draft_vocab_size}; give 1 to {self.vocab_size}, the "
                "target's vocabulary"
            )
        if not self.taps or min(self.taps) < 0:
            raise DraftwoodError(
                f"taps are {list(self.taps)}; name at least one layer of the target, from 0 on"
            )
        if not self.fuse and (len(self.taps) > 1 or self.hidden_size != self.target_hidden_size):
            raise DraftwoodError(
                f"a head without fc reads one hidden state of its own width {self.hidden_size}, "
                f"not {len(self.taps)} of width {self.target_hidden_size}"
            )
        if not self.own_output and self.draft_vocab_size != self.vocab_size:
            raise DraftwoodError(
                f"a head that uses the target's lm_head drafts all of its {self.vocab_size} "
                f"tokens, not {self.draft_vocab_size}"
            )


def default_taps(layers: int) -> tuple[int, int, int]:
    """The taps of a head whose config names none: layers 2, L//2 and L-3.

    Raises:
        DraftwoodError: the target has fewer than three layers.
    """
    if layers < 3:
        raise DraftwoodError(
            f"a target of {layers} layers has no layers 2, L//2 and L-3; name the layers the head "
            "reads"
        )
    return 2, layers // 2, layers - 3


@reading("the head's")
def read_config(
    raw: Mapping[str, Any], target: TargetInfo, stored: Stored | None = None
) -> Eagle3Config:
    """Read a ``config.json`` of either layout, for this target.

    The vocabulary size is the target's, because that of configs is often a default.

    Raises:
        DraftwoodError: the config is not valid, of an unsupported variant, contradicts itself or
            the tensors, or was made for another target.
    """
    stored = stored or Stored()
    raw = without_nulls(raw)
    nested = part(raw, "eagle_config")
    layer = part(raw, "transformer_layer_config") if "transformer_layer_config" in raw else raw
    _refuse_variants(raw, nested, layer)
    fuse = bool(_flag("use_aux_hidden_state", raw, nested, default=True))
    width = raw.get("target_hidden_size", target.hidden_size)
    if width != target.hidden_size:
        raise DraftwoodError(
            f"the head reads hidden states of width {width} (target_hidden_size), but the "
            f"target's have {target.hidden_size}; it was made for another target"
        )
    mask = None
    if stored.mask or reads_masks(raw):
        advice = "give a complete head that was made for this target"
        mask = mask_token(raw, target.vocab_size, "the P-EAGLE head", advice)
    config = Eagle3Config(
        **_layer_fields(raw, layer, stored),
        vocab_size=target.vocab_size,
        draft_vocab_size=raw.get("draft_vocab_size", stored.draft_vocab_size or target.vocab_size),
        target_hidden_size=width,
        taps=_taps(raw, nested, target.layers) if fuse else (target.layers,),
        # Absent means false in speculators' own config class; vLLM assumes true there.
        norm_before_residual=raw.get("norm_before_residual", False),
        own_embedding=stored.own_embedding,
        own_output=stored.own_output,
        fuse=fuse,
        fc_bias=fuse and _known(stored.fc_bias, raw.get("bias", False)),
        norm_before_fc=fuse
        and bool(_flag("norm_before_fc", raw, nested, default=stored.input_norm)),
        fc_norm=fuse and bool(_flag("fc_norm", raw, nested, default=stored.fc_norm)),
        norm_output=bool(_flag("norm_output", raw, nested, default=False)),
        mask_token=mask,
        bos_token_id=None,
        eos_token_id=None,
    )
    check_layer(config, "the head's")
    return config


def _refuse_variants(*places: Mapping[str, Any]) -> None:
    raw, _, layer = places
    if layer is not raw and layer.get("model_type", "llama") not in [*_LAYERS]:
        raise DraftwoodError(
            f'the head\'s layer is of type "{layer["model_type"]}"; only layers of type '
            f"{' and '.join(_LAYERS)} are read"
        )
    if "sliding_attention" in (layer.get("layer_types") or ()):
        raise DraftwoodError(
            "the head's layer_types name sliding_attention, a variant that is not read; give a "
            "head with full attention"
        )
    for place in places:
        for name, value in _FIXED.items():
            if place.get(name, value) != value:
                raise DraftwoodError(
                    f"the head has {name} = {place[name]!r}, a variant that is not read; give a "
                    f"head with {name} = {value!r}"
                )


def _layer_fields(
    raw: Mapping[str, Any], layer: Mapping[str, Any], stored: Stored
) -> dict[str, Any]:
    """The layers' fields: from the config, else from the tensors, else the class's default."""
    # A copy, since transformers completes the rope parameters in place.
    fields = deepcopy({name: layer[name] for name in LLAMA_FIELDS if layer.get(name) is not None})
    # At the top level the type is only a label: heads of Llama layers have their target's.
    is_qwen3 = layer is not raw and layer.get("model_type") == "qwen3"
    if stored.head_dim is not None:
        fields.setdefault("head_dim", stored.head_dim)
    if is_qwen3:
        default = Qwen3Config()
        fields |= {name: getattr(default, name) for name in _QWEN3 - fields.keys()}
    count = fields.setdefault("num_hidden_layers", _known(stored.layers, 1))
    if count != _known(stored.layers, count):
        raise DraftwoodError(
            f"config.json says that the head has num_hidden_layers = {count}, but the checkpoint "
            f"has tensors of {stored.layers}"
        )
    if stored.attention_bias:
        fields["attention_bias"] = True
    fields["qk_norm"] = is_qwen3 or _known(stored.qk_norm, raw.get("qk_norm", False))
    return fields


def _known(stored: Any, default: Any) -> Any:
    return default if stored is None else stored


def _flag(name: str, raw: Mapping[str, Any], nested: Mapping[str, Any], default: object) -> object:
    return raw.get(name, nested.get(name, default))


def _taps(raw: Mapping[str, Any], nested: Mapping[str, Any], target: int) -> tuple[int, ...]:
    by_key = {
        _IDS: layers(raw, _IDS),
        f"eagle_config.{_IDS}": tuple(i + 1 for i in layers(nested, _IDS)),
        _OUTPUTS: tuple(i + 1 for i in layers(raw, _OUTPUTS)),
        _ENTERED: layers(raw, _ENTERED),
        f"eagle_config.{_LAYER_IDS}": layers(nested, _LAYER_IDS),
        _STATES: tuple(i + 1 for i in layers(raw, _STATES)),
    }
    given = {**raw, **{f"eagle_config.{name}": value for name, value in nested.items()}}
    named = {name for name, value in given.items() if name.endswith("layer_ids") and value}
    if unknown := sorted(named - by_key.keys()):
        raise DraftwoodError(
            f"config.json has {', '.join(unknown)}, which is not read: name the layers whose input "
            f"the head reads by {_IDS}"
        )
    named_taps = {name: taps for name, taps in by_key.items() if taps}
    if len(set(named_taps.values())) > 1:
        each = ", ".join(
            f"by {name} those entering {list(taps)}" for name, taps in named_taps.items()
        )
        raise DraftwoodError(
            f"config.json names the hidden states that are read in ways that differ: {each}; "
            "give a head with one of them"
        )
    taps = next(iter(named_taps.values()), None) or default_taps(target)
    if not all(0 <= tap < target for tap in taps):
        last = (
            f"; the output of the last layer ({target - 1}) cannot be read: transformers returns "
            "it behind the final norm only"
        )
        raise DraftwoodError(
            f"the head reads the hidden states entering layers {list(taps)}, but the target's "
            f"layers are 0 to {target - 1}"
            + (last if max(taps) == target else "; it was made for another target")
        )
    return taps


def write_config(config: Eagle3Config) -> dict[str, Any]:
    """The ``config.json`` of the original layout, which :func:`read_config` reads.

    The layer ids are written in both conventions, so that every public loader reads the same
    layers.
    """
    rope = dict(config.rope_parameters)  # type: ignore[arg-type]
    theta = rope.pop("rope_theta")
    taken = [name for name in LLAMA_FIELDS if not name.startswith("rope")]
    ids = {_IDS: list(config.taps)} if config.fuse else {}
    outputs = {_IDS: [tap - 1 for tap in config.taps]} if config.fuse else {}
    variants = ("norm_before_fc", "fc_norm", "norm_output", "qk_norm")
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{name: getattr(config, name) for name in taken},
        "rope_theta": theta,
        "rope_scaling": None if rope["rope_type"] == "default" else rope,
        "tie_word_embeddings": False,
        "vocab_size": config.vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "norm_before_residual": config.norm_before_residual,
        **({"bias": True} if config.fc_bias else {}),
        **{name: True for name in variants if getattr(config, name)},
        **({} if config.mask_token is None else {"ptd_token_id": config.mask_token}),
        **ids,
        "eagle_config": {**outputs, "use_aux_hidden_state": config.fuse},
    }

"""What an EAGLE-3 head is built from, read from either public layout of ``config.json``.

Source: Li et al., *EAGLE-3* (2025), section 3, and the two layouts in which heads are published:
the *original* one (a Llama config beside ``draft_vocab_size``) and that of the ``speculators``
library (``speculators_model_type: eagle3``, the Llama config under ``transformer_layer_config``).
Variants that compute something else are refused by their flag. Knows nothing of tensors.

Which hidden states of the target a head reads is written in two ways that differ by one:

* ``eagle_aux_hidden_state_layer_ids`` at the top level (speculators, vLLM): id i is the hidden
  state *entering* layer i, that is, the output of layer i - 1;
* the same name inside ``eagle_config`` (SpecForge, SGLang): id i is the *output* of layer i, that
  is, the hidden state entering layer i + 1;
* neither: the states entering layers 2, L//2 and L-3, as in the paper's release and all loaders.

A *tap* is always the former: the layer that the state enters, as in ``Needs.taps``.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetInfo

# The fields of a Llama config that shape the layer; whatever else a config.json says is not used.
_LLAMA = (
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
# Published variants that compute something else, and the only value this head can honour.
_FIXED: dict[str, object] = {
    "fc_norm": False,  # EAGLE-3.1
    "norm_output": False,
    "norm_before_fc": False,
    "use_aux_hidden_state": True,  # NVIDIA ModelOpt
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "use_sliding_window": False,
    "logit_scale": 1.0,
}
_IDS = "eagle_aux_hidden_state_layer_ids"


@strict
class Eagle3Config(LlamaConfig):  # type: ignore[no-untyped-call]
    """A Llama config of one layer, with what EAGLE-3 adds.

    Attributes:
        vocab_size: V, tokens of the target.
        hidden_size: H, width of the head.
        draft_vocab_size: Vd, tokens the head can draft.
        target_hidden_size: Ht, width of the target's hidden states.
        taps: the target's layers whose entering hidden states are the features, in the order in
            which ``fc`` expects them.
        norm_before_residual: the layer's residual is the normed hidden state (some speculators
            checkpoints); else the hidden state itself, as in the paper.
        own_embedding: ``embed_tokens`` is one of the head's tensors; else it is the target's.
    """

    model_type = "draftwood_eagle3"

    num_hidden_layers: int = 1
    draft_vocab_size: int = 32000
    target_hidden_size: int = 4096
    taps: tuple[int, ...] | list[int] = (2, 16, 29)
    norm_before_residual: bool = False
    own_embedding: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        if self.num_hidden_layers != 1:
            raise DraftwoodError(
                f"num_hidden_layers is {self.num_hidden_layers}; an EAGLE-3 head has 1 layer"
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


def default_taps(layers: int) -> tuple[int, int, int]:
    """Layers whose entering hidden states a head reads where its config names none.

    Raises:
        DraftwoodError: the target has too few layers for that.
    """
    if layers < 3:
        raise DraftwoodError(
            f"a target of {layers} layers has no layers 2, L//2 and L-3; name the layers the head "
            "reads"
        )
    return 2, layers // 2, layers - 3


def read_config(raw: Mapping[str, Any], target: TargetInfo, *, own_embedding: bool) -> Eagle3Config:
    """The head that a ``config.json`` of either layout describes, for this target.

    The vocabulary's size is the target's: what configs say of it is often a default, and the
    checkpoint's tensors tell.

    Raises:
        DraftwoodError: the config is of another kind of draft network, of a variant that computes
            something else, contradicts itself, or was made for another target.
    """
    raw = {name: value for name, value in raw.items() if value is not None}
    kind = raw.get("speculators_model_type", "eagle3")
    if kind != "eagle3":
        raise DraftwoodError(f'speculators_model_type is "{kind}"; only "eagle3" heads are read')
    nested = raw.get("eagle_config", {})
    layer = raw.get("transformer_layer_config", raw)
    # Fields left out mean the defaults of the layer's own config class, which must be Llama's.
    if layer is not raw and layer.get("model_type", "llama") != "llama":
        raise DraftwoodError(
            f'the head\'s layer is of type "{layer["model_type"]}"; only "llama" layers are read'
        )
    for place in (raw, nested, layer):
        for name, value in _FIXED.items():
            if place.get(name, value) != value:
                raise DraftwoodError(
                    f"the head has {name} = {place[name]!r}, a variant that is not read; give a "
                    f"head with {name} = {value!r}"
                )
    # A copy, since transformers completes the rope parameters in place.
    fields = deepcopy({name: layer[name] for name in _LLAMA if layer.get(name) is not None})
    width = raw.get("target_hidden_size", target.hidden_size)
    if width != target.hidden_size:
        raise DraftwoodError(
            f"the head reads hidden states of width {width} (target_hidden_size), but the "
            f"target's have {target.hidden_size}; it was made for another target"
        )
    try:
        config = Eagle3Config(
            **fields,
            vocab_size=target.vocab_size,
            draft_vocab_size=raw.get("draft_vocab_size", target.vocab_size),
            target_hidden_size=width,
            taps=_taps(raw, nested, target.layers),
            # Absent means false in speculators' own config class; vLLM assumes true there.
            norm_before_residual=raw.get("norm_before_residual", False),
            own_embedding=own_embedding,
            bos_token_id=None,
            eos_token_id=None,
        )
    except StrictDataclassError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise DraftwoodError(f"the head's config.json cannot be used: {reason}") from error
    rope = config.rope_parameters["rope_type"]  # type: ignore[index]
    if rope != "default" and rope not in ROPE_INIT_FUNCTIONS:
        raise DraftwoodError(f'the head\'s rope_type is "{rope}", which transformers does not have')
    if config.hidden_act not in ACT2FN:
        raise DraftwoodError(
            f'the head\'s hidden_act is "{config.hidden_act}", which transformers does not have'
        )
    return config


def _taps(raw: Mapping[str, Any], nested: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    entering = tuple(raw.get(_IDS) or ())
    after = tuple(i + 1 for i in nested.get(_IDS) or ())
    if entering and after and entering != after:
        raise DraftwoodError(
            f"config.json names the target's layers twice and differently: {_IDS} says that the "
            f"states entering {list(entering)} are read, eagle_config those entering {list(after)}"
        )
    taps = entering or after or default_taps(layers)
    if not all(0 <= tap < layers for tap in taps):
        raise DraftwoodError(
            f"the head reads the hidden states entering layers {list(taps)}, but the target's "
            f"layers are 0 to {layers - 1}; it was made for another target"
        )
    return taps


def write_config(config: Eagle3Config) -> dict[str, Any]:
    """The ``config.json`` of the original layout; :func:`read_config` gives ``config`` back.

    The layer ids are written in both ways, so that every public loader reads the same layers.
    """
    rope = dict(config.rope_parameters)  # type: ignore[arg-type]
    theta = rope.pop("rope_theta")
    taken = [name for name in _LLAMA if not name.startswith("rope")]
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
        _IDS: list(config.taps),
        "eagle_config": {_IDS: [tap - 1 for tap in config.taps], "use_aux_hidden_state": True},
    }

"""Canonical names of an EAGLE-3 checkpoint's tensors, and the refusal of other networks."""

from collections.abc import Mapping

import torch

from draftwood.errors import DraftwoodError

# Left-over copies of the target's weights, and tables computed from the config.
_IGNORED_STARTS = ("verifier_lm_head.", "verifier_norm.")
_IGNORED_ENDS = ("rotary_emb.inv_freq",)
_FIRST = ("midlayer.", "layers.0.")
_NORM = "midlayer.hidden_norm.weight"


def canonical(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors by their names in the head; unneeded ones are left out.

    Raises:
        DraftwoodError: the checkpoint is of another network; the message says which, if known.
    """
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    starts = {start for start in _FIRST for name in bare if name.startswith(start)}
    if len(starts) != 1:
        both, nor = ("both", "and") if starts else ("neither", "nor")
        raise DraftwoodError(
            f"the checkpoint has {both} midlayer.* (original layout) {nor} layers.0.* (speculators "
            "layout) tensors; give an EAGLE-3 head, which has one of them"
        )
    start = starts.pop()
    found = {
        "midlayer." + name.removeprefix(start) if name.startswith(start) else name: tensor
        for name, tensor in bare.items()
        if not name.startswith(_IGNORED_STARTS) and not name.endswith(_IGNORED_ENDS)
    }
    # vLLM gives every layer a hidden_norm and uses only the first layer's.
    unused = [n for n in found if n.startswith("layers.") and n.endswith(".hidden_norm.weight")]
    for name in unused:
        del found[name]
    _refuse_other_kinds(found)
    return found


def _refuse_other_kinds(found: Mapping[str, torch.Tensor]) -> None:
    if any(part in name for name in found for part in ("q_a_proj", "kv_a_proj")):
        raise DraftwoodError(
            "the head's attention is multi-head latent attention (MLA: kv_a_proj), which is not "
            "read; give a head with q_proj, k_proj and v_proj"
        )
    if "pre_projection.weight" in found:
        raise DraftwoodError(
            "the checkpoint has pre_projection: it is a Gemma 4 assistant, not an EAGLE-3 head; "
            "write drafter=gemma4"
        )
    if _NORM in found:
        return
    fused = found.get("fc.weight")
    if fused is None:
        layers = len({name.split(".")[1] for name in found if name.startswith("layers.")}) + 1
        raise DraftwoodError(
            f"the checkpoint has {layers} layers but neither hidden_norm nor fc: it is a language "
            "model, not an EAGLE-3 head; use it as a draft model"
        )
    if fused.dim() == 2 and fused.shape[1] == 2 * fused.shape[0]:
        raise DraftwoodError(
            f"fc.weight is {list(fused.shape)} and there is no hidden_norm: it is an EAGLE-1 or "
            "EAGLE-2 head, which is not read; give an EAGLE-3 head for this target"
        )

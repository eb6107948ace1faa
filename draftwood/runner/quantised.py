"""Quantised layers whose output rows depend on one another, so a node would change its siblings.

They are recognised by class name, because the self-test's few tokens may not show it.
"""

from torch import nn

_TORCH = "torch.ao.nn.quantized.dynamic"


def row_mixing(model: nn.Module) -> str | None:
    """The reason why a layer mixes the rows of a forward, with advice; None if no layer does."""
    for module in model.modules():
        for kind in type(module).__mro__:
            if kind.__module__.startswith("bitsandbytes") and kind.__name__ == "Linear8bitLt":
                state = getattr(module, "state", None)
                if getattr(state, "threshold", 1.0) > 0:
                    return (
                        "bitsandbytes int8 (LLM.int8) keeps the columns in 16 bits that hold an "
                        "outlier in any row of a forward, so a token's logits depend on its "
                        "siblings in the tree; load it in 4 bits or in bfloat16, or with "
                        "llm_int8_threshold=0"
                    )
            elif kind.__module__.startswith(_TORCH):
                return (
                    "torch's dynamic int8 quantisation scales activations by the largest one of a "
                    "whole forward, so a token's logits depend on its siblings in the tree; use a "
                    "quantisation with a scale per token, such as torchao's with PerRow()"
                )
    if any(map(_scaled_together, model.parameters())):
        return (
            "torchao scales activations by the largest one of a whole forward (PerTensor), so a "
            "token's logits depend on its siblings in the tree; quantise with "
            "granularity=PerRow(), to NVFP4 with use_dynamic_per_tensor_scale=False"
        )
    return None


def _scaled_together(weight: nn.Parameter) -> bool:
    """Whether torchao scales the activations of a weight by the largest of all rows.

    A scale that was computed beforehand mixes no rows.
    """
    given = getattr(weight, "act_quant_kwargs", None)
    if getattr(given, "use_dynamic_per_tensor_scale", False):  # of NVFP4, whatever else is known
        return True
    whole = type(getattr(given, "granularity", None)).__name__ == "PerTensor"
    return whole and getattr(weight, "act_quant_scale", None) is None

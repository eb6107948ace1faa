"""Where a model is, and how its attention is computed: what an attachment relies on."""

from typing import Any


def base_of(model: Any) -> Any:
    """The model inside wrappers of PEFT and ``torch.compile``."""
    model = getattr(model, "_orig_mod", model)
    base = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def place_of(model: Any) -> str:
    """Its dtype and device, as text."""
    parameter = next(p for p in base_of(model).parameters() if p.is_floating_point())
    return f"{parameter.dtype} on {parameter.device}"


def attention_of(model: Any) -> str:
    """The attention implementation that its configuration names."""
    return str(getattr(base_of(model).config.get_text_config(), "_attn_implementation", ""))

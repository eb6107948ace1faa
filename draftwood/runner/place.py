"""Where a model is, its vocabulary, and its attention: what an attachment relies on."""

from typing import Any


def base_of(model: Any) -> Any:
    """The model inside wrappers of PEFT and ``torch.compile``."""
    model = getattr(model, "_orig_mod", model)
    base = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def place_of(model: Any) -> str:
    """Its dtype and device, and the tokens that it embeds and scores, as text."""
    base = base_of(model)
    parameter = next(p for p in base.parameters() if p.is_floating_point())
    counted = ("get_input_embeddings", "num_embeddings"), ("get_output_embeddings", "out_features")
    # By attribute: to read a packed weight restores it.
    embedded, scored = (getattr(getattr(base, get)(), count, "?") for get, count in counted)
    return f"{parameter.dtype} on {parameter.device} with {embedded} embeddings, {scored} logits"


def attention_of(model: Any) -> str:
    """The attention implementation that its configuration names."""
    return str(getattr(base_of(model).config.get_text_config(), "_attn_implementation", ""))

"""Where a model is, and how its attention is computed: what an attachment relies on."""

from typing import Any

from draftwood.errors import DraftwoodError


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


def moved(before: str, now: str) -> DraftwoodError:
    """The error of a model that is in another place than when it was attached."""
    return DraftwoodError(
        f"the model was {before} when Draftwood attached it and is {now} now: call "
        "draftwood.detach(model) once, then generate"
    )

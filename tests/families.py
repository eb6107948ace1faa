"""``python -m tests.families`` writes the tables of docs/models.md from the models of the tests.

A test compares the two.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.factories.hybrid_families import HYBRIDS
from tests.factories.model_families import FAMILIES

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
BEGIN = "<!-- These tables are written by python -m tests.families. -->\n"
END = "<!-- The end of the tables. -->\n"
HEAD = "| `model_type` | class | layers | models, for example |\n|---|---|---|---|\n"

EXAMPLES = {
    "llama": "Llama 2 and 3, SmolLM2, TinyLlama",
    "qwen2": "Qwen2, Qwen2.5",
    "qwen3": "Qwen3",
    "mistral": "Mistral 7B, Mistral Small; with sliding windows 7B v0.1",
    "gpt_neox": "Pythia, GPT-NeoX-20B",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3, text models",
    "gemma4_text": "Gemma 4, text models",
    "gpt_oss": "gpt-oss",
    "phi3": "Phi-3, Phi-4",
    "olmo2": "OLMo 2",
    "stablelm": "StableLM 2, StableLM Zephyr",
    "gpt2": "GPT-2",
    "mixtral": "Mixtral 8x7B and 8x22B",
    "qwen3_moe": "Qwen3-30B-A3B",
    "deepseek_v3": "DeepSeek-V3, DeepSeek-R1",
    "qwen3_next": "Qwen3-Next",
    "qwen3_5_text": "Qwen3.5",
    "qwen3_5_moe_text": "Qwen3.5, with experts",
    "olmo_hybrid": "OLMo Hybrid",
    "kimi_linear": "Kimi Linear",
    "bailing_hybrid": "Ring and Ling, linear",
    "granitemoehybrid": "Granite 4",
    "bamba": "Bamba",
    "falcon_h1": "Falcon-H1",
    "nemotron_h": "Nemotron-H",
    "zamba2": "Zamba2",
    "lfm2": "LFM2",
    "lfm2_moe": "LFM2, with experts",
    "lfm3": "LFM3",
    "jamba": "Jamba",
}
"""Published models of each type; the tables have those types that the tests make."""

_WORDS = {
    "full_attention": "attention",
    "sliding_attention": "attention in a sliding window",
    "linear_attention": "recurrent",
    "conv": "short convolution",
    "hybrid": "attention and recurrent in one",
    "moe": "",  # told by the experts
}


def tables() -> str:
    """The tables that the page should have."""
    attention, hybrids = _rows(FAMILIES), _rows(HYBRIDS)
    return (
        f"{HEAD}{attention}\nHybrids of attention and recurrent layers, with "
        f"[limits of their own](hybrid.md):\n\n{HEAD}{hybrids}"
    )


def _rows(families: Mapping[str, Callable[[], Any]]) -> str:
    """A row for each type of model; of one that is made twice, the last."""
    found = {model.config.model_type: model for model in (make() for make in families.values())}
    return "".join(_row(name, model) for name, model in sorted(found.items()))


def _row(name: str, model: Any) -> str:
    cells = (f"`{name}`", f"`{type(model).__name__}`", ", ".join(_layers(model)), EXAMPLES[name])
    return f"| {' | '.join(cells)} |\n"


def _layers(model: Any) -> Iterator[str]:
    """What kinds of layers a model has, in words."""
    config = model.config
    kinds = Counter(getattr(config, "layer_types", None) or ["full_attention"])
    yield from filter(None, (_WORDS.get(kind, kind) for kind in kinds))
    experts = ("num_experts", "num_local_experts", "n_routed_experts")
    if any(getattr(config, name, None) for name in experts):
        yield "experts"


def written(page: str) -> str:
    """The page with these tables."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

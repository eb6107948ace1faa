"""Tiny Gemma 4 targets and assistants of random weights, in the published layout."""

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import save_file

from draftwood.drafters.gemma4.checkpoint import built
from draftwood.protocols import TargetInfo
from tests.factories.model_families import SHARED, SMALL, VOCAB, WINDOW, scaled

WIDTH = SMALL["hidden_size"]


def target_model(**settings: Any) -> Any:
    """A target: its last full and last sliding layer that store keys are the second and third."""
    torch.manual_seed(0)
    fields = SMALL | SHARED | {"global_head_dim": 16, "eos_token_id": None} | settings
    model: Any = hf.Gemma4ForCausalLM(hf.Gemma4TextConfig(**fields))
    return scaled(model.eval())


def saved_assistant(directory: Path, ordered: bool = False, **settings: Any) -> str:
    """Write an assistant; returns its directory.

    Args:
        directory: created if there is none.
        ordered: logits are computed for the tokens of some clusters only.
        settings: of its text configuration.
    """
    fields: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "sliding_window": WINDOW,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "initializer_range": 0.3,
    }
    torch.manual_seed(1)
    config = hf.Gemma4AssistantConfig(
        text_config=hf.Gemma4TextConfig(**fields | settings),
        backbone_hidden_size=WIDTH,
        use_ordered_embeddings=ordered,
        num_centroids=8,
        centroid_intermediate_top_k=2,
    )
    model: Any = scaled(built(config, torch.float32))
    if ordered:
        model.masked_embedding.token_ordering.copy_(torch.randperm(VOCAB))
    config.save_pretrained(directory)
    tensors = {name: each for name, each in model.state_dict().items() if name != "lm_head.weight"}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return str(directory)


class _Chance(torch.nn.Module):
    """Reads no keys and values: its target may be one that is only described."""

    def __init__(self, target: TargetInfo, seed: int) -> None:
        super().__init__()
        self.outputs = target.vocab_size
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(self.outputs, self.outputs, generator=generator)

    def forward(
        self, tokens: torch.Tensor, vectors: torch.Tensor, *_: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        state = vectors + tokens[..., None] / self.outputs
        logits = self.table[tokens] * (1 + state.mean(-1, keepdim=True).tanh())
        return logits.flatten(0, 1), (state / 2).flatten(0, 1)


def made_assistant(target: TargetInfo, seed: int = 5) -> torch.nn.Module:
    """What stands in for an assistant of a target that is only described."""
    return _Chance(target, seed)

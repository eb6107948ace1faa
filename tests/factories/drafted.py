"""A tiny target, and what the methods with a model draft for it."""

from collections.abc import Collection
from typing import Any

from torch import nn

from tests.factories.eagle3_heads import HT, LAYERS, V, tiny_head
from tests.factories.tiny_llama import tiny_llama

ENDLESS: dict[str, Any] = {"eos_token_id": None, "bos_token_id": None}


def target() -> nn.Module:
    return tiny_llama(layers=LAYERS, vocab_size=V, hidden_size=HT, head_dim=6, **ENDLESS)


def drafts(drafters: Collection[str]) -> dict[str, nn.Module]:
    """What some drafters draft with, as options of a method."""
    found: dict[str, nn.Module] = {}
    if "model" in drafters:
        found["draft"] = tiny_llama(seed=1, layers=1, vocab_size=V, **ENDLESS)
    if "eagle3" in drafters:
        found["head"] = tiny_head()
    return found

"""transformers' own DFlash drafter: its checkpoints have its numbers, under its configuration."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import cache_utils

from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.dflash.config import read_config
from draftwood.drafters.dflash.drafter import DFlash
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.protocols import TargetInfo
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.drafters.small_target import check_tokens, small_target
from tests.factories.tiny_llama import VOCAB, tiny_llama

pytestmark = pytest.mark.skipif(
    not hasattr(transformers, "MuseGlimmerAssistantModel"),
    reason="this version of transformers has no DFlash module",
)
HIDDEN, BLOCK, MASK = 32, 5, 7
MIXED = ["sliding_attention", "full_attention"]


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=4), chunk=16, self_test=False)


def saved(directory: Path, **changes: Any) -> Any:
    """A small drafter, which reads two states of the target, and its checkpoint in a directory."""
    config = transformers.MuseGlimmerAssistantConfig(
        **{
            "hidden_size": HIDDEN,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "sliding_window": 4,
            "block_size": BLOCK,
            "mask_token_id": MASK,
            "target_layer_ids": [0, 2],
            **changes,
        }
    )
    torch.manual_seed(3)
    model = transformers.MuseGlimmerAssistantModel(config)
    for weight in model.parameters():
        noise = torch.randn_like(weight)
        weight.data = 0.3 * noise if weight.dim() > 1 else 1 + 0.2 * noise
    model.train(mode=False)
    model.save_pretrained(directory)
    return model


@pytest.mark.parametrize("kinds", [None, MIXED], ids=["sliding", "mixed"])
@torch.no_grad()
def test_two_steps_have_its_numbers(
    target: Runner, tmp_path: Path, kinds: list[str] | None
) -> None:
    """Texts and blocks are longer than the window."""
    theirs = saved(tmp_path, layer_types=kinds)
    network = load_dflash(str(tmp_path), target, torch.float32)
    assert (network.config.taps, network.config.drafted) == ((1, 3), BLOCK - 1)
    features = torch.randn(13, 2 * HIDDEN)
    caches: Any = cache_utils
    cache = caches.DFlashCache(config=theirs.config)
    cache.activate_past_recording()
    read = 0
    for length, anchor in ((9, 3), (13, 5)):
        if read:
            cache.crop(-BLOCK)
        cache.set_previous_accepted_tokens(length - read)
        expected = theirs(
            noise_embeds=target.embedding()(torch.tensor([[anchor, *[MASK] * (BLOCK - 1)]])),
            context_hidden_states=features[None, read:length],
            position_ids=torch.arange(read, length + BLOCK)[None],
            past_key_values=cache,
        )
        context = [network.read(features[:length], 0)]
        found = network.block(torch.tensor([anchor]), torch.tensor([length]), context, BLOCK)
        torch.testing.assert_close(found, expected.last_hidden_state, atol=1e-4, rtol=1e-4)
        read = length


def test_a_head_option_finds_it_and_tokens_are_those_of_plain_decoding(tmp_path: Path) -> None:
    saved(tmp_path)
    assert kind_of("head", str(tmp_path)) == "dflash"
    assert method(f"auto:head={tmp_path}").drafters["draft"] == DFlash(str(tmp_path))
    check_tokens(small_target(layers=4), f"dflash:head={tmp_path}", 3)


def test_what_a_configuration_leaves_out_is_that_of_its_class() -> None:
    theirs: Any = transformers.MuseGlimmerAssistantConfig()
    info = TargetInfo(VOCAB, 256, 60, theirs.hidden_size, torch.device("cpu"), torch.float32)
    found = read_config({"model_type": theirs.model_type, "layer_types": None}, info)
    assert found.taps == tuple(each + 1 for each in theirs.target_layer_ids)
    assert (found.block_size, found.mask_token) == (theirs.block_size, theirs.mask_token_id)
    assert found.windows == (theirs.sliding_window + 1,) * theirs.num_hidden_layers
    names = ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    for name in (*names, "rms_norm_eps", "max_position_embeddings", "hidden_act"):
        assert getattr(found.layers, name) == getattr(theirs, name), name
    assert found.layers.rope_parameters == theirs.rope_parameters

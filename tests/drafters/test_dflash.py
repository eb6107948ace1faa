"""The DFlash drafter against a plain computation of its equations, and against transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.dflash.drafter import DFlashDrafter
from draftwood.drafters.dflash.network import DFlashNetwork
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT
from tests.drafters.decoded_text import DecodedText
from tests.drafters.dflash_equations import block_of
from tests.drafters.expand_and_check import drive
from tests.factories.dflash_drafters import HEAD_DIM, random_tensors, raw_config, saved
from tests.factories.tiny_llama import VOCAB, tiny_llama

SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=4), chunk=16, self_test=False)


class HeadText(DecodedText):
    """A request of a target that decodes, and the block computed from scratch for every answer."""

    def __init__(
        self,
        target: Runner,
        drafter: DFlashDrafter,
        reference: Any,
        slot: int,
        prompt: list[int],
    ) -> None:
        self.reference = reference
        super().__init__(target, drafter, slot, prompt)

    def logits(self, node: int) -> torch.Tensor:
        found: torch.Tensor = self.reference(self.target, self.tokens)[self.builder.depths[node]]
        return found


def reference_of(raw: dict[str, Any], tensors: dict[str, torch.Tensor], first: int = 1) -> Any:
    """A function of the target and a text to the logits of the drafted slots."""
    options = raw.get("dflash_config", raw)
    taps = [each + 1 for each in options["target_layer_ids"]]

    @torch.no_grad()
    def found(target: Runner, tokens: list[int]) -> torch.Tensor:
        model: Any = target.model
        out = block_of(tensors, raw, taps, target, tokens)
        logits: torch.Tensor = model.lm_head(out[first:]) * options.get("output_multiplier", 1.0)
        cap = options.get("final_logit_softcapping")
        return logits if cap is None else cap * torch.tanh(logits / cap)

    return found


def loaded(directory: Path, raw: dict[str, Any], target: Runner) -> tuple[DFlashNetwork, Any]:
    tensors = random_tensors(raw)
    network = load_dflash(saved(directory, raw, tensors), target, torch.float32)
    return network, reference_of(raw, tensors)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        SLIDING,
        {**SLIDING, "is_causal": False},
        {**SLIDING, "is_causal": True},
        {
            "dflash": {
                "input_embedding_scale": 1.5,
                "output_multiplier": 0.5,
                "final_logit_softcapping": 3.0,
            }
        },
    ],
    ids=["full", "sliding and causal", "sliding", "causal", "scales"],
)
def test_every_answer_is_that_of_the_equations(
    target: Runner, tmp_path: Path, changes: dict[str, Any]
) -> None:
    network, reference = loaded(tmp_path, raw_config(ids=(0, 2), **changes), target)
    drafter = DFlashDrafter(network, target.info)
    assert drafter.needs == Needs(taps=(1, 3))
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, drafter, reference, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 90), (2, 1))
    ]
    drive(drafter, texts, rng, 4, VOCAB)
    assert 0 < drafter.forwards <= 4, "one forward a step serves all levels"


def test_it_drafts_no_further_than_its_block(target: Runner, tmp_path: Path) -> None:
    network, reference = loaded(tmp_path, raw_config(), target)
    drafter = DFlashDrafter(network, target.info)
    text = HeadText(target, drafter, reference, 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13, 14, 15], "context")
    [answer] = drafter.expand([0], [text.query([3, 4, ROOT], 2)])
    assert answer.tokens[0].tolist() == text.logits(3).topk(2).indices.tolist()
    assert (answer.tokens[1] == -1).all()


def test_fewer_slots_are_a_shorter_block(target: Runner, tmp_path: Path) -> None:
    raw = raw_config()
    network, _ = loaded(tmp_path, raw, target)
    reference = reference_of({**raw, "block_size": 3}, random_tensors(raw))
    drafter = DFlashDrafter(network, target.info, ahead=2)
    text = HeadText(target, drafter, reference, 0, [1, 2, 3])
    text.ask([ROOT], 4)
    text.builder.add_chain([11, 12], "context")
    [answer] = drafter.expand([0], [text.query([2], 2)])
    assert (answer.tokens == -1).all()


def test_a_block_may_draft_from_its_anchor(target: Runner, tmp_path: Path) -> None:
    raw = raw_config()
    flat = {k: v for k, v in raw.items() if k != "dflash_config"} | raw["dflash_config"]
    flat |= {"architectures": ["Qwen3DSparkModel"], "markov_rank": 0, "target_layer_ids": [-1, 1]}
    tensors = random_tensors(raw)
    network = load_dflash(saved(tmp_path, flat, tensors), target, torch.float32)
    drafter = DFlashDrafter(network, target.info)
    assert drafter.needs.taps == (0, 2)
    text = HeadText(target, drafter, reference_of(flat, tensors, first=0), 0, [1, 2, 3])
    text.ask([ROOT], 3)
    text.builder.add_chain([11, 12, 13, 14], "context")
    text.ask([4], 3)


def test_bytes_of_a_position(target: Runner, tmp_path: Path) -> None:
    network, _ = loaded(tmp_path, raw_config(), target)
    drafter = DFlashDrafter(network, target.info)
    # K and V, layers, heads; buffers are up to a quarter longer.
    assert drafter.token_bytes == 1.25 * 2 * 2 * 2 * HEAD_DIM * 4


@pytest.mark.skipif(
    not hasattr(transformers, "MuseGlimmerAssistantModel"),
    reason="this version of transformers has no DFlash module",
)
def test_transformers_module_has_the_same_numbers(target: Runner, tmp_path: Path) -> None:
    raw = raw_config()
    tensors = random_tensors(raw)
    network = load_dflash(saved(tmp_path, raw, tensors), target, torch.float32)
    names = {
        "fc.weight": "encoder.fc.weight",
        "hidden_norm.weight": "encoder.output_norm_enc.weight",
    }
    config = transformers.MuseGlimmerAssistantConfig(
        hidden_size=32,
        intermediate_size=raw["intermediate_size"],
        num_hidden_layers=2,
        num_attention_heads=raw["num_attention_heads"],
        num_key_value_heads=raw["num_key_value_heads"],
        head_dim=HEAD_DIM,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        layer_types=["full_attention"] * 2,
        block_size=5,
        mask_token_id=7,
        target_layer_ids=[0, 1],
    )
    theirs = transformers.MuseGlimmerAssistantModel(config)
    theirs.load_state_dict({names.get(name, name): each for name, each in tensors.items()})
    theirs.train(mode=False)
    features = torch.randn(9, 64)
    ids = torch.tensor([[3, 7, 7, 7, 7]])
    with torch.no_grad():
        embedded = target.embedding()(ids)
        expected = theirs(noise_embeds=embedded, context_hidden_states=features[None])
        found = network(torch.tensor([3]), torch.tensor([9]), [network.read(features, 0)], 5)
        output: Any = target.lm_head()
        torch.testing.assert_close(found, output(expected.last_hidden_state), atol=1e-4, rtol=1e-4)

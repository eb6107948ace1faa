"""Models that read images, too, are given text alone."""

from typing import Any

import pytest
import torch
import transformers as hf

import draftwood
from draftwood.engine.request import Completion
from draftwood.errors import DraftwoodError
from tests.factories.model_families import SMALL
from tests.factories.path_logits import greedy_tokens

TEXT = SMALL | {
    "head_dim": 8,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 16,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
IDS = torch.tensor([[5, 17, 44, 5, 17, 30] * 5])


def model() -> Any:
    torch.manual_seed(0)
    config = hf.Gemma3Config(
        text_config=TEXT,
        vision_config=VISION,
        mm_tokens_per_image=4,
        image_token_index=90,
        boi_token_index=91,
        eoi_token_index=92,
    )
    made: Any = hf.Gemma3ForConditionalGeneration(config)
    return made.eval()


def test_text_is_continued_as_by_plain_decoding() -> None:
    made = model()
    plain = greedy_tokens(made, IDS, 24)
    done: list[Completion] = []
    given: Any = {"custom_generate": draftwood.goose(), "on_finish": done.extend}
    assert greedy_tokens(made, IDS, 24, **given) == plain
    assert done[0].tally.accepted > 0


@pytest.mark.parametrize(("text", "vision"), [("sdpa", "eager"), ("eager", "sdpa")])
def test_other_parts_keep_their_attention(text: str, vision: str) -> None:
    made = model()
    made.set_attn_implementation({"text_config": text, "vision_config": vision})
    before = implementations(made)
    draftwood.attach(made)
    attached = implementations(made)
    assert {name for name in before if attached[name] != before[name]} >= {"model.language_model"}
    assert attached["model.vision_tower"] == before["model.vision_tower"] == vision
    draftwood.detach(made)
    assert implementations(made) == before


def implementations(made: Any) -> dict[str, str]:
    """The attention implementation of each part that has one."""
    return {
        name: module.config._attn_implementation
        for name, module in made.named_modules()
        if hasattr(module, "config")
    }


def test_images_are_refused_by_name() -> None:
    settings = {"pixel_values": torch.zeros(1, 3, 28, 28), "custom_generate": draftwood.goose()}
    ids = torch.tensor([[91, 90, 90, 90, 90, 92, 5, 17]])
    with pytest.raises(DraftwoodError, match=r"(mm_encoder_outputs|pixel_values)=...\) is not sup"):
        greedy_tokens(model(), ids, 4, **settings)


def on_axes() -> Any:
    """A model that places every token on three axes, as the parts of an image."""
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": SMALL["hidden_size"],
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    config = hf.Qwen3VLConfig(
        text_config=SMALL | {"head_dim": 8, "rope_parameters": rope},
        vision_config=vision,
        image_token_id=90,
        video_token_id=91,
        vision_start_token_id=92,
        vision_end_token_id=93,
    )
    made: Any = hf.Qwen3VLForConditionalGeneration(config)
    return made.eval()


@pytest.mark.parametrize("pads", [0, 4])
def test_text_has_one_place_on_all_axes(pads: int) -> None:
    made = on_axes()
    mask = torch.ones(2, IDS.shape[1], dtype=torch.int64)
    mask[0, :pads] = 0
    given: dict[str, Any] = {"input_ids": IDS.repeat(2, 1), "attention_mask": mask}
    given |= {"max_new_tokens": 16, "eos_token_id": None, "pad_token_id": 0}
    plain = made.generate(**given)
    done: list[Completion] = []
    ours = {"custom_generate": draftwood.goose(), "on_finish": done.extend}
    assert made.generate(**given, **ours).tolist() == plain.tolist()
    assert done[0].tally.accepted > 0
    # Only where all axes count the prompt's tokens.
    places = torch.arange(IDS.shape[1]).repeat(4, 2, 1)
    places[2] += 1
    with pytest.raises(DraftwoodError, match="position_ids"):
        made.generate(**given, **ours, position_ids=places)

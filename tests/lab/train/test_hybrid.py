"""A model with recurrent layers is trained, exported and decoded like any other."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast

from draftwood import Engine, Request
from draftwood.errors import DraftwoodError
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.evaluate import held_out_loss
from draftwood.lab.train.export import export_model, load_exported
from draftwood.lab.train.recipe import ModelShape, TrainingRecipe
from draftwood.lab.train.text_model import TextLoss, new_model
from draftwood.lab.train.text_run import _sizes
from draftwood.lab.train.trainer import Trainer
from draftwood.runner.attach import attach
from tests.factories.path_logits import greedy_tokens
from tests.lab.train.conftest import MIXTURE

needs_qwen = pytest.mark.skipif(
    "qwen3_5_text" not in CONFIG_MAPPING, reason="this version of transformers lacks Qwen3.5"
)
SHAPE = ModelShape(
    hidden=32, layers=4, heads=2, kv_heads=1, head_dim=16, ffn=48, context=256, recurrent=3
)
ROWS, LENGTH = 4, 32


@needs_qwen
def test_it_learns_and_decodes_with_trees(
    tokenizer: PreTrainedTokenizerFast, domains: tuple[Domain, ...], tmp_path: Path
) -> None:
    recipe = TrainingRecipe(
        tokens=30 * ROWS * LENGTH, length=LENGTH, rows=ROWS, warmup=2, short_share=0.5, seed=4
    )
    model = new_model(SHAPE, len(tokenizer), recipe.seed)
    before = held_out_loss(model, tokenizer, domains[0]).nats_per_token
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    Trainer(tmp_path / "run", model, recipe, batches, {}, TextLoss(model, recipe)).run()
    assert held_out_loss(model, tokenizer, domains[0]).nats_per_token < before - 0.5
    export_model(model, tokenizer, {"finished": True}, tmp_path / "model")
    loaded = load_exported(tmp_path / "model", torch.device("cpu"))
    assert type(loaded) is type(model)
    prompt = domains[0].held_out[:40].astype(np.int64).tolist()
    wanted = greedy_tokens(loaded, torch.tensor([prompt]), 32)[len(prompt) :]
    runner = attach(loaded)
    assert runner.recurrent is not None
    [done] = Engine(runner, "goose:budget=8").generate([Request(prompt, max_new_tokens=32, eos=())])
    assert list(done.tokens) == wanted
    runner.detach()


@needs_qwen
def test_every_fourth_layer_has_attention() -> None:
    found = ModelShape(recurrent=3).config(4096)
    assert found.layer_types == (["linear_attention"] * 3 + ["full_attention"]) * 2
    model = new_model(ModelShape(recurrent=3), 4096, 1)
    assert 6_000_000 <= model.num_parameters() <= 8_000_000
    ends = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
    branches = [each for name, each in model.named_parameters() if name.endswith(ends)]
    assert len(branches) == 16
    assert not any(each.any() for each in branches)


def test_a_llama_is_recorded_as_before_there_were_others() -> None:
    """So that older runs can be resumed."""
    assert "recurrent" not in _sizes(ModelShape())
    assert _sizes(ModelShape(recurrent=3))["recurrent"] == 3
    assert _sizes(ModelShape(recurrent=3)) == {**_sizes(ModelShape()), "recurrent": 3}


def test_layers_are_whole_groups() -> None:
    with pytest.raises(DraftwoodError, match="--layers 6 is no multiple of 4"):
        ModelShape(layers=6, recurrent=3)


def test_a_transformers_without_such_layers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "transformers.models.qwen3_5.configuration_qwen3_5"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DraftwoodError, match=r"lacks Qwen3\.5: install a newer one"):
        ModelShape(recurrent=3).config(320)

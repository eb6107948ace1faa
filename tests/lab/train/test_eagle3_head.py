"""The head before training, its teacher, and what both refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, GraniteConfig, GraniteForCausalLM

from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.errors import DraftwoodError
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.export import export_head, is_finished
from draftwood.lab.train.head import describe, equalise_taps, frequent_tokens, new_head
from draftwood.lab.train.head_plan import HeadPlan
from draftwood.lab.train.teacher import Teacher
from draftwood.protocols import TargetInfo
from tests.factories.trainable_heads import random_head, teacher, text

VOCABULARY = 40


def test_what_is_not_asked_for_is_the_targets() -> None:
    config = HeadPlan().config(teacher(VOCABULARY))
    assert describe(config) == {
        "hidden": 16,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 6,
        "ffn": 24,
        "taps": [2, 2, 1],
        "draft_vocab": VOCABULARY,
    }
    assert config.target_hidden_size == 16
    assert config.max_position_embeddings == 256
    assert config.rms_norm_eps == 1e-6
    asked = HeadPlan(1, (0, 3), 7, heads=2, kv_heads=1, head_dim=4, ffn=10)
    found = describe(asked.config(teacher(VOCABULARY)))
    assert list(found.values()) == [16, 2, 1, 4, 10, [0, 3], 7]


def test_a_target_of_another_family_and_vocabulary() -> None:
    settings: dict[str, Any] = {"n_embd": 16, "n_layer": 4, "n_head": 2, "n_positions": 32}
    sizes = [
        HeadPlan().config(Teacher(GPT2LMHeadModel(GPT2Config(vocab_size=size, **settings)), "gpt2"))
        for size in (8192, 8193, 40_000)
    ]
    assert [config.draft_vocab_size for config in sizes] == [8192, 8193, 32_000]
    assert describe(sizes[0])["ffn"] == 64
    assert describe(sizes[0])["head_dim"] == 8


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"taps": (1, 4)}, r"--taps 1\+4 .* layers of tiny; give layers from 0 to 3"),
        ({"taps": (-1,)}, "from 0 to 3"),
        ({"draft_vocab": 0}, "draft_vocab is 0; give at least 1"),
        ({"unroll": 0}, "unroll is 0"),
        ({"draft_vocab": 41}, "1 to 40"),
        ({"heads": 3, "kv_heads": 1}, "cannot have 3 heads"),
        ({"heads": 4, "kv_heads": 3}, "no multiple"),
        ({"head_dim": 5}, "need an even one"),
    ],
)
def test_plans_that_do_not_fit_are_refused(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(DraftwoodError, match=message):
        HeadPlan(**plan).config(teacher(VOCABULARY))


def test_frequent_tokens_weigh_domains_by_the_mixture() -> None:
    def domain(name: str, tokens: list[int]) -> Domain:
        return Domain(name, np.array(tokens, dtype=np.uint16), np.zeros(2, dtype=np.uint16))

    # Shares: 5 has 0.75 * 0.5, 1 and 2 have 0.75 * 0.25, 7 has 0.25, and nothing else is there.
    domains = (domain("a", [5, 5, 1, 2] * 10), domain("b", [7]))
    mixture = {"a": 0.75, "b": 0.25}
    picked = [frequent_tokens(domains, mixture, 9, count).tolist() for count in (1, 2, 3, 5)]
    assert picked == [[5], [5, 7], [1, 5, 7], [0, 1, 2, 5, 7]]


def test_a_new_head_starts_from_its_target() -> None:
    target = teacher(VOCABULARY)
    drafted = np.array([3, 4, 9])
    head = new_head(HeadPlan(draft_vocab=3).config(target), target, drafted, seed=5)
    assert head.to_target(torch.arange(3)).tolist() == [3, 4, 9]
    assert torch.nonzero(head.t2d).flatten().tolist() == [3, 4, 9]
    assert torch.equal(head.lm_head.weight, target.head[[3, 4, 9]])
    assert head.get_input_embeddings() is target.model.get_input_embeddings()
    weights = dict(head.named_parameters())
    norms = [weight for name, weight in weights.items() if "norm" in name]
    assert len(norms) == 4
    assert all(torch.equal(weight, torch.ones(16)) for weight in norms)
    assert not [name for name in weights if "embed" in name]
    # Nothing is added to the projected features: the layer hands them through.
    tokens = torch.arange(6)[None]
    hidden = torch.randn(1, 6, 16)
    assert torch.equal(head(tokens, hidden=hidden).hidden, hidden)
    again = new_head(head.config, target, drafted, seed=5)
    assert torch.equal(again.fc.weight, head.fc.weight)
    other = new_head(head.config, target, drafted, seed=6)
    assert not torch.equal(other.fc.weight, head.fc.weight)


def test_normed_taps_start_with_equal_channels() -> None:
    target = teacher(VOCABULARY)
    head = new_head(HeadPlan(fc_norm=True).config(target), target, np.arange(VOCABULARY), seed=5)
    with torch.no_grad():  # one channel far above the others, as large models have
        target.model.get_input_embeddings().weight[:, 3] += 50.0
    tokens = text(2, 40)
    features = target.read(tokens, (2, 2, 1)).features[:, 1:].flatten(0, 1)

    def rms() -> torch.Tensor:
        taps = zip(head.fc_norm, features.chunk(3, dim=-1), strict=True)
        return torch.cat([norm(tap) for norm, tap in taps], dim=-1).square().mean(0).sqrt()

    assert rms().max() > 3
    equalise_taps(head, target, tokens)
    assert torch.allclose(rms(), torch.ones(48), atol=1e-3)


def test_a_head_with_normed_taps_is_read_again(tmp_path: Path) -> None:
    target = teacher(VOCABULARY)
    head = random_head(target, [3, 4, 9], fc_norm=True)
    export_head(head, {"finished": True}, tmp_path)
    info = TargetInfo(VOCABULARY, 256, 4, 16, torch.device("cpu"), torch.float32)
    loaded = load_head(tmp_path, info, target.model.get_input_embeddings())
    features = torch.randn(1, 5, 48)
    assert loaded.config.fc_norm
    assert torch.allclose(loaded.project(features), head.project(features), rtol=0.02, atol=0.05)


def test_an_export_is_read_as_a_head(tmp_path: Path) -> None:
    target = teacher(VOCABULARY)
    head = random_head(target, [3, 4, 9])
    export_head(head, {"finished": True}, tmp_path)
    assert is_finished(tmp_path)
    info = TargetInfo(VOCABULARY, 256, 4, 16, torch.device("cpu"), torch.float32)
    loaded = load_head(tmp_path, info, target.model.get_input_embeddings())
    assert list(loaded.config.taps) == [2, 2, 1]
    assert head.dtype == torch.float32
    for name, tensor in head.state_dict().items():
        narrow = tensor.bfloat16().float() if tensor.is_floating_point() else tensor
        assert torch.equal(loaded.state_dict()[name], narrow), name
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_a_tied_head_is_stored_without_its_output_matrix(tmp_path: Path) -> None:
    target = teacher(VOCABULARY)
    config = HeadPlan(draft_vocab=3, tied=True).config(target)
    head = new_head(config, target, np.array([3, 4, 9]), seed=5, tied=True)
    assert [name for name, p in head.named_parameters() if not p.requires_grad] == [
        "lm_head.weight"
    ]
    export_head(head, {"finished": True}, tmp_path, tied=True)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    info = TargetInfo(VOCABULARY, 256, 4, 16, torch.device("cpu"), torch.float32)
    output = target.model.get_output_embeddings()
    loaded = load_head(tmp_path, info, target.model.get_input_embeddings(), output)
    assert torch.equal(loaded.lm_head.weight, target.head[[3, 4, 9]])
    with pytest.raises(DraftwoodError, match=r"lacks lm_head\.weight"):
        load_head(tmp_path, info, target.model.get_input_embeddings())


def test_a_teacher_reads_what_transformers_returns() -> None:
    target = teacher(VOCABULARY)
    tokens = torch.arange(10).view(2, 5)
    wanted = target.model(input_ids=tokens, output_hidden_states=True)
    found = target.read(tokens, (3, 0))
    assert torch.equal(found.features[..., :16], wanted.hidden_states[3])
    assert torch.equal(found.features[..., 16:], wanted.hidden_states[0])
    scores = target.log_probs(found.last.flatten(0, 1))
    torch.testing.assert_close(scores, wanted.logits.log_softmax(-1).flatten(0, 1))
    assert not found.features.requires_grad
    assert not target.model.training


def test_teachers_are_told_apart() -> None:
    one, same, other = (teacher(VOCABULARY, seed).fingerprint() for seed in (1, 1, 2))
    assert one == same != other


def test_a_teacher_that_changes_its_logits_is_refused() -> None:
    config = GraniteConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        logits_scaling=4.0,
        initializer_range=1.0,
    )
    with pytest.raises(DraftwoodError, match="scaled changes its logits"):
        Teacher(GraniteForCausalLM(config), "scaled")

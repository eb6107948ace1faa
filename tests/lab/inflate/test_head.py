"""The inflated head drafts what the small one does, and each rule is needed for that."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from draftwood import Engine, Request, method
from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError
from draftwood.lab.inflate import head as built
from draftwood.lab.inflate import weights
from draftwood.lab.inflate.head import (
    empty_head,
    has_rows_of,
    head_shape,
    inflate_head,
    source_head,
)
from draftwood.lab.inflate.head_check import check_head, drafted
from draftwood.lab.inflate.model import inflate
from draftwood.runner.attach import attach
from tests.lab.inflate.tiny_heads import LARGE, VARIANTS, VOCAB, head_of, ids, target

SOURCE = target()
MODEL = inflate(SOURCE, LARGE, dtype=torch.float32, seed=0)
INNER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")


def difference(small: Eagle3Head, large: Eagle3Head) -> float:
    return float((drafted(SOURCE, small, ids()) - drafted(MODEL, large, ids())).abs().max())


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_logits_are_unchanged(variant: dict[str, Any]) -> None:
    small = head_of(SOURCE, **variant)
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    large = inflate_head(small, MODEL, seed=1)
    assert large.state_dict().keys() == before.keys()
    assert large.config.hidden_size == large.config.target_hidden_size == LARGE.hidden
    assert large.config.num_attention_heads == LARGE.heads
    assert large.config.num_hidden_layers == small.config.num_hidden_layers
    assert large.taps == (small.taps if small.config.fuse else (LARGE.layers,))
    assert large.num_parameters() == empty_head(small.config, LARGE).num_parameters()
    assert difference(small, large) < 1e-4
    found = check_head((SOURCE, small), (MODEL, large), ids())
    assert (found.positions, found.greedy_equal) == (57, 57)
    # The small head is left alone.
    assert all(torch.equal(before[name], each) for name, each in small.state_dict().items())
    assert small.config.rms_norm_eps == 0.05


def test_what_masks_read_is_widened() -> None:
    small = head_of(SOURCE, mask_token=7, fc_norm=True)
    large = inflate_head(small, MODEL, seed=0)
    assert small.mask is not None
    assert large.mask is not None
    assert large.mask.token == 7
    narrow, wide = small.mask.vector, large.mask.vector
    assert wide is not None
    torch.testing.assert_close(wide[:32], narrow, atol=1e-5, rtol=0)
    assert not wide[32:].any()


@pytest.mark.parametrize(
    ("where", "name", "naive"),
    [
        (weights, "norm_scale", lambda small, large: 1.0),
        (built, "norm_scale", lambda small, large: 1.0),
        (weights, "query_scale", lambda small, large: 1.0),
        (weights, "rotary_dims", lambda small, large: torch.arange(small)),
        (weights, "query_heads", lambda small, large: torch.arange(small.heads)),
    ],
    ids=["norm weights", "eps", "score scale", "rotary pairs", "groups"],
)
def test_without_any_of_the_rules_it_is_another_function(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, naive: Callable[..., object]
) -> None:
    small = head_of(SOURCE)
    monkeypatch.setattr(where, name, naive)
    large = inflate_head(small, MODEL, seed=0)
    assert difference(small, large) > 1e-3
    with pytest.raises(DraftwoodError, match=r"inflated head computes something else: .* nothing"):
        check_head((SOURCE, small), (MODEL, large), ids())


def test_the_columns_of_each_tap_follow_its_hidden_state(monkeypatch: pytest.MonkeyPatch) -> None:
    small = head_of(SOURCE)
    plain = inflate_head(small, MODEL, seed=0)
    fused, own = plain.fc.weight.detach(), small.fc.weight.detach()
    for tap in range(3):
        columns = fused[:, 72 * tap : 72 * (tap + 1)]
        assert torch.equal(columns[:32, :32], own[:, 32 * tap : 32 * (tap + 1)])
        assert columns.count_nonzero() == 32 * 32
    # Without places for the taps, the second one is read where the first one is zero.
    monkeypatch.setattr(built, "widened", lambda values, hidden, vectors=1: pad(values, hidden))
    assert difference(small, inflate_head(small, MODEL, seed=0)) > 1e-2


def pad(values: torch.Tensor, hidden: int) -> torch.Tensor:
    size = hidden if values.shape[-1] <= hidden else 3 * hidden
    return torch.nn.functional.pad(values, (0, size - values.shape[-1]))


def test_unused_weights_are_random_and_of_the_seed() -> None:
    small = head_of(SOURCE, num_hidden_layers=2)
    one, same, other = (inflate_head(small, MODEL, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    inner = {f"{layer}.{name}.weight" for layer in ("midlayer", "layers.1") for name in INNER}
    assert {name for name in one if not torch.equal(one[name], other[name])} == inner
    assert (one["midlayer.self_attn.k_proj.weight"] != 0).all()
    assert one["midlayer.self_attn.k_proj.weight"].shape == (48, 144)


def counted(model: Any, head: Eagle3Head, name: str) -> tuple[tuple[int, ...], Tally]:
    runner = attach(model, packing=False, self_test=False)
    try:
        engine = Engine(runner, method(name, head=head))
        [done] = engine.generate([Request([3, 9, 4, 3, 9], 40)])
    finally:
        runner.detach()
    return done.tokens, done.tally


@pytest.mark.parametrize("name", ["eagle3", "talon:drafter=eagle3"])
def test_trees_and_accepted_tokens_are_the_same(name: str) -> None:
    same, other = (
        inflate_head(head_of(SOURCE, seed=seed, fc_norm=True), MODEL, seed=0) for seed in (0, 1)
    )
    tokens, tally = counted(SOURCE, head_of(SOURCE, fc_norm=True), name)
    same_tokens, same_tally = counted(MODEL, same, name)
    assert same_tokens == tokens
    assert tally.accepted > 3
    for field in fields(Tally):
        if field.name != "seconds":
            assert getattr(same_tally, field.name) == getattr(tally, field.name), field.name
    other_tokens, other_tally = counted(MODEL, other, name)
    assert other_tokens == tokens
    assert other_tally.accepted != tally.accepted


def test_a_checkpoint_is_loaded_for_its_model(tmp_path: Path) -> None:
    small = head_of(SOURCE, fc_norm=True)
    with torch.no_grad():
        small.lm_head.weight.copy_(SOURCE.lm_head.weight[small.target_ids()])
    where = save_head(small, tmp_path / "tied", tied=True)
    loaded = source_head(str(where), SOURCE)
    assert has_rows_of(loaded, SOURCE)
    assert not has_rows_of(head_of(SOURCE), SOURCE)
    assert has_rows_of(head_of(SOURCE, **VARIANTS["the target's lm_head"]), SOURCE)
    assert torch.equal(drafted(SOURCE, loaded, ids()), drafted(SOURCE, small, ids()))
    with pytest.raises(DraftwoodError, match="the head reads hidden states of width 32"):
        source_head(str(where), MODEL)


def test_narrow_weights_are_wide_ones_cast() -> None:
    small = head_of(SOURCE)
    narrow = inflate(SOURCE, LARGE, dtype=torch.bfloat16, seed=0)
    made, wide = inflate_head(small, narrow, seed=0), inflate_head(small, MODEL, seed=0)
    torch.nn.Module.to(wide, torch.bfloat16)
    assert made.dtype == torch.bfloat16
    for (name, one), (_, other) in zip(
        made.state_dict().items(), wide.state_dict().items(), strict=True
    ):
        assert torch.equal(one, other), name


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"target_hidden_size": 24}, "the head is 32 wide and reads hidden states of width 24"),
        ({"attention_bias": True}, "the head's layers have biases"),
        ({"mlp_bias": True}, "the head's layers have biases"),
        ({"qk_norm": True}, r"the head norms queries and keys \(q_norm\)"),
        ({"intermediate_size": 65}, "--ffn 64 is less than the head's 65: a head can only"),
        ({"head_dim": 6}, "--head-dim 16 is not a multiple of the head's 6"),
        ({"num_key_value_heads": 1}, "lets 3 query heads share a key-value head, the head 4"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 50.0, "factor": 2.0}},
            "rotary scaling 'yarn' would change with the head size: keep --head-dim 8",
        ),
    ],
)
def test_other_heads_are_refused(change: dict[str, Any], complaint: str) -> None:
    config = head_of(SOURCE).config
    for name, value in change.items():
        setattr(config, name, value)
    with pytest.raises(DraftwoodError, match=complaint):
        head_shape(config, LARGE)


def test_the_layers_of_the_target_do_not_matter() -> None:
    config = head_of(SOURCE, num_hidden_layers=3).config
    assert head_shape(config, LARGE) == replace(LARGE, layers=3)
    assert empty_head(config, LARGE).config.vocab_size == VOCAB

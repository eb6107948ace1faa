"""Where each weight goes, worked out by hand, and what is left zero or random."""

import torch

from draftwood.lab.inflate import weights
from tests.lab.inflate.tiny_shapes import LARGE, SMALL, small_llama

STATE = {k: v.detach() for k, v in small_llama().state_dict().items()}
MADE = dict(weights.inflated(STATE, SMALL, LARGE, seed=0))
LAST = f"model.layers.{LARGE.layers - 1}."
INNER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")


def test_queries_are_scaled_and_their_unused_dimensions_zero() -> None:
    small = STATE["model.layers.1.self_attn.q_proj.weight"].view(4, 4, 16)
    large = MADE["model.layers.1.self_attn.q_proj.weight"].view(9, 12, 36)
    for mine, theirs in ((0, 0), (1, 1), (2, 3), (3, 4)):
        torch.testing.assert_close(large[theirs, ::3, :16], small[mine] * 3**0.5)
        unused = [i for i in range(12) if i % 3]
        assert not large[theirs, unused].any()
    assert (large[[2, 5, 6, 7, 8]] != 0).all()


def test_keys_and_values_are_random_where_unused() -> None:
    for name, dims in (("k", slice(None, None, 3)), ("v", slice(4))):
        small = STATE[f"model.layers.0.self_attn.{name}_proj.weight"].view(2, 4, 16)
        large = MADE[f"model.layers.0.self_attn.{name}_proj.weight"].view(3, 12, 36)
        assert torch.equal(large[:2, dims, :16], small)
        assert (large != 0).all()


def test_only_used_columns_of_output_projections_are_filled() -> None:
    output = MADE["model.layers.0.self_attn.o_proj.weight"]
    small = STATE["model.layers.0.self_attn.o_proj.weight"].view(16, 4, 4)
    assert torch.equal(output.view(36, 9, 12)[:16, [0, 1, 3, 4], :4], small)
    assert output.count_nonzero() == small.count_nonzero()
    down = MADE["model.layers.0.mlp.down_proj.weight"]
    assert torch.equal(down[:16, :24], STATE["model.layers.0.mlp.down_proj.weight"])
    assert down.count_nonzero() == 16 * 24


def test_random_weights_have_the_scale_of_the_layer_they_stand_beside() -> None:
    # Layer 3 lies beyond a model of two layers and takes after layer 1.
    for name in INNER:
        scale = STATE[f"model.layers.1.{name}.weight"].std()
        torch.testing.assert_close(MADE[f"{LAST}{name}.weight"].std(), scale, rtol=0.1, atol=0)


def test_every_tensor_of_a_model_is_made_once() -> None:
    names = [name for name, _ in weights.inflated(STATE, SMALL, LARGE, seed=0)]
    model = small_llama(LARGE)
    assert len(names) == len(set(names))
    assert {k: v.shape for k, v in MADE.items()} == {
        k: v.shape for k, v in model.state_dict().items()
    }
    assert all(v.dtype == torch.float32 for v in MADE.values())


def test_the_seed_decides_what_is_random() -> None:
    again = dict(weights.inflated(STATE, SMALL, LARGE, seed=0))
    assert all(torch.equal(MADE[name], again[name]) for name in MADE)
    other = dict(weights.inflated(STATE, SMALL, LARGE, seed=1))
    different = {name for name in MADE if not torch.equal(MADE[name], other[name])}
    inner = {f"model.layers.{i}.{name}.weight" for i in range(4) for name in INNER}
    assert different == inner

"""Where each weight goes, worked out by hand, and what is left zero or random."""

import torch

from draftwood.lab.inflate import weights
from tests.lab.inflate.tiny_shapes import LARGE, SMALL, small_llama

STATE = {k: v.detach() for k, v in small_llama().state_dict().items()}
MADE = dict(weights.inflated(STATE, SMALL, LARGE, seed=0))
LAST = f"model.layers.{LARGE.layers - 1}."
INNER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")


def test_unused_weights_are_random_but_for_queries_of_used_heads() -> None:
    queries = MADE["model.layers.1.self_attn.q_proj.weight"].view(9, 12, 36)
    # Groups {0, 1} and {2, 3} are the first two heads of {0, 1, 2} and {3, 4, 5}.
    assert not queries[[0, 1, 3, 4]][:, [i for i in range(12) if i % 3]].any()
    assert (queries[[2, 5, 6, 7, 8]] != 0).all()
    for name in INNER[1:]:
        assert (MADE[f"model.layers.1.{name}.weight"] != 0).all()


def test_only_used_columns_of_output_projections_are_filled() -> None:
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        made, own = (d[f"model.layers.0.{name}.weight"] for d in (MADE, STATE))
        assert made.count_nonzero() == own.count_nonzero()


def test_random_weights_have_the_scale_of_the_layer_they_stand_beside() -> None:
    # Layer 3 lies beyond a model of two layers and takes after layer 1.
    for name in INNER:
        scale = STATE[f"model.layers.1.{name}.weight"].std()
        torch.testing.assert_close(MADE[f"{LAST}{name}.weight"].std(), scale, rtol=0.1, atol=0)


def test_the_seed_decides_what_is_random() -> None:
    again = dict(weights.inflated(STATE, SMALL, LARGE, seed=0))
    assert all(torch.equal(MADE[name], again[name]) for name in MADE)
    other = dict(weights.inflated(STATE, SMALL, LARGE, seed=1))
    different = {name for name in MADE if not torch.equal(MADE[name], other[name])}
    inner = {f"model.layers.{i}.{name}.weight" for i in range(4) for name in INNER}
    assert different == inner

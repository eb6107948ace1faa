"""The roofline by hand, and what it refuses."""

import pytest
import torch

from draftwood.costs.roofline import GPUS, Gpu, Workload, expected, head_workload, workload
from draftwood.drafters.eagle3.config import Eagle3Config
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.lab.inflate.shapes import PRESETS

GPU = Gpu("toy", 100.0, 1000.0, "made up", bandwidth_share=0.5, flops_share=0.1, overhead=2.0)


def test_the_formula_by_hand() -> None:
    # 500 bytes at 50 a second: 10 s. 200 operations a token at 100 a second: 2 s each.
    curve = expected(GPU, Workload(weights=500.0, flops=200.0, cache=25.0, attention=10.0), 64)
    for tokens in (1, 3, 5, 6, 40, 64, 500):
        plain = 2.0 + max(10.0, 2.0 * tokens)
        assert curve.seconds(tokens) == pytest.approx(plain)
        # 8 cached tokens: 8 * 25 bytes at 50 a second, 8 * tokens pairs at 10 / 100 s.
        assert curve.seconds(tokens, context=8) == pytest.approx(plain + 4.0 + 0.8 * tokens)


def test_the_bend_may_be_before_the_first_token_or_beyond_the_limit() -> None:
    bound = expected(GPU, Workload(weights=50.0, flops=200.0, cache=0.0, attention=0.0), 8)
    assert [bound.seconds(n) for n in (1, 2, 20)] == pytest.approx([4.0, 6.0, 42.0])
    reading = expected(GPU, Workload(weights=5e5, flops=200.0, cache=0.0, attention=0.0), 8)
    assert reading.seconds(8) == reading.seconds(1) == 2.0 + 1e4
    assert reading.seconds(20_000) == pytest.approx(2.0 + 2.0 * 20_000)


def test_the_workload_of_a_preset() -> None:
    shape = PRESETS["1b"]
    found = workload(shape, 1000)
    # All weights but the norms' are read, and the embedding's rows are not counted.
    norms = shape.hidden * (2 * shape.layers + 1)
    assert found.weights == 2 * (shape.parameters(1000, tied=True) - norms)
    assert found.flops == found.weights
    assert found.cache == 16 * 2 * 8 * 64 * 2
    assert found.attention == 16 * 4 * 32 * 64


def test_the_workload_of_a_head_is_that_of_its_matrices() -> None:
    shape = PRESETS["1b"]
    config = Eagle3Config(
        vocab_size=5000,
        draft_vocab_size=1000,
        hidden_size=shape.hidden,
        target_hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        taps=(2, 8, 13),
    )
    with torch.device("meta"):
        named = Eagle3Head(config).named_parameters()
        matrices = [each for name, each in named if each.ndim == 2 and not name.startswith("fc.")]
    found = head_workload(shape, 1000)
    assert found.weights == found.flops == 2 * sum(each.numel() for each in matrices)
    assert found.cache * shape.layers == workload(shape, 1000).cache
    assert found.attention * shape.layers == workload(shape, 1000).attention


@pytest.mark.parametrize("name", sorted(GPUS))
def test_a_larger_model_costs_more_on_every_device(name: str) -> None:
    work = [workload(PRESETS[size], 128_256) for size in ("1b", "3b", "8b")]
    seconds = [expected(GPUS[name], one).seconds(16, 1000) for one in work]
    assert seconds == sorted(seconds)
    # An 8b in bfloat16 is 15 GB: no device of today reads it in less than 3 ms.
    assert 3e-3 < seconds[-1] < 30e-3


def test_out_of_range() -> None:
    with pytest.raises(DraftwoodError, match=r"toy reaches 1\.5"):
        Gpu("toy", 1.0, 1.0, "", bandwidth_share=1.5)
    with pytest.raises(DraftwoodError, match="bandwidth 0"):
        Gpu("toy", 0.0, 1.0, "")
    with pytest.raises(DraftwoodError, match="up to 1 tokens"):
        expected(GPU, Workload(1.0, 1.0, 0.0, 0.0), 1)

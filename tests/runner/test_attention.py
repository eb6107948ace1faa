"""Grouped, masked and capped attention against the textbook formula."""

from typing import Any

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import HeadGroups, Varlen, Visibility, register
from tests.factories.model_families import FAMILIES

B, HEADS, KEY_HEADS, Q, KV, D = 2, 6, 2, 3, 7, 8
GROUP = HEADS // KEY_HEADS


def textbook(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    key, value = key.repeat_interleave(GROUP, 1), value.repeat_interleave(GROUP, 1)
    scores = query @ key.transpose(2, 3) * 0.3
    if cap is not None:
        scores = (scores / cap).tanh() * cap
    weights = (scores + mask).exp()
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + sinks.exp().view(-1, 1, 1)
    return (weights / total @ value).transpose(1, 2)


@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("cap", [None, 0.5])
@pytest.mark.parametrize("step", list(Visibility))
@pytest.mark.parametrize("width", [D, 5])
def test_attention_equals_the_textbook_formula(
    step: Visibility, cap: float | None, width: int, sunk: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    kv = Q if step is Visibility.CAUSAL else KV
    query = torch.randn(B, HEADS, Q, D, generator=generator)
    key = torch.randn(B, KEY_HEADS, kv, D, generator=generator)
    value = torch.randn(B, KEY_HEADS, kv, width, generator=generator)
    hidden = torch.rand(B, 1, Q, kv, generator=generator) < 0.4
    hidden[..., 0] = False
    mask = torch.zeros(B, 1, Q, kv).masked_fill(hidden, -torch.inf)
    effective = {
        Visibility.OPEN: torch.zeros(Q, kv),
        Visibility.CAUSAL: torch.zeros(Q, kv).masked_fill(
            torch.ones(Q, kv).triu(1) > 0, -torch.inf
        ),
        Visibility.TREE: mask,
        Visibility.CHUNK: mask,
    }[step]
    # More often than this layer needs, as for one with larger groups.
    given = mask.repeat(1, 1, GROUP + 1, 1) if step is Visibility.TREE else mask
    module = FAMILIES["llama"]().model.layers[0].self_attn
    function = registered()
    sinks = torch.randn(HEADS, generator=generator) + 1 if sunk else None
    found, weights = function(
        module,
        query,
        key,
        value,
        given,
        scaling=0.3,
        draftwood_visibility=step,
        softcap=cap,
        s_aux=sinks,
    )
    assert weights is None
    assert found.is_contiguous()
    torch.testing.assert_close(found, textbook(query, key, value, effective, cap, sinks))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("cap", [None, 0.5])
@pytest.mark.parametrize("visibility", list(Visibility))
@pytest.mark.parametrize("width", [D, 5])
def test_sequences_of_different_lengths_are_each_as_alone(
    visibility: Visibility, cap: float | None, width: int, sunk: bool, padded: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    counts, lengths = [3, 1, 4], [7, 5, 9]
    if visibility is Visibility.CAUSAL and padded:
        lengths = counts
    if visibility is Visibility.OPEN:
        counts = [1, 1, 1]
        if padded:  # all keys would be seen
            lengths = [9, 9, 9]
    query = torch.randn(1, HEADS, sum(counts), D, generator=generator)
    key = torch.randn(3, KEY_HEADS, max(lengths), D, generator=generator)
    value = torch.randn(3, KEY_HEADS, max(lengths), width, generator=generator)
    group = GROUP if visibility is Visibility.TREE else 1
    q = max(counts)
    mask = torch.zeros(3, 1, group * q, max(lengths))
    own = []
    for i, (n, kv) in enumerate(zip(counts, lengths, strict=True)):
        hidden = torch.rand(1, 1, n, kv, generator=generator) < 0.4
        hidden[..., 0] = False
        own.append(torch.zeros(1, 1, n, kv).masked_fill(hidden, -torch.inf))
        height = q if padded else n
        for head in range(group):
            rows = mask[i, 0, head * height :][:n]
            rows[:] = -torch.inf
            rows[:, :kv] = own[-1][0, 0]
    places = torch.tensor([i * q + j for i, n in enumerate(counts) for j in range(n)])
    step = Varlen(visibility, counts, lengths, places if padded else None)
    module = FAMILIES["llama"]().model.layers[0].self_attn
    sinks = torch.randn(HEADS, generator=generator) + 1 if sunk else None
    given: dict[str, Any] = {"scaling": 0.3, "softcap": cap, "s_aux": sinks}
    found, _ = registered()(module, query, key, value, mask, draftwood_visibility=step, **given)
    assert found.shape == (1, sum(counts), HEADS, width)
    for i, (start, n, kv) in enumerate(zip(step.starts, counts, lengths, strict=False)):
        alone, _ = registered()(
            module,
            query[:, :, start : start + n],
            key[i : i + 1, :, :kv],
            value[i : i + 1, :, :kv],
            own[i].repeat(1, 1, group, 1),
            draftwood_visibility=visibility,
            **given,
        )
        torch.testing.assert_close(found[:, start : start + n], alone)


@pytest.mark.parametrize("cap", [None, 0.5])
@pytest.mark.parametrize("width", [16, D])
def test_some_sequences_are_in_order_beside_trees(width: int, cap: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    counts, lengths, in_order = [3, 4, 1, 2], [7, 9, 6, 2], [False, True, True, True]
    query = torch.randn(1, HEADS, sum(counts), width, generator=generator)
    key, value = torch.randn(2, 4, KEY_HEADS, max(lengths), width, generator=generator)
    hidden = torch.rand(4, 1, GROUP * 3, max(lengths), generator=generator) < 0.4
    hidden[..., 0] = False
    # Of the others no mask is read.
    mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
    mask[1:] = torch.nan
    step = Varlen(Visibility.TREE, counts, lengths, in_order=in_order)
    module = FAMILIES["llama"]().model.layers[0].self_attn
    given: dict[str, Any] = {"scaling": 0.3, "softcap": cap, "s_aux": None}
    found, _ = registered()(module, query, key, value, mask, draftwood_visibility=step, **given)
    for i, (start, n, kv) in enumerate(zip(step.starts, counts, lengths, strict=False)):
        own = mask[i : i + 1, :, : GROUP * n, :kv]
        if in_order[i]:
            causal = torch.full((n, kv), -torch.inf).triu(kv - n + 1)
            own = causal.repeat(GROUP, 1)[None, None]
        alone, _ = registered()(
            module,
            query[:, :, start : start + n],
            key[i : i + 1, :, :kv],
            value[i : i + 1, :, :kv],
            own,
            draftwood_visibility=Visibility.TREE,
            **given,
        )
        torch.testing.assert_close(found[:, start : start + n], alone)


def registered() -> Any:
    return ALL_ATTENTION_FUNCTIONS[register("sdpa")]


def test_the_sizes_of_groups_are_recorded() -> None:
    found = HeadGroups()
    q, k = torch.randn(1, HEADS, Q, D), torch.randn(1, KEY_HEADS, Q, D)
    module = FAMILIES["llama"]().model.layers[0].self_attn
    registered()(module, q, k, k, None, draftwood_visibility=found)
    assert found.sizes == [GROUP]
    assert found.read == [(k, k)]


@pytest.mark.parametrize("demand", ["position_bias", "something_new"])
def test_arguments_that_would_be_ignored_are_refused(demand: str) -> None:
    module = FAMILIES["llama"]().model.layers[0].self_attn
    q, k = torch.randn(1, HEADS, Q, D), torch.randn(1, KEY_HEADS, Q, D)
    with pytest.raises(DraftwoodError, match=f"asks for {demand}"):
        registered()(module, q, k, k, None, draftwood_visibility=Visibility.OPEN, **{demand: k})
    registered()(module, q, k, k, None, draftwood_visibility=Visibility.OPEN, **{demand: None})


def test_only_known_originals_are_wrapped() -> None:
    with pytest.raises(DraftwoodError, match="'flash_attention_2' cannot be restored"):
        register("flash_attention_2")

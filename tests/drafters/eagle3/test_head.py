"""The head against an explicit re-computation of its layer, number by number."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DynamicCache

from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from draftwood.runner.attach import attach
from draftwood.runner.attention import Visibility
from tests.factories.eagle3_heads import HT, VD, H, V, embedding, tiny_head

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm_before_residual": True},
    {"attention_bias": True, "mlp_bias": True},
    {"head_dim": 4, "num_key_value_heads": 4},
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {"taps": (1, 6), "draft_vocab_size": V},
    {"own_embedding": True},
]


def explicit(
    head: Eagle3Head,
    tokens: list[int],
    given: list[torch.Tensor],
    parents: list[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits ``[n, Vd]`` and pre-norm outputs ``[n, H]`` of n rows, in float64, row by row.

    ``given`` are the projected features of the first rows; the others' h is the output of their
    parent row (the row before, unless ``parents`` says otherwise), which is all they see beyond
    their ancestors.
    """
    config = head.config
    weights: dict[str, torch.Tensor] = {
        name: tensor.double() for name, tensor in head.state_dict().items()
    }
    table = torch.as_tensor(head.get_input_embeddings().weight).double()
    d, heads, kv_heads = config.head_dim, config.num_attention_heads, config.num_key_value_heads
    assert d is not None
    assert kv_heads is not None
    rope: Any = config.rope_parameters
    factor = rope.get("factor", 1.0)

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        y = weights[f"{name}.weight"] @ x
        return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        scale = math.sqrt(float((x * x).sum()) / len(x) + config.rms_norm_eps)
        return x / scale * weights[f"{name}.weight"]

    def turned(x: torch.Tensor, position: int) -> torch.Tensor:
        y = x.clone()
        for i in range(d // 2):
            angle = position / factor * rope["rope_theta"] ** (-2 * i / d)
            c, s = math.cos(angle), math.sin(angle)
            y[i] = x[i] * c - x[i + d // 2] * s
            y[i + d // 2] = x[i + d // 2] * c + x[i] * s
        return y

    parents = list(range(-1, len(tokens) - 1)) if parents is None else parents
    paths: list[list[int]] = []
    outs: list[torch.Tensor] = []
    logits, keys, values = [], [], []
    attn = "midlayer.self_attn"
    for row, token in enumerate(tokens):
        path = [*paths[parents[row]], row] if parents[row] >= 0 else [row]
        paths.append(path)
        position = len(path) - 1
        h = given[row].double() if row < len(given) else outs[parents[row]]
        normed = norm("midlayer.hidden_norm", h)
        joined = torch.cat([norm("midlayer.input_layernorm", table[token]), normed])
        query = linear(f"{attn}.q_proj", joined).view(heads, d)
        keys.append([turned(k, position) for k in linear(f"{attn}.k_proj", joined).view(-1, d)])
        values.append(linear(f"{attn}.v_proj", joined).view(kv_heads, d))
        mixed = []
        for i in range(heads):
            j = i * kv_heads // heads
            q = turned(query[i], position)
            scores = [math.exp(float(q @ keys[t][j]) / math.sqrt(d)) for t in path]
            mixed.append(
                sum(
                    (s / sum(scores) * values[t][j] for s, t in zip(scores, path, strict=True)),
                    torch.zeros(d, dtype=torch.float64),
                )
            )
        x = normed if config.norm_before_residual else h
        x = x + linear(f"{attn}.o_proj", torch.cat(mixed))
        y = norm("midlayer.post_attention_layernorm", x)
        gate = linear("midlayer.mlp.gate_proj", y)
        swish = gate / (1 + torch.exp(-gate))
        out = x + linear("midlayer.mlp.down_proj", swish * linear("midlayer.mlp.up_proj", y))
        outs.append(out)
        logits.append(weights["lm_head.weight"] @ norm("norm", out))
    return torch.stack(logits), torch.stack(outs)


def drawn(n: int, seed: int = 0, taps: int = 3) -> tuple[list[int], torch.Tensor]:
    """Tokens and target features ``[n, taps * Ht]``."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, V, (n,), generator=generator).tolist()
    return tokens, torch.randn(n, taps * HT, generator=generator)


def ids(tokens: list[int]) -> torch.Tensor:
    return torch.tensor([tokens])


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@torch.inference_mode()
def test_a_chain_and_its_recurrence(changes: dict[str, Any]) -> None:
    head = tiny_head(**changes)
    tokens, features = drawn(8, taps=len(head.config.taps))
    h = head.project(features[:5])
    close(h, features[:5].double() @ head.fc.weight.double().T)
    logits, outs = explicit(head, tokens, list(h))

    first = head(ids(tokens[:5]), hidden=h[None], use_cache=True)
    close(first.logits[0], logits[:5])
    close(first.hidden[0], outs[:5])
    assert first.logits.shape == (1, 5, head.config.draft_vocab_size)

    fed = first.hidden[:, -1:]
    for row in (5, 6, 7):
        step = head(ids(tokens[row : row + 1]), hidden=fed, past_key_values=first.past_key_values)
        close(step.logits[0, 0], logits[row])
        close(step.hidden[0, 0], outs[row])
        fed = step.hidden


@torch.inference_mode()
def test_the_fed_back_vector_matters() -> None:
    # A negative control: the explicit recurrence does tell the pre-norm output from the normed one.
    head = tiny_head()
    tokens, features = drawn(4)
    logits, _ = explicit(head, tokens, list(head.project(features[:3])))
    first = head(ids(tokens[:3]), hidden=head.project(features[:3])[None], use_cache=True)
    normed = head.norm(first.hidden[:, -1:])
    step = head(ids(tokens[3:]), hidden=normed, past_key_values=first.past_key_values)
    assert (step.logits[0, 0] - logits[3]).abs().max() > 0.01


@torch.inference_mode()
def test_with_a_cache_as_without() -> None:
    head = tiny_head()
    tokens, features = drawn(9)
    h = head.project(features)[None]
    whole = head(ids(tokens), hidden=h)
    cache = DynamicCache(config=head.config)
    parts = [
        head(ids(tokens[a:b]), hidden=h[:, a:b], past_key_values=cache)
        for a, b in ((0, 4), (4, 5), (5, 9))
    ]
    close(torch.cat([part.logits for part in parts], dim=1), whole.logits)
    close(torch.cat([part.hidden for part in parts], dim=1), whole.hidden)
    assert cache.get_seq_length() == 9
    assert whole.past_key_values is None


# TargetOutput 0 to 3 are the prefix; 4 and 5 hang below 3, 6 and 7 below 4, 8 below 5.
PARENTS = [-1, 0, 1, 2, 3, 3, 4, 4, 5]


def tree_mask(group: int = 1) -> torch.Tensor:
    """``[1, 1, g * 5, 9]`` for the five nodes behind a prefix of four."""
    mask = torch.full((9, 9), -torch.inf)
    for row, parent in enumerate(PARENTS):
        if parent >= 0:
            mask[row] = mask[parent]
        mask[row, row] = 0
    return mask[4:].repeat(group, 1)[None, None]


def tree_forward(head: Eagle3Head, group: int = 1, **kwargs: Any) -> Any:
    """Prefix, then five nodes in two levels; the last output. Returns the tokens as well."""
    tokens, features = drawn(9, seed=3)
    h = head.project(features[:4])[None]
    cache = DynamicCache(config=head.config)
    prefix_step = dict.fromkeys(kwargs, Visibility.CAUSAL)
    unmasked = torch.zeros(1, 1, 1, 1) if kwargs else None
    prefix = head(
        ids(tokens[:4]),
        attention_mask=unmasked,
        hidden=h,
        past_key_values=cache,
        position_ids=torch.arange(4)[None],
        **prefix_step,
    )
    mask = tree_mask(group).view(1, 1, group, 5, 9)
    level = head(
        ids(tokens[4:6]),
        attention_mask=mask[..., :2, :6].reshape(1, 1, group * 2, 6),
        position_ids=torch.tensor([[4, 4]]),
        past_key_values=cache,
        hidden=prefix.hidden[:, [3, 3]],
        **kwargs,
    )
    return head(
        ids(tokens[6:]),
        attention_mask=mask[..., 2:, :].reshape(1, 1, group * 3, 9),
        position_ids=torch.tensor([[5, 5, 5]]),
        past_key_values=cache,
        hidden=level.hidden[:, [0, 0, 1]],
        **kwargs,
    )


@torch.inference_mode()
def test_a_tree_by_its_own_mask() -> None:
    head = tiny_head()
    tokens, features = drawn(9, seed=3)
    logits, outs = explicit(head, tokens, list(head.project(features[:4])), PARENTS)
    leaves = tree_forward(head)
    close(leaves.logits[0], logits[6:])
    close(leaves.hidden[0], outs[6:])


@pytest.mark.parametrize("packing", [False, True])
def test_attached_it_scores_trees(packing: bool) -> None:
    head = tiny_head()
    tokens, features = drawn(9, seed=3)
    with torch.inference_mode():
        logits, outs = explicit(head, tokens, list(head.project(features[:4])), PARENTS)
        before = head(ids(tokens), hidden=torch.ones(1, 9, H)).logits
    state = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    runner = attach(head, packing=packing, self_test=False)
    assert (runner.info.vocab_size, runner.info.layers) == (VD, 1)
    assert (runner.info.hidden_size, runner.info.dtype) == (H, torch.float32)
    with torch.inference_mode():
        leaves = tree_forward(head, group=2, draftwood_visibility=Visibility.TREE)
        close(leaves.logits[0], logits[6:])
        close(leaves.hidden[0], outs[6:])
        close(head(ids(tokens), hidden=torch.ones(1, 9, H)).logits, before)
    runner.detach()
    assert all(torch.equal(tensor, state[name]) for name, tensor in head.state_dict().items())
    with torch.inference_mode():
        assert torch.equal(head(ids(tokens), hidden=torch.ones(1, 9, H)).logits, before)


@torch.inference_mode()
def test_a_padded_batch() -> None:
    head = tiny_head()
    tokens, features = drawn(5)
    h = head.project(features)
    alone = head(ids(tokens[2:]), hidden=h[None, 2:], position_ids=torch.arange(3)[None])
    both = head(
        torch.tensor([tokens, [0, 0, *tokens[2:]]]),
        hidden=torch.stack([h, torch.cat([torch.ones(2, H), h[2:]])]),
        attention_mask=torch.tensor([[1] * 5, [0, 0, 1, 1, 1]]),
        position_ids=torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]),
    )
    close(both.logits[1, 2:], alone.logits[0])
    close(both.logits[0], head(ids(tokens), hidden=h[None]).logits[0])


@torch.inference_mode()
def test_only_the_rows_asked_for() -> None:
    head = tiny_head()
    tokens, features = drawn(6)
    h = head.project(features)[None]
    whole = head(ids(tokens), hidden=h)
    last = head(ids(tokens), hidden=h, logits_to_keep=2)
    close(last.logits, whole.logits[:, -2:])
    some = head(ids(tokens), hidden=h, logits_to_keep=torch.tensor([0, 3]))
    close(some.logits, whole.logits[:, [0, 3]])
    assert last.hidden.shape == some.hidden.shape == (1, 6, H)


@torch.inference_mode()
def test_without_hidden_it_is_zeros() -> None:
    head = tiny_head()
    tokens, _ = drawn(3)
    assert torch.equal(
        head(ids(tokens)).logits, head(ids(tokens), hidden=torch.zeros(1, 3, H)).logits
    )


@torch.inference_mode()
def test_features_and_embeddings_of_another_dtype() -> None:
    head = tiny_head().bfloat16()
    tokens, features = drawn(3)
    h = head.project(features)
    assert h.dtype is torch.bfloat16
    out = head(ids(tokens), hidden=h.float()[None])
    assert (out.logits.dtype, out.hidden.dtype) == (torch.bfloat16, torch.bfloat16)


def test_the_embedding_is_shared() -> None:
    lent = embedding()
    head = Eagle3Head(tiny_head().config)
    head.set_input_embeddings(lent)
    assert head.get_input_embeddings() is lent
    assert not [name for name in head.state_dict() if "embed" in name]
    assert all(parameter is not lent.weight for parameter in head.parameters())
    assert lent not in list(head.modules())
    head.double()
    assert lent.weight.dtype is torch.float32


def test_only_the_table_of_an_embedding_is_used() -> None:
    class Scaled(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 4 * super().forward(input)

    scaled = Scaled(V, H)
    scaled.load_state_dict(embedding().state_dict())
    head = tiny_head()
    plain = head(ids([3, 4])).logits
    head.set_input_embeddings(scaled)
    assert torch.equal(head(ids([3, 4])).logits, plain)


def test_embeddings_that_are_refused() -> None:
    bare = Eagle3Head(tiny_head().config)
    with pytest.raises(DraftwoodError, match="no embedding of its own"):
        bare(ids([1]))
    with pytest.raises(DraftwoodError, match=r"\[40, 24\].*embed_tokens\.weight of \[40, 16\]"):
        bare.set_input_embeddings(embedding(width=HT))
    with pytest.raises(DraftwoodError, match=r"\[39, 16\].*\[40, 16\]"):
        bare.set_input_embeddings(embedding(rows=39))
    bare.set_input_embeddings(embedding(rows=48))  # tables are often padded
    with pytest.raises(DraftwoodError, match=r"brings embed_tokens\.weight itself"):
        tiny_head(own_embedding=True).set_input_embeddings(embedding())


def test_its_own_embedding() -> None:
    head = tiny_head(own_embedding=True)
    assert head.state_dict()["embed_tokens.weight"].shape == (V, H)
    assert head.get_input_embeddings() is head.embed_tokens


def test_draft_ids_and_target_ids() -> None:
    head = tiny_head(draft_vocab_size=4)
    head.d2t.copy_(torch.tensor([3, 3, 8, 36]))  # 0 -> 3, 1 -> 4, 2 -> 10, 3 -> 39
    drafts = torch.tensor([[0, 3], [2, 1]])
    assert head.to_target(drafts).tolist() == [[3, 39], [10, 4]]


def test_a_new_head_drafts_the_first_tokens() -> None:
    head = Eagle3Head(tiny_head().config)
    assert head.to_target(torch.arange(VD)).tolist() == list(range(VD))
    assert head.t2d.tolist() == [True] * VD + [False] * (V - VD)


@pytest.mark.parametrize("biased", [False, True])
def test_names_and_shapes_are_the_published_ones(biased: bool) -> None:
    shapes = {
        "fc.weight": [H, 3 * HT],
        "midlayer.hidden_norm.weight": [H],
        "midlayer.input_layernorm.weight": [H],
        "midlayer.self_attn.q_proj.weight": [24, 2 * H],
        "midlayer.self_attn.k_proj.weight": [12, 2 * H],
        "midlayer.self_attn.v_proj.weight": [12, 2 * H],
        "midlayer.self_attn.o_proj.weight": [H, 24],
        "midlayer.post_attention_layernorm.weight": [H],
        "midlayer.mlp.gate_proj.weight": [20, H],
        "midlayer.mlp.up_proj.weight": [20, H],
        "midlayer.mlp.down_proj.weight": [H, 20],
        "norm.weight": [H],
        "lm_head.weight": [VD, H],
        "d2t": [VD],
        "t2d": [V],
    }
    if biased:
        for name, size in (("q", 24), ("k", 12), ("v", 12), ("o", H)):
            shapes[f"midlayer.self_attn.{name}_proj.bias"] = [size]
    head = tiny_head(attention_bias=biased)
    assert {name: list(tensor.shape) for name, tensor in head.state_dict().items()} == shapes
    assert (head.d2t.dtype, head.t2d.dtype) == (torch.int64, torch.bool)

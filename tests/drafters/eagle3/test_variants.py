"""Published variants of EAGLE-3 heads: each is loaded from tensors under published names, agrees
with its equations, and decodes what plain decoding does.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from draftwood.drafters.eagle3.checkpoint import load_head, save_head
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from tests.factories.eagle3_equations import LAYERS, H, Reference, Variant, written
from tests.factories.tiny_llama import VOCAB as V
from tests.factories.tiny_llama import tiny_llama

SOME = tuple(range(0, V, 3))
SPECULATORS: dict[str, Any] = {"nested": True, "first": "layers.0."}
VARIANTS = {
    "plain": Variant(drafted=SOME),
    "no lm_head, all tokens": Variant(own_output=False),
    "no lm_head, some tokens": Variant(own_output=False, drafted=SOME),
    "no lm_head, tied": Variant(
        {"tie_word_embeddings": True}, own_output=False, own_embedding=True
    ),
    "no draft_vocab_size, d2t": Variant({"draft_vocab_size": None}, drafted=SOME),
    "no draft_vocab_size": Variant({"draft_vocab_size": None}),
    "lm_head and embedding padded": Variant(
        {"draft_vocab_size": None}, rows=320, own_embedding=True
    ),
    "embedding without padding": Variant(drafted=SOME, rows=V - 3, own_embedding=True),
    "t2d all false": Variant(drafted=SOME, t2d=torch.zeros(V, dtype=torch.bool)),
    "t2d padded": Variant(drafted=SOME, t2d=torch.ones(512, dtype=torch.bool)),
    "two layers": Variant(layers=2),
    "three layers, speculators": Variant(layers=3, drafted=SOME, **SPECULATORS),
    "model. prefix": Variant(prefix="model.", drafted=SOME),
    "model. prefix, layers": Variant(prefix="model.", first="layers.0.", layers=2),
    "fc.bias": Variant({"bias": True}, fc_bias=True),
    "fc.bias, unsaid": Variant(fc_bias=True),
    "fc_norm and norm_output": Variant(
        {"fc_norm": True, "norm_output": True}, fc_norm=True, norm_output=True, **SPECULATORS
    ),
    "fc_norm, unsaid": Variant(fc_norm=True),
    "norm_output alone": Variant({"norm_output": True}, norm_output=True, layers=2),
    "input_norm": Variant({"norm_before_fc": True}, input_norm=True, drafted=SOME, **SPECULATORS),
    "input_norm, named by eagle_config": Variant(
        {"eagle_config": {"norm_before_fc": True}}, input_norm=True
    ),
    "last hidden state alone": Variant(
        {"eagle_config": {"use_aux_hidden_state": False}}, taps=(LAYERS,), fc=False, drafted=SOME
    ),
    "Qwen3 layer, speculators": Variant(
        {"model_type": "qwen3"}, qk_norm=True, drafted=SOME, **SPECULATORS
    ),
    "Qwen3 layers, two": Variant(qk_norm=True, layers=2, first="layers.0."),
    "flat target_layer_ids, five taps": Variant(
        {"target_layer_ids": [0, 2, 3, 5, 6], "architectures": ["Qwen3Eagle3Model"]},
        taps=(1, 3, 4, 6, 7),
        qk_norm=True,
        first="layers.0.",
    ),
    "biases of queries, keys and values": Variant(qkv_bias=True, layers=2),
}
ids = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=LAYERS), self_test=False)


@pytest.fixture(scope="module")
def exact() -> Runner:
    """The same in float64, where nothing but what transformers computes in float32 is rounded."""
    return attach(tiny_llama(layers=LAYERS).double(), self_test=False)


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), atol=1e-5, rtol=1e-5)


def facts(target: Runner) -> tuple[torch.Tensor, torch.Tensor]:
    model: Any = target.model
    return model.model.embed_tokens.weight.detach(), model.lm_head.weight.detach()


def chained(head: Any, tokens: list[int], features: torch.Tensor) -> torch.Tensor:
    """Logits of a chain as :meth:`Reference.chain` has them, by the head and its cache."""
    known = len(features)
    h = head.project(features)[None]
    out = head(torch.tensor([tokens[:known]]), hidden=h, use_cache=True)
    logits, fed = [out.logits[0]], out.hidden[:, -1:]
    for token in tokens[known:]:
        step = head(torch.tensor([[token]]), hidden=fed, past_key_values=out.past_key_values)
        logits.append(step.logits[0])
        fed = step.hidden
    return torch.cat(logits)


@ids
@torch.inference_mode()
def test_equal_to_its_equations(exact: Runner, variant: Variant, tmp_path: Path) -> None:
    where = written(tmp_path / "head", variant)
    head = load_head(where, exact.info, exact.embedding(), exact.lm_head())
    assert head.taps == variant.taps
    drafted = range(V) if variant.drafted is None else variant.drafted
    assert head.target_ids().tolist() == list(drafted)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, V, (9,), generator=generator).tolist()
    tokens[2] = V - 1
    features = torch.randn(5, len(variant.taps) * H, generator=generator)
    wanted = Reference(variant, *facts(exact)).chain(tokens, features)
    close(chained(head, tokens, features), wanted)
    saved = load_head(
        save_head(head, tmp_path / "again"), exact.info, exact.embedding(), exact.lm_head()
    )
    close(chained(saved, tokens, features), wanted)


@pytest.mark.parametrize("name", ["fc.bias", "norm_output alone"])
@torch.inference_mode()
def test_a_reference_that_leaves_it_out_differs(exact: Runner, name: str, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    head = load_head(written(tmp_path / "head", variant), exact.info, exact.embedding())
    features = torch.randn(3, len(variant.taps) * H)
    tokens = [1, 2, 3, 4, 5]
    part = {"fc.bias": "fc_bias"}.get(name, "norm_output")
    wrong = Reference(variant, *facts(exact), broken=part).chain(tokens, features)
    assert (chained(head, tokens, features).double() - wrong).abs().max() > 0.01


@torch.inference_mode()
def test_the_last_state_is_what_the_lm_head_reads(target: Runner) -> None:
    ids = torch.tensor([[5, 9, 11]])
    slot = target.open(8)
    rows = target.prefill([slot], [ids[0].tolist()], Needs(taps=(LAYERS,)))[0]
    target.release(slot)
    model: Any = target.model
    assert rows.features is not None
    close(model.lm_head(rows.features), model(ids).logits[0])


@ids
def test_decoding_is_lossless(target: Runner, variant: Variant, tmp_path: Path) -> None:
    where = str(written(tmp_path / "head", variant))
    requests = [
        Request([3, 9, 4, 3, 9], 10, SamplingParams(temperature=t, seed=4)) for t in (0.0, 0.0, 0.9)
    ]
    requests[1] = Request([7, V - 1], 10)
    plain = [done.tokens for done in Engine(target, method("ar")).generate(requests)]
    for spelt in ("eagle3", "talon:drafter=eagle3"):
        engine = Engine(target, method(spelt, head=where, budget=9))
        found = engine.generate(requests)
        assert [done.tokens for done in found] == plain
        assert all(done.tally.drafted for done in found)


def test_a_shared_lm_head_is_not_owned(target: Runner, tmp_path: Path) -> None:
    where = written(tmp_path / "head", VARIANTS["no lm_head, all tokens"])
    head = load_head(where, target.info, target.embedding())
    assert not [name for name in head.state_dict() if "lm_head" in name]
    with pytest.raises(DraftwoodError, match="share_output"):
        head(torch.tensor([[1]]))
    with pytest.raises(DraftwoodError, match=r"lm_head is \[9, 32\].*needs one of \[260, 32\]"):
        head.share_output(torch.nn.Linear(32, 9))
    output = target.lm_head()
    assert output is not None
    head.share_output(output)
    assert head(torch.tensor([[1]])).logits.shape == (1, 1, V)
    assert output not in list(head.modules())


def test_an_lm_head_for_some_tokens_needs_the_targets(target: Runner, tmp_path: Path) -> None:
    where = written(tmp_path / "head", VARIANTS["no lm_head, some tokens"])
    with pytest.raises(DraftwoodError, match=r"lacks lm_head\.weight;"):
        load_head(where, target.info, target.embedding())

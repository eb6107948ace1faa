"""DFlash2 drafters: convolutions and selector by their equations, layouts, decoding with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.dflash.conditional import DFlash2Drafter
from draftwood.drafters.dflash.config import SelectorSizes, read_config
from draftwood.drafters.dflash.drafter import DFlash
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT
from tests.drafters.decoded_text import DecodedText
from tests.drafters.dflash_equations import block_of
from tests.drafters.expand_and_check import drive
from tests.drafters.small_target import check_law, check_tokens, model_check, small_target
from tests.factories.dflash_drafters import random_tensors, raw_config, saved
from tests.factories.tiny_llama import VOCAB, tiny_llama

WIDTH, KERNEL, GROUP, RANK, TOP_K = 32, 3, 4, 6, 9
LAYOUTS = ["z-lab", "speculators"]
SIZES = {
    "conv_kernel_size": KERNEL,
    "conv_group_size": GROUP,
    "selector_rank": RANK,
    "selector_top_k": TOP_K,
}
SLIDING: dict[str, Any] = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4,
}
RAW = raw_config(**SLIDING, is_causal=False)


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=4), chunk=16, self_test=False)


def tensors_of(rows: int) -> dict[str, torch.Tensor]:
    """Random tensors under the published names, for a target of so many tokens."""
    found = random_tensors(RAW)
    torch.manual_seed(13)
    for layer in range(2):
        for part in ("attention_conv", "mlp_conv"):
            name, own = f"layers.{layer}.{part}", 2 * KERNEL * WIDTH // GROUP
            found[f"{name}.base_kernel"] = 0.4 * torch.randn(2, KERNEL, WIDTH)
            found[f"{name}.kernel_projection.weight"] = 0.1 * torch.randn(own, WIDTH)
    for name in ("predecessor_codebook", "successor_codebook"):
        found[f"candidate_selector.{name}"] = torch.randn(rows, RANK)
    found["candidate_selector.hidden_projection.weight"] = 0.2 * torch.randn(RANK, WIDTH)
    return found


def configured(layout: str, **changes: Any) -> dict[str, Any]:
    """A ``config.json`` of a layout, of a drafter that reads the states entering layers 1 and 2."""
    if layout == "z-lab":
        own = {**SIZES, "block_size": 5, **changes}
        raw = raw_config(
            architectures=["DFlash2DraftModel"], dflash=own, **SLIDING, is_causal=False
        )
        del raw["block_size"]
        return raw
    inner = {n: each for n, each in RAW.items() if n not in ("dflash_config", "is_causal")}
    return {
        "architectures": ["DFlash2DraftModel"],
        "speculators_model_type": "dflash2",
        "transformer_layer_config": inner,
        "aux_hidden_state_layer_ids": [1, 2],
        "mask_token_id": 7,
        "block_size": 5,
        **SIZES,
        **changes,
    }


class HeadText(DecodedText):
    """A request of a target that decodes, and the equations for every path from scratch."""

    def __init__(
        self, target: Runner, drafter: DFlash2Drafter, slot: int, prompt: list[int]
    ) -> None:
        self.tensors = tensors_of(target.info.vocab_size)
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        block = block_of(self.tensors, RAW, [1, 2], self.target, self.tokens)
        path = [self.tokens[-1], *self.path(node)]
        out = block[len(path)]
        unary = model.lm_head(out)
        own = {n.removeprefix("candidate_selector."): t for n, t in self.tensors.items()}
        projected = own["hidden_projection.weight"] @ out
        before = own["predecessor_codebook"][path[-1]] * projected
        found = torch.full((VOCAB,), -torch.inf)
        for token in unary.topk(TOP_K).indices.tolist():
            found[token] = unary[token] + before @ own["successor_codebook"][token]
        return found


def drafter_of(directory: Path, target: Runner, layout: str = "z-lab") -> DFlash2Drafter:
    name = saved(directory, configured(layout), tensors_of(target.info.vocab_size))
    drafter = DFlash(name, "target").build(ModelHost(target))
    assert isinstance(drafter, DFlash2Drafter)
    return drafter


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_answer_is_that_of_the_equations(target: Runner, tmp_path: Path, layout: str) -> None:
    drafter = drafter_of(tmp_path, target, layout)
    assert drafter.needs == Needs(taps=(1, 2))
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, drafter, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 70), (2, 1))
    ]
    levels = drive(drafter, texts, rng, 4, VOCAB)
    assert 0 < drafter.forwards <= 4 < levels, "one forward a step serves all levels"


@pytest.mark.parametrize("wrong", ["base_kernel", "kernel_projection", "predecessor", "successor"])
def test_the_comparison_sees_what_is_wrong(target: Runner, tmp_path: Path, wrong: str) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, 0, [1, 2, 3])
    text.builder.add_chain([11], "context")
    for name in [name for name in text.tensors if wrong in name]:
        text.tensors[name] = text.tensors[name].flip(1)
    with pytest.raises(AssertionError):
        text.ask([1], 5)


def test_children_depend_on_the_path(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, 0, [1, 2, 3])
    nodes = [text.builder.add(ROOT, token, "context") for token in (11, 12, 13)]
    found = text.ask(nodes, 4)
    assert len({tuple(row) for row in found.tokens.tolist()}) == 3
    assert drafter.forwards == 1


def test_there_are_no_more_children_than_candidates(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, 0, [1, 2, 3])
    [answer] = drafter.expand([0], [text.query([ROOT], TOP_K + 3)])
    expected = text.logits(ROOT).topk(TOP_K).indices.tolist()
    assert answer.tokens[0].tolist() == [*expected, -1, -1, -1]
    assert np.isneginf(answer.logq[0, TOP_K:]).all()


def test_it_drafts_no_further_than_its_block(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13, 14], "context")
    [answer] = drafter.expand([0], [text.query([3, 4], 2)])
    last = text.logits(3).topk(2).indices.tolist()
    assert answer.tokens.tolist() == [last, [-1, -1]]


def test_a_batch_is_answered_as_each_alone_and_forgotten(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    texts = [HeadText(target, drafter, s, p) for s, p in ((3, [1, 2, 3]), (1, [9] * 20))]
    for text in texts:
        text.builder.add_chain([11, 12], "context")
    queries = [text.query([ROOT, 1, 2], 3) for text in texts]
    together = [found.tokens.tolist() for found in drafter.expand([3, 1], queries)]
    for text, found in zip(texts, together, strict=True):
        other = HeadText(target, drafter_of(tmp_path, target), 0, text.tokens[:-1])
        other.builder.add_chain([11, 12], "context")
        assert other.ask([ROOT, 1, 2], 3).tokens.tolist() == found
    drafter.release(3)
    with pytest.raises(KeyError):
        drafter.expand([3], queries[:1])


def test_sizes_that_a_configuration_leaves_out(target: Runner) -> None:
    raw = configured("speculators")
    for name in SIZES:
        del raw[name]
    found = read_config(raw, target.info)
    assert found.selector == SelectorSizes(2, 16, 256, 16)
    assert found.causal == (False, False)
    assert found.drafted == 4


def test_codebooks_as_the_package_names_them(target: Runner, tmp_path: Path) -> None:
    tensors = {
        f"{name}.weight" if name.endswith("codebook") else name: each
        for name, each in tensors_of(VOCAB).items()
    }
    name = saved(tmp_path, configured("z-lab"), tensors)
    drafter = DFlash(name, "target").build(ModelHost(target))
    assert isinstance(drafter, DFlash2Drafter)
    HeadText(target, drafter, 0, [1, 2, 3]).ask([ROOT], 3)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"candidate_selector.successor_codebook": torch.zeros(9, RANK)}, r"is \[9, 6\]"),
        (
            {"layers.0.mlp_conv.base_kernel": torch.zeros(2, 2, WIDTH)},
            r"base_kernel is \[2, 2, 32\]",
        ),
        ({"layers.0.conv.weight": torch.zeros(2)}, "has layers.0.conv.weight"),
        ({"d2t": torch.zeros(4, dtype=torch.int64)}, "reduced vocabulary"),
    ],
)
def test_other_tensors_are_refused(
    target: Runner, tmp_path: Path, change: dict[str, torch.Tensor], complaint: str
) -> None:
    name = saved(tmp_path, configured("z-lab"), tensors_of(VOCAB) | change)
    with pytest.raises(DraftwoodError, match=complaint):
        load_dflash(name, target, torch.float32)


def test_missing_and_further_parts_are_refused(target: Runner, tmp_path: Path) -> None:
    name = saved(tmp_path / "a", configured("z-lab"), random_tensors(RAW))
    with pytest.raises(DraftwoodError, match=r"lacks candidate_selector\.hidden_projection"):
        load_dflash(name, target, torch.float32)
    name = saved(tmp_path / "b", RAW, tensors_of(VOCAB))
    with pytest.raises(DraftwoodError, match=r"has candidate_selector\.hidden_projection"):
        load_dflash(name, target, torch.float32)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sample_from_anchor": True}, "has sample_from_anchor"),
        ({"markov_rank": 4}, "has markov_rank"),
        ({"conv_group_size": 5}, "conv_group_size 5 for a width of 32"),
        ({"selector_top_k": 0}, "selector_top_k 0"),
    ],
)
def test_other_configurations_are_refused(
    target: Runner, changes: dict[str, Any], complaint: str
) -> None:
    for layout in LAYOUTS:
        with pytest.raises(DraftwoodError, match=complaint):
            read_config(configured(layout, **changes), target.info)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_option_finds_it(tmp_path: Path, layout: str) -> None:
    name = saved(tmp_path, configured(layout), {})
    assert kind_of("head", name) == "dflash"
    assert method(f"talon:head={name}").drafters["draft"] == DFlash(name)


@pytest.fixture(scope="module")
def small() -> Runner:
    return small_target(layers=4)


@pytest.fixture(scope="module")
def head(small: Runner, tmp_path_factory: pytest.TempPathFactory) -> str:
    tensors = tensors_of(small.info.vocab_size)
    return saved(tmp_path_factory.mktemp("head"), configured("z-lab"), tensors)


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("name", ["dflash", "eagle3", "talon", "traversal", "auto"])
def test_the_tokens_are_those_of_plain_decoding(
    small: Runner, head: str, name: str, max_batch: int
) -> None:
    check_tokens(
        small, f"{name}:drafter=dflash:head={head}", max_batch, 1 if name == "dflash" else 3
    )


@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_the_distribution_is_the_targets(small: Runner, head: str, name: str) -> None:
    chosen = method(f"{name}:drafter=dflash:head={head}")
    check_law(small, chosen)


def test_a_wrong_q_is_found(small: Runner, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = VocabularyMap.target_rows
    monkeypatch.setattr(VocabularyMap, "target_rows", lambda *given: rows(*given).roll(5, 1))
    chosen = method(f"specinfer:drafter=dflash:head={head}")
    assert not model_check(small).check_sampled("wrong", chosen, 600).passed

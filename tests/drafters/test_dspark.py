"""DSpark drafters: the Markov head's equations, the layouts, and decoding with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.dflash.conditional import DSparkDrafter
from draftwood.drafters.dflash.config import read_config
from draftwood.drafters.dflash.drafter import DFlash, DFlashDrafter
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import Built, Needs, RequestLoad
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT
from tests.drafters.decoded_text import DecodedText
from tests.drafters.dflash_equations import block_of
from tests.drafters.expand_and_check import drive
from tests.drafters.small_target import check_law, check_tokens, model_check, small_target
from tests.factories.dflash_drafters import random_tensors, raw_config, saved
from tests.factories.markov_target import FakeHost
from tests.factories.tiny_llama import VOCAB, tiny_llama

KINDS = ["vanilla", "gated", "rnn"]
RANK, WIDTH, BLOCK, MASK = 6, 32, 5, 7
LAYOUTS = ["specforge", "deepspec", "speculators"]


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=4), chunk=16, self_test=False)


def head_tensors(kind: str, rows: int, outputs: int | None = None) -> dict[str, torch.Tensor]:
    """The tensors of a Markov head and a confidence head."""
    torch.manual_seed(12)
    shapes: dict[str, tuple[int, ...]] = {
        "markov_head.markov_w1.weight": (rows, RANK),
        "markov_head.markov_w2.weight": (outputs or rows, RANK),
        "confidence_head.proj.weight": (1, WIDTH + RANK),
        "confidence_head.proj.bias": (1,),
    }
    if kind == "gated":
        shapes["markov_head.gate_proj.weight"] = (RANK, WIDTH + RANK)
        shapes["markov_head.gate_proj.bias"] = (RANK,)
    if kind == "rnn":
        shapes["markov_head.joint_proj.weight"] = (3 * RANK, 2 * RANK + WIDTH)
        shapes["markov_head.joint_proj.bias"] = (3 * RANK,)
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def configured(layout: str, kind: str, **changes: Any) -> dict[str, Any]:
    """A ``config.json`` of a layout, of a drafter that reads the states entering layers 1 and 2."""
    head = {"markov_rank": RANK, "markov_head_type": kind, "enable_confidence_head": True}
    if layout == "specforge":
        own = {"projector_type": "dspark", "attention_mode": "gqa", **head, **changes}
        return raw_config(architectures=["DSparkDraftModel"], dflash=own)
    raw = raw_config()
    flat = {name: each for name, each in raw.items() if name != "dflash_config"}
    if layout == "deepspec":
        own = {"architectures": ["Qwen3DSparkModel"], "target_layer_ids": [0, 1]}
        return {**flat, **own, "mask_token_id": MASK, **head, **changes}
    return {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "transformer_layer_config": flat,
        "aux_hidden_state_layer_ids": [1, 2],
        "mask_token_id": MASK,
        "block_size": BLOCK,
        **head,
        **changes,
    }


def stored(layout: str, kind: str, target: Runner) -> dict[str, torch.Tensor]:
    """The tensors of a layout; DeepSpec's has copies of the target's tables."""
    found = random_tensors(raw_config()) | head_tensors(kind, target.info.vocab_size)
    if layout == "deepspec":
        model: Any = target.model
        found["embed_tokens.weight"] = model.get_input_embeddings().weight.detach().clone()
        found["lm_head.weight"] = model.lm_head.weight.detach().clone()
    return found


def added(
    tensors: dict[str, torch.Tensor], kind: str, slots: torch.Tensor, path: list[int]
) -> torch.Tensor:
    """What the equations add to the logits after a path: ``slots`` ``[m, H]`` are those drafted."""
    own = {name.removeprefix("markov_head."): tensor for name, tensor in tensors.items()}
    e, w2 = own["markov_w1.weight"][path], own["markov_w2.weight"]
    if kind == "vanilla":
        return w2 @ e[-1]
    if kind == "gated":
        joined = torch.cat([slots[len(path) - 1], e[-1]])
        gate = torch.sigmoid(own["gate_proj.weight"] @ joined + own["gate_proj.bias"])
        return w2 @ (gate * e[-1])
    state = torch.zeros(RANK)
    for place in range(len(path)):
        joined = torch.cat([state, e[place], slots[place]])
        g, c, o = (own["joint_proj.weight"] @ joined + own["joint_proj.bias"]).chunk(3)
        state = torch.sigmoid(g) * state + (1 - torch.sigmoid(g)) * torch.tanh(c)
    return w2 @ torch.tanh(o)


class HeadText(DecodedText):
    """A request of a target that decodes, and the equations for every path from scratch."""

    def __init__(
        self, target: Runner, drafter: Any, kind: str, first: int, slot: int, prompt: list[int]
    ) -> None:
        self.kind, self.first = kind, first
        self.tensors = random_tensors(raw_config()) | head_tensors(kind, target.info.vocab_size)
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        slots = block_of(self.tensors, raw_config(), [1, 2], self.target, self.tokens)[self.first :]
        path = [self.tokens[-1], *self.path(node)]
        found: torch.Tensor = model.lm_head(slots[len(path) - 1])
        return found + added(self.tensors, self.kind, slots, path)


def drafter_of(
    directory: Path,
    target: Runner,
    layout: str = "specforge",
    kind: str = "vanilla",
    **changes: Any,
) -> DSparkDrafter:
    raw = configured(layout, kind, **changes)
    name = saved(directory, raw, stored(layout, kind, target))
    drafter = DFlash(name, "target").build(ModelHost(target))
    assert isinstance(drafter, DSparkDrafter)
    return drafter


@pytest.mark.parametrize(
    ("kind", "from_anchor"),
    [*((kind, True) for kind in KINDS), ("vanilla", False), ("gated", False)],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_answer_is_that_of_the_equations(
    target: Runner, tmp_path: Path, layout: str, kind: str, from_anchor: bool
) -> None:
    said = {} if from_anchor else {"sample_from_anchor": False}
    drafter = drafter_of(tmp_path, target, layout, kind, **said)
    assert drafter.needs == Needs(taps=(1, 2))
    first = 0 if from_anchor else 1
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, drafter, kind, first, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 70), (2, 1))
    ]
    levels = drive(drafter, texts, rng, 4, VOCAB)
    assert 0 < drafter.forwards <= 4 < levels, "one forward a step serves all levels"


@pytest.mark.parametrize("wrong", ["slots", "kind", "token"])
def test_the_comparison_sees_what_is_wrong(
    target: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    drafter = drafter_of(tmp_path, target, kind="gated")
    text = HeadText(target, drafter, "gated", int(wrong == "slots"), 0, [1, 2, 3])
    text.builder.add_chain([11], "context")
    if wrong == "kind":
        text.kind = "vanilla"
    elif wrong == "token":
        head = drafter._network.markov_head
        whole = head.forward
        monkeypatch.setattr(head, "forward", lambda rows, paths: whole(rows, paths.roll(1, 1)))
    with pytest.raises(AssertionError):
        text.ask([1], 5)


def test_children_depend_on_the_path(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, "vanilla", 0, 0, [1, 2, 3])
    nodes = [text.builder.add(ROOT, token, "context") for token in (11, 12, 13)]
    found = text.ask(nodes, 4)
    assert len({tuple(row) for row in found.tokens.tolist()}) == 3
    assert drafter.forwards == 1


@pytest.mark.parametrize(("from_anchor", "drafted"), [(True, BLOCK), (False, BLOCK - 1)])
def test_it_drafts_no_further_than_its_block(
    target: Runner, tmp_path: Path, from_anchor: bool, drafted: int
) -> None:
    drafter = drafter_of(tmp_path, target, sample_from_anchor=from_anchor)
    text = HeadText(target, drafter, "vanilla", int(not from_anchor), 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13, 14, 15], "context")
    [answer] = drafter.expand([0], [text.query([drafted - 1, drafted], 2)])
    last = text.logits(drafted - 1).topk(2).indices.tolist()
    assert answer.tokens.tolist() == [last, [-1, -1]]


def test_a_shorter_block(target: Runner, tmp_path: Path) -> None:
    name = saved(tmp_path, configured("deepspec", "rnn"), stored("deepspec", "rnn", target))
    drafter = DFlash(name, "target", ahead=2).build(ModelHost(target))
    text = HeadText(target, drafter, "vanilla", 0, 0, [1, 2, 3])
    text.builder.add_chain([11, 12], "context")
    [answer] = drafter.expand([0], [text.query([1, 2], 2)])
    assert answer.tokens[0].min() >= 0
    assert (answer.tokens[1] == -1).all()


def test_a_batch_is_answered_as_each_alone(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target, kind="rnn")
    texts = [
        HeadText(target, drafter, "rnn", 0, slot, prompt)
        for slot, prompt in ((3, [1, 2, 3]), (1, [9] * 20))
    ]
    for text in texts:
        text.builder.add_chain([11, 12], "context")
    queries = [text.query([ROOT, 1, 2], 3) for text in texts]
    together = [found.tokens.tolist() for found in drafter.expand([3, 1], queries)]
    for text, found in zip(texts, together, strict=True):
        alone = drafter_of(tmp_path, target, kind="rnn")
        other = HeadText(target, alone, "rnn", 0, 0, text.tokens[:-1])
        other.builder.add_chain([11, 12], "context")
        assert other.ask([ROOT, 1, 2], 3).tokens.tolist() == found


def test_released_requests_are_forgotten(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, "vanilla", 0, 0, [1, 2, 3])
    text.ask([ROOT], 2)
    drafter.release(0)
    with pytest.raises(KeyError):
        drafter.expand([0], [text.query([ROOT], 2)])


def test_a_reduced_vocabulary(target: Runner, tmp_path: Path) -> None:
    ids = torch.tensor([3, 9, 40, 77])
    tensors = random_tensors(raw_config()) | head_tensors("vanilla", VOCAB, len(ids))
    tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": torch.zeros(VOCAB, dtype=torch.bool)}
    name = saved(tmp_path, configured("speculators", "vanilla"), tensors)
    drafter = DFlash(name, "target").build(ModelHost(target))

    class Reduced(HeadText):
        def logits(self, node: int) -> torch.Tensor:
            model: Any = self.target.model
            block = block_of(tensors, raw_config(), [1, 2], self.target, self.tokens)
            path = [self.tokens[-1], *self.path(node)]
            found = torch.full((VOCAB,), -torch.inf)
            with torch.no_grad():
                base = model.lm_head(block[len(path) - 1])[ids]
            found[ids] = base + added(tensors, "vanilla", block, path)
            return found

    text = Reduced(target, drafter, "vanilla", 0, 0, [1, 2, 3])
    text.builder.add_chain([200], "context")
    text.ask([ROOT, 1], 3)


def test_old_names_of_specforge(target: Runner, tmp_path: Path) -> None:
    tensors = {
        f"logit_head.{name}" if name.startswith(("markov", "confidence")) else name: tensor
        for name, tensor in stored("specforge", "gated", target).items()
    }
    name = saved(tmp_path, configured("specforge", "gated"), tensors)
    drafter = DFlash(name, "target").build(ModelHost(target))
    HeadText(target, drafter, "gated", 0, 0, [1, 2, 3]).ask([ROOT], 3)


def test_without_a_markov_head_it_is_dflash_from_the_anchor(target: Runner, tmp_path: Path) -> None:
    raw = configured("deepspec", "vanilla", markov_rank=0)
    drafter = DFlash(saved(tmp_path, raw, random_tensors(raw))).build(ModelHost(target))
    assert isinstance(drafter, DFlashDrafter)


def test_which_token_a_slot_drafts(target: Runner, tmp_path: Path) -> None:
    tensors = stored("specforge", "vanilla", target)
    for number, (said, drafted) in enumerate(
        [({}, 5), ({"dspark_bonus_anchor": True}, 4), ({"sample_from_anchor": False}, 4)]
    ):
        name = saved(tmp_path / str(number), configured("specforge", "vanilla", **said), tensors)
        assert load_dflash(name, target, torch.float32).config.drafted == drafted


def test_an_rnn_head_drafts_from_the_anchor(target: Runner) -> None:
    for layout in LAYOUTS:
        raw = configured(layout, "rnn", sample_from_anchor=False)
        with pytest.raises(DraftwoodError, match="an rnn head, and its first slot drafts nothing"):
            read_config(raw, target.info)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"markov_head.markov_w1.weight": torch.zeros(9, RANK)}, r"w1.weight is \[9, 6\]"),
        ({"markov_head.markov_w2.weight": torch.zeros(9, RANK)}, r"w2.weight is \[9, 6\]"),
        ({"markov_head.gate_proj.weight": torch.zeros(2, 2)}, "has markov_head.gate_proj.weight"),
        ({"layers.0.conv.weight": torch.zeros(2)}, "has layers.0.conv.weight"),
    ],
)
def test_other_tensors_are_refused(
    target: Runner, tmp_path: Path, change: dict[str, torch.Tensor], complaint: str
) -> None:
    tensors = stored("specforge", "vanilla", target) | change
    name = saved(tmp_path, configured("specforge", "vanilla"), tensors)
    with pytest.raises(DraftwoodError, match=complaint):
        load_dflash(name, target, torch.float32)


def test_missing_and_further_heads_are_refused(target: Runner, tmp_path: Path) -> None:
    backbone = random_tensors(raw_config())
    name = saved(tmp_path / "a", configured("specforge", "vanilla"), backbone)
    with pytest.raises(DraftwoodError, match=r"lacks markov_head\.markov_w1\.weight"):
        load_dflash(name, target, torch.float32)
    name = saved(tmp_path / "b", raw_config(), stored("specforge", "vanilla", target))
    with pytest.raises(DraftwoodError, match=r"has markov_head\.markov_w1\.weight"):
        load_dflash(name, target, torch.float32)


def test_padding_of_the_embedding(target: Runner, tmp_path: Path) -> None:
    tensors = stored("specforge", "vanilla", target)
    table = tensors["markov_head.markov_w1.weight"]
    tensors["markov_head.markov_w1.weight"] = torch.cat([table, torch.zeros(4, RANK)])
    name = saved(tmp_path, configured("specforge", "vanilla"), tensors)
    drafter = DFlash(name, "target").build(ModelHost(target))
    HeadText(target, drafter, "vanilla", 0, 0, [1, 2, 3]).ask([ROOT], 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_option_finds_it(tmp_path: Path, layout: str) -> None:
    name = saved(tmp_path, configured(layout, "vanilla"), {})
    assert kind_of("head", name) == "dflash"
    for text in ("talon", "eagle3", "auto"):
        assert method(f"{text}:head={name}").drafters["draft"] == DFlash(name)


def test_auto_pays_for_one_forward_a_step(target: Runner, tmp_path: Path) -> None:
    auto = method("auto:drafter=dflash")
    assert isinstance(auto.policy, Auto)
    name = saved(tmp_path, configured("specforge", "rnn"), stored("specforge", "rnn", target))
    spec = DFlash(name)
    built = Built(spec, spec.build(ModelHost(target)))
    tuner = auto.policy.tuner(FakeHost(target.info), {"draft": built})
    load = RequestLoad(cached=10, left=50, pace=1.0, temperature=0.0)
    (forecast,) = tuner.begin([load])
    assert forecast.of("draft").at_once


@pytest.fixture(scope="module")
def small() -> Runner:
    return small_target(layers=4)


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["dflash", "eagle3", "talon", "traversal", "auto"])
def test_the_tokens_are_those_of_plain_decoding(
    small: Runner, tmp_path: Path, name: str, kind: str, max_batch: int
) -> None:
    head = saved(tmp_path, configured("specforge", kind), stored("specforge", kind, small))
    check_tokens(
        small, f"{name}:drafter=dflash:head={head}", max_batch, 1 if name == "dflash" else 3
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_the_distribution_is_the_targets(
    small: Runner, tmp_path: Path, name: str, kind: str
) -> None:
    head = saved(tmp_path, configured("specforge", kind), stored("specforge", kind, small))
    chosen = method(f"{name}:drafter=dflash:head={head}")
    check_law(small, chosen)


def test_a_wrong_q_is_found(small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = stored("specforge", "vanilla", small)
    head = saved(tmp_path, configured("specforge", "vanilla"), tensors)
    rows = VocabularyMap.target_rows
    monkeypatch.setattr(VocabularyMap, "target_rows", lambda *given: rows(*given).roll(5, 1))
    chosen = method(f"specinfer:drafter=dflash:head={head}")
    assert not model_check(small).check_sampled("wrong", chosen, 600).passed

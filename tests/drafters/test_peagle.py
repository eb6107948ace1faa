"""P-EAGLE heads: their equations, their checkpoints, and decoding with them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from draftwood.drafters._head import AutoregressiveHead
from draftwood.drafters._masked import MaskedDrafter
from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.drafters.eagle3.checkpoint import load_any_head, load_head, save_head
from draftwood.drafters.eagle3.drafter import Eagle3
from draftwood.drafters.peagle import Peagle
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import CannedDrafter
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT
from tests.drafters.decoded_text import DecodedText
from tests.drafters.enumerated_marginals import largest_difference, marginals_of
from tests.drafters.expand_and_check import drive
from tests.drafters.small_target import VOCAB as FEW
from tests.drafters.small_target import check_law, check_tokens, model_check, small_target
from tests.factories.eagle3_equations import LAYERS, H, Reference, Variant, written
from tests.factories.tiny_llama import VOCAB as V
from tests.factories.tiny_llama import tiny_llama

MASK, AHEAD = 250, 4
SOME = tuple(range(0, V, 3))
AMAZON = Variant(
    {"ptd_token_id": MASK, "architectures": ["LlamaForCausalLMEagle3"]},
    layers=4,
    first="layers.0.",
    drafted=SOME,
    own_embedding=True,
    mask=(1, 1, 3 * H),
)
VARIANTS = {
    "amazon's": AMAZON,
    "speculators'": dataclasses.replace(
        AMAZON,
        config={
            "speculators_model_type": "peagle",
            "mask_token_id": MASK,
            "model_type": "qwen3",
            "norm_before_fc": True,
        },
        layers=2,
        qk_norm=True,
        input_norm=True,
        nested=True,
    ),
    "vLLM's": Variant(
        {"pard_token": MASK, "draft_vocab_size": V, "fc_norm": True, "norm_output": True},
        fc_norm=True,
        norm_output=True,
        prefix="model.",
        mask=(1, 3 * H),
    ),
    "all tokens of the target": Variant(
        {"mask_token_id": MASK, "parallel_drafting": True, "draft_vocab_size": V},
        own_output=False,
        mask=(3 * H,),
    ),
}
each = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(layers=LAYERS), chunk=16, self_test=False)


def drafter_of(directory: Path, target: Runner, variant: Variant = AMAZON) -> MaskedDrafter:
    name = str(written(directory / "head", variant))
    return Peagle(name, "target", ahead=AHEAD).build(ModelHost(target))


def loaded(directory: Path, target: Runner) -> AutoregressiveHead:
    return load_any_head(str(written(directory / "head", AMAZON)), target, torch.float32)


class HeadText(DecodedText):
    """A request of a target that decodes, and the equations over its text and masks.

    ``wrong`` names a part that is left out.
    """

    def __init__(
        self,
        target: Runner,
        drafter: MaskedDrafter,
        slot: int,
        prompt: list[int],
        variant: Variant = AMAZON,
        wrong: str = "",
    ) -> None:
        model: Any = target.model
        tables = model.model.embed_tokens.weight.detach(), model.lm_head.weight.detach()
        self.variant, self.reference, self.wrong = variant, Reference(variant, *tables), wrong
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        before = torch.tensor([self.tokens[:-1]])
        states = model(input_ids=before, output_hidden_states=True).hidden_states
        features = torch.cat([states[tap] for tap in self.variant.taps], dim=-1)[0]
        masked = self.reference.t["mask_hidden"].view(1, -1)
        if self.wrong == "features":
            masked = torch.zeros_like(masked)
        masks = self.builder.depths[node]
        h = torch.cat([self.reference.h(features), self.reference.h(masked).expand(masks, -1)])
        token = 3 if self.wrong == "token" else MASK
        tokens = [*self.tokens[1:], *[token] * masks]
        if self.wrong == "path":
            tokens = [*self.tokens[1:], *self.path(node)]
        found = torch.full((V,), -torch.inf)
        drafted = range(V) if self.variant.drafted is None else self.variant.drafted
        found[list(drafted)] = self.reference.forward(tokens, h)[0][-1].float()
        return found


@each
def test_every_answer_is_that_of_the_equations(
    target: Runner, tmp_path: Path, variant: Variant
) -> None:
    drafter = drafter_of(tmp_path, target, variant)
    assert drafter.needs == Needs(taps=variant.taps)
    rng = np.random.default_rng(0)
    texts = [
        HeadText(target, drafter, slot, rng.integers(V, size=n).tolist(), variant)
        for slot, n in ((4, 9), (0, 21), (2, 1))
    ]
    levels = drive(drafter, texts, rng, 5, V)
    assert 0 < drafter.forwards <= 5 < levels, "one forward a step serves all levels"


@pytest.mark.parametrize("wrong", ["features", "token", "path"])
def test_the_comparison_sees_what_is_wrong(target: Runner, tmp_path: Path, wrong: str) -> None:
    text = HeadText(target, drafter_of(tmp_path, target), 0, [1, 2, 3], wrong=wrong)
    text.builder.add_chain([11], "context")
    text.ask([ROOT], 5)
    with pytest.raises(AssertionError):
        text.ask([1], 5)


def test_rows_of_masks_do_not_stay_in_the_cache(target: Runner, tmp_path: Path) -> None:
    head = loaded(tmp_path, target)
    runner = attach(head, self_test=False)
    assert head.mask is not None
    reader = HeadDrafter(head, runner, target.info)
    drafter = MaskedDrafter(reader, head.mask, target.info, AHEAD)
    text = HeadText(target, drafter, 0, [1, 2, 3])
    for step in range(3):
        text.builder.add_chain([11, 12, 13], "context")
        text.ask([2, ROOT], 3)
        before = len(text.tokens) - 1
        text.finish(*range(1, step + 1), bonus=5)
        text.ask([ROOT], 3)
        assert runner.length(0) == before, "the new tokens are not committed yet"
        text.finish(bonus=9)
    runner.detach()


def test_nodes_below_the_last_mask_have_no_children(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path, target)
    text = HeadText(target, drafter, 0, [1, 2, 3])
    text.builder.add_chain([11, 12, 13, 14], "context")
    [answer] = drafter.expand([0], [text.query([AHEAD, ROOT, AHEAD - 1], 2)])
    assert (answer.tokens[0] == -1).all()
    for place, node in ((1, ROOT), (2, AHEAD - 1)):
        assert answer.tokens[place].tolist() == text.logits(node).topk(2).indices.tolist()


@each
def test_a_saved_head_is_the_same(target: Runner, tmp_path: Path, variant: Variant) -> None:
    shared = target.embedding(), target.lm_head()
    head = load_head(written(tmp_path / "head", variant), target.info, *shared)
    again = load_head(save_head(head, tmp_path / "again"), target.info, *shared)
    assert Peagle.reads(json.loads((tmp_path / "again" / "config.json").read_text()))
    one, other = head.mask, again.mask
    assert one is not None
    assert other is not None
    assert one.token == other.token == MASK
    assert one.vector is not None
    assert other.vector is not None
    assert one.vector.shape == (H,)
    torch.testing.assert_close(one.vector, other.vector)


@each
def test_a_head_option_finds_it(tmp_path: Path, variant: Variant) -> None:
    name = str(written(tmp_path / "head", variant))
    assert kind_of("head", name) == "peagle"
    for text in ("talon", "eagle3", "auto", "goose-eagle3", "peagle"):
        assert method(f"{text}:head={name}").drafters["draft"] == Peagle(name)
    assert method("peagle").missing == ("head",)
    assert kind_of("draft", name) == "model", "it is no draft model"


def test_other_heads_are_not_taken_for_it() -> None:
    assert not Peagle.reads({})
    assert not Peagle.reads({"speculators_model_type": "dflash", "mask_token_id": 3})
    assert not Peagle.reads({"speculators_model_type": "eagle3"})
    assert not Peagle.reads({"mask_token_id": 3})


def changed(directory: Path, tensors: dict[str, torch.Tensor | None], **fields: Any) -> str:
    """Amazon's head with other tensors (None: without) and fields of its ``config.json``."""
    written(directory / "head", AMAZON)
    file, config = directory / "head" / "model.safetensors", directory / "head" / "config.json"
    stored = {**load_file(file), **tensors}
    save_file({name: each for name, each in stored.items() if each is not None}, file)
    config.write_text(json.dumps(json.loads(config.read_text()) | fields))
    return str(directory / "head")


@pytest.mark.parametrize(
    ("tensors", "fields", "complaint"),
    [
        ({"mask_hidden": None}, {}, "lacks mask_hidden"),
        ({"mask_hidden": torch.zeros(1, 1, H)}, {}, r"mask_hidden is \[1, 1, 32\].*\[1, 1, 96\]"),
        ({"layers.3.mlp.up_proj.weight": None}, {}, r"lacks layers\.3\.mlp\.up_proj\.weight"),
        ({"layers.1.gate": torch.zeros(2)}, {}, r"has not: layers\.1\.gate"),
        ({}, {"ptd_token_id": None}, "names no mask token"),
        ({}, {"ptd_token_id": V}, f"mask token is {V}, which is none of {V} tokens"),
        ({}, {"ptd_token_id": "7"}, "mask token is '7'"),
        ({}, {"target_hidden_size": 64}, "hidden states of width 64"),
        ({"embed_tokens.weight": torch.zeros(9, H)}, {}, "mask token 250 has no row in embed_tok"),
        ({"d2t": torch.full((len(SOME),), V)}, {}, f"outside the target's vocabulary of {V}"),
        ({"lm_head.weight": torch.zeros(len(SOME), H).char()}, {}, "not quantised"),
    ],
)
def test_what_does_not_fit_is_refused(
    target: Runner,
    tmp_path: Path,
    tensors: dict[str, torch.Tensor | None],
    fields: dict[str, Any],
    complaint: str,
) -> None:
    name = changed(tmp_path, tensors, **fields)
    with pytest.raises(DraftwoodError, match=complaint):
        Peagle(name).build(ModelHost(target))


def test_a_head_for_another_width_is_refused(tmp_path: Path) -> None:
    wide = attach(tiny_llama(layers=LAYERS, hidden_size=48), self_test=False)
    with pytest.raises(DraftwoodError, match=r"fc.weight is \[32, 96\].*another target"):
        drafter_of(tmp_path, wide)


def test_heads_are_not_mistaken_for_one_another(target: Runner, tmp_path: Path) -> None:
    host = ModelHost(target)
    masked = str(written(tmp_path / "masked", AMAZON))
    plain = str(written(tmp_path / "plain", Variant(drafted=SOME)))
    with pytest.raises(DraftwoodError, match=r"P-EAGLE head \(it has mask_hid.*drafter=peagle"):
        Eagle3(masked).build(host)
    with pytest.raises(DraftwoodError, match=r"reads no masks .*drafter=eagle3"):
        Peagle(plain).build(host)
    with pytest.raises(DraftwoodError, match=r"no P-EAGLE head is named: give .*--head"):
        Peagle().build(host)


def test_a_loaded_head_is_used_as_it_is(target: Runner, tmp_path: Path) -> None:
    head = loaded(tmp_path, target)
    drafter = Peagle(head, ahead=AHEAD).build(ModelHost(target))
    HeadText(target, drafter, 0, [1, 2, 3]).ask([ROOT], 3)


@pytest.fixture(scope="module")
def small() -> Runner:
    return small_target(LAYERS)


def few(directory: Path, tokens: int = FEW) -> str:
    """A head for a target of few tokens, whose last one is the mask."""
    made = dataclasses.replace(
        AMAZON,
        config={"ptd_token_id": tokens - 1},
        layers=2,
        rows=tokens,
        drafted=tuple(range(tokens)),
    )
    return str(written(directory / "head", made))


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("name", ["peagle", "eagle3", "talon", "fixed-tree", "traversal", "auto"])
def test_the_tokens_are_those_of_plain_decoding(
    small: Runner, tmp_path: Path, name: str, max_batch: int
) -> None:
    check_tokens(small, f"{name}:drafter=peagle:head={few(tmp_path)}", max_batch)


@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_the_distribution_is_the_targets(small: Runner, tmp_path: Path, name: str) -> None:
    chosen = method(f"{name}:drafter=peagle:head={few(tmp_path)}")
    check_law(small, chosen)


def test_a_wrong_q_is_found(small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = VocabularyMap.target_rows
    monkeypatch.setattr(VocabularyMap, "target_rows", lambda *given: rows(*given).roll(5, 1))
    chosen = method(f"specinfer:drafter=peagle:head={few(tmp_path)}")
    assert not model_check(small).check_sampled("wrong", chosen, 600).passed


@pytest.fixture(scope="module")
def tiny_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[float, ...], ...]:
    """Marginals of a head for three tokens."""
    model = tiny_llama(vocab_size=3, layers=LAYERS, eos_token_id=None, bos_token_id=None)
    target = attach(model, self_test=False)
    name = few(tmp_path_factory.mktemp("tiny"), 3)
    drafter = Peagle(name, "target", ahead=AHEAD).build(ModelHost(target))
    text = _Unchecked(target, drafter, 0, [1, 2])
    return marginals_of(drafter, 0, text.tokens[-1])


class _Unchecked(DecodedText):
    def logits(self, node: int) -> torch.Tensor:
        raise AssertionError("nothing is compared")


@pytest.mark.parametrize("name", ["peagle", "traversal", "specinfer", "rrsw", "block", "talon"])
def test_the_law_of_a_step_is_the_targets(
    tiny_rows: tuple[tuple[float, ...], ...], name: str
) -> None:
    assert largest_difference(name, tiny_rows) < 1e-12


def test_the_enumeration_sees_a_wrong_q(
    tiny_rows: tuple[tuple[float, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = CannedDrafter.proposals
    monkeypatch.setattr(CannedDrafter, "proposals", lambda *given: rows(*given).roll(1, 1))
    assert largest_difference("specinfer", tiny_rows) > 1e-3

"""PARD: the plain model over a text with masks, its checkpoints, and decoding with it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from draftwood.drafters._masked import MaskedDrafter
from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.drafters.model import Model
from draftwood.drafters.pard import Pard
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import CannedDrafter
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.methods.shipped import check_drafts
from draftwood.protocols import Mask, Needs, Prefill, TargetInfo
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import ROOT
from tests.drafters.enumerated_marginals import largest_difference, marginals_of
from tests.drafters.expand_and_check import Text, drive
from tests.drafters.small_target import VOCAB as FEW
from tests.drafters.small_target import check_law, check_tokens, model_check, small_target
from tests.factories.markov_target import FakeHost
from tests.factories.masked_models import save_pard
from tests.factories.model_families import FAMILIES, VOCAB
from tests.factories.path_logits import plain_logits
from tests.factories.small_tokenizers import byte_level
from tests.factories.tiny_llama import tiny_llama

MASK, AHEAD = 90, 4
ANY_ROWS: Any = None


def info_of(vocab: int = VOCAB) -> TargetInfo:
    return TargetInfo(vocab, 256, 1, 1, torch.device("cpu"), torch.float32)


@pytest.fixture(params=["llama", "qwen2", "qwen3"])
def runner(request: pytest.FixtureRequest) -> Runner:
    return attach(FAMILIES[request.param](), chunk=16, self_test=False)


def drafter_of(runner: Runner, vocab: int = VOCAB, ahead: int = AHEAD) -> MaskedDrafter:
    info = info_of(vocab)
    return MaskedDrafter(ModelDrafter(runner, info), Mask(MASK), info, ahead)


class MaskedText(Text):
    """A request, and the plain model over its committed text and masks."""

    def __init__(
        self, drafter: MaskedDrafter, model: Any, slot: int, prompt: Sequence[int], mask: int = MASK
    ) -> None:
        super().__init__(drafter, slot, Prefill(np.array(prompt, dtype=np.int64), 7, ANY_ROWS))
        self.model, self.mask = model, mask

    def logits(self, node: int) -> torch.Tensor:
        masks = [self.mask] * self.builder.depths[node]
        return plain_logits(self.model, self.tokens + masks)[-1]


def test_every_answer_is_that_of_the_plain_model(runner: Runner) -> None:
    drafter = drafter_of(runner)
    assert drafter.needs == Needs()
    rng = np.random.default_rng(0)
    texts = [
        MaskedText(drafter, runner.model, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((5, 9), (0, 23), (2, 1))
    ]
    levels = drive(drafter, texts, rng, 6, VOCAB)
    assert 0 < drafter.forwards <= 6 < levels, "one forward a step serves all levels"


@pytest.mark.parametrize("mask", [MASK - 1, 0])
def test_the_comparison_sees_another_mask(runner: Runner, mask: int) -> None:
    text = MaskedText(drafter_of(runner), runner.model, 0, [1, 2, 3], mask)
    text.builder.add_chain([11], "context")
    text.ask([ROOT], 5)
    with pytest.raises(AssertionError):
        text.ask([1], 5)


def test_masks_do_not_stay_in_the_cache(runner: Runner) -> None:
    drafter = drafter_of(runner)
    text = MaskedText(drafter, runner.model, 0, [1, 2, 3])
    for step in range(4):
        text.builder.add_chain([11, 12, 13], "context")
        text.ask([2, ROOT], 3)
        before = len(text.tokens)
        text.finish(*range(1, step + 1), bonus=5)
        text.ask([ROOT], 3)
        assert runner.length(0) == before, "the new tokens are not committed yet"
        text.finish(bonus=9)


def test_a_mask_may_be_a_token_of_the_text(runner: Runner) -> None:
    drafter = drafter_of(runner)
    text = MaskedText(drafter, runner.model, 0, [1, MASK, 3])
    text.builder.add_chain([MASK, MASK, 12], "context")
    text.ask([ROOT, 2, 3], 4)
    text.finish(1, 2, 3, bonus=MASK)
    text.ask([ROOT], 4)
    text.builder.add_chain([8], "context")
    text.ask([1], 4)


def test_it_drafts_no_further_than_it_is_told(runner: Runner) -> None:
    drafter = drafter_of(runner, ahead=2)
    text = MaskedText(drafter, runner.model, 0, [1, 2, 3])
    text.builder.add_chain([11, 12], "context")
    [answer] = drafter.expand([0], [text.query([2, ROOT, 1], 2)])
    assert (answer.tokens[0] == -1).all()
    assert np.isneginf(answer.logq[0]).all()
    for place, node in ((1, ROOT), (2, 1)):
        assert answer.tokens[place].tolist() == text.logits(node).topk(2).indices.tolist()


def test_without_masks_it_is_a_model_that_says_one_token(runner: Runner) -> None:
    drafter = drafter_of(runner, ahead=1)
    text = MaskedText(drafter, runner.model, 0, [1, 2, 3])
    text.ask([ROOT], 3)
    text.builder.add_chain([11], "context")
    [answer] = drafter.expand([0], [text.query([1], 2)])
    assert (answer.tokens == -1).all()


def test_masks_end_with_the_models_context(runner: Runner) -> None:
    limit = runner.info.context_limit
    drafter = drafter_of(runner)
    rng = np.random.default_rng(1)
    long = MaskedText(drafter, runner.model, 0, rng.integers(VOCAB, size=limit - 2).tolist())
    short = MaskedText(drafter, runner.model, 1, [4, 5])
    for text in (long, short):
        text.builder.add_chain([11, 12, 13], "context")
    queries = [long.query([ROOT, 1], 3), short.query([ROOT, 1, 2, 3], 3)]
    for text, query, answer in zip(
        (long, short), queries, drafter.expand([0, 1], queries), strict=True
    ):
        text.check(query, answer)
    [answer] = drafter.expand([0], [long.query([2], 3)])
    assert (answer.tokens == -1).all()
    long.finish(bonus=9)
    long.ask([ROOT], 3)
    long.finish(bonus=9)
    forwards = drafter.forwards
    [answer] = drafter.expand([0], [long.query([ROOT], 3)])
    assert (answer.tokens == -1).all()
    assert drafter.forwards == forwards


@pytest.mark.parametrize("vocab", [VOCAB - 32, VOCAB + 9])
def test_vocabularies_of_other_sizes(runner: Runner, vocab: int) -> None:
    """Outputs that the target lacks are masked before ranking; so is the mask token here."""
    drafter = drafter_of(runner, vocab)
    text = MaskedText(drafter, runner.model, 0, [1, 2, 3])
    text.builder.add_chain([11], "context")
    [answer] = drafter.expand([0], [text.query([ROOT, 1], 3)])
    for place, node in enumerate((ROOT, 1)):
        expected = text.logits(node)[:vocab].log_softmax(-1).topk(3)
        assert answer.tokens[place].tolist() == expected.indices.tolist()
        np.testing.assert_allclose(answer.logq[place], expected.values, atol=1e-4)


def test_released_requests_are_forgotten(runner: Runner) -> None:
    drafter = drafter_of(runner)
    text = MaskedText(drafter, runner.model, 4, [1, 2, 3])
    text.ask([ROOT], 2)
    assert drafter.token_bytes == runner.info.token_bytes > 0
    drafter.release(4)
    with pytest.raises(KeyError):
        drafter.expand([4], [text.query([ROOT], 2)])
    drafter.release(4)
    drafter.trim()
    assert runner.open(8) == 0


def test_what_waits_to_be_read_is_counted(runner: Runner) -> None:
    drafter = drafter_of(runner)
    text = MaskedText(drafter, runner.model, 0, [1, 2, 3])
    assert drafter.backlog(0) == 3
    text.ask([ROOT], 2)
    text.finish(bonus=4)
    assert drafter.backlog(0) == 0
    for token in range(30):
        text.finish(bonus=token)
    assert drafter.backlog(0) == 30
    text.ask([ROOT], 3)


@pytest.fixture(scope="module")
def small() -> Runner:
    return small_target()


def pard(directory: Path, mask: Any = 3, **settings: Any) -> str:
    sizes = {"vocab_size": FEW, "eos_token_id": None, "bos_token_id": None, "layers": 1, "seed": 4}
    return save_pard(directory, mask, **(sizes | settings))


def test_a_draft_option_finds_it(tmp_path: Path) -> None:
    one, other = pard(tmp_path / "a"), pard(tmp_path / "b", key="ptd_token_id")
    plain = pard(tmp_path / "c", None)
    assert [kind_of("draft", name) for name in (one, other, plain)] == ["pard", "pard", "model"]
    for text in ("talon", "sd", "auto", "pard"):
        assert method(f"{text}:draft={one}").drafters["draft"] == Pard(one)
    assert method(f"talon:drafter=model:draft={one}").drafters["draft"] == Model(one)
    assert method("pard").missing == ("draft",)
    assert not Pard.reads({"ptd_token_id": 3, "draft_vocab_size": 9}), "a head"
    assert not Pard.reads({"pard_token": None})


def test_without_a_model_nothing_is_loaded(small: Runner) -> None:
    with pytest.raises(DraftwoodError, match="pard has nothing to draft from: give --draft"):
        check_drafts("embedded", {"pard": method("pard")})
    with pytest.raises(DraftwoodError, match="no PARD draft model is named"):
        Pard().build(ModelHost(small))


@pytest.mark.parametrize(
    ("mask", "complaint"),
    [
        (None, r"names no mask token \(pard_token, .*drafter=model"),
        (FEW, f"mask token is {FEW}, which is none of {FEW} tokens"),
        (-1, "mask token is -1"),
        ("3", "mask token is '3'"),
    ],
)
def test_models_without_a_mask_are_refused(
    small: Runner, tmp_path: Path, mask: Any, complaint: str
) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        Pard(pard(tmp_path, mask)).build(ModelHost(small))


def test_another_vocabulary_is_refused(small: Runner, tmp_path: Path) -> None:
    name = pard(tmp_path, vocab_size=FEW + 3)
    with pytest.raises(DraftwoodError, match=f"has {FEW + 3} tokens and the target {FEW}"):
        Pard(name).build(ModelHost(small))


def test_incomplete_weights_are_refused(small: Runner, tmp_path: Path) -> None:
    name = pard(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DraftwoodError, match=r"lack model\.layers\.0\.mlp\.up_proj\.weight"):
        Pard(name).build(ModelHost(small))


def test_weights_of_other_sizes_are_refused(small: Runner, tmp_path: Path) -> None:
    name = pard(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"intermediate_size": 50}))
    with pytest.raises(DraftwoodError, match="shapes of its weights"):
        Pard(name).build(ModelHost(small))


def test_a_loaded_model_is_used_as_it_is(small: Runner) -> None:
    model: Any = tiny_llama(vocab_size=FEW, layers=1, seed=4, pard_token=5)
    drafter = Pard(model).build(ModelHost(small))
    MaskedText(drafter, model, 0, [1, 2, 3], 5).ask([ROOT], 3)


def test_the_settings_get_the_model_from_the_host() -> None:
    drafter = Pard("some/name").build(FakeHost(info_of(13)))
    assert drafter.at_once


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize(
    "name",
    ["pard", "talon:drafter=pard", "fixed-tree:drafter=pard", "traversal:drafter=pard", "auto"],
)
def test_the_tokens_are_those_of_plain_decoding(
    small: Runner, tmp_path: Path, name: str, max_batch: int
) -> None:
    check_tokens(small, f"{name}:draft={pard(tmp_path)}", max_batch)


def test_a_model_that_knows_the_target_has_its_first_tokens_accepted(
    small: Runner, tmp_path: Path
) -> None:
    name = pard(tmp_path, layers=2, seed=0)
    engine = Engine(small, method(f"pard:draft={name}"), host=ModelHost(small))
    [done] = engine.generate([Request([5, 3, 8], 40, eos=())])
    assert done.tally.acceptance_by_depth()[1] == 1.0


def test_the_tokenizer_may_be_another(tmp_path: Path) -> None:
    ours, theirs = byte_level(), byte_level(shift=7)
    sizes: dict[str, Any] = {"eos_token_id": None, "bos_token_id": None}
    tiny_llama(vocab_size=len(theirs), layers=1, pard_token=9, **sizes).save_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    target = attach(tiny_llama(vocab_size=len(ours), **sizes), self_test=False)
    requests = [
        Request(text, 20, SamplingParams(temperature), eos=())
        for text in ("the thing", "tön")
        for temperature in (0.0, 0.9)
    ]
    plain = [done.tokens for done in Engine(target, method("ar"), ours).generate(requests)]
    engine = Engine(target, method(f"pard:draft={tmp_path}"), ours)
    found = engine.generate(requests)
    assert [done.checked().tokens for done in found] == plain
    assert all(done.tally.drafted for done in found)


@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_the_distribution_is_the_targets(small: Runner, tmp_path: Path, name: str) -> None:
    chosen = method(f"{name}:drafter=pard:draft={pard(tmp_path)}")
    check_law(small, chosen)


def test_a_wrong_q_is_found(small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = VocabularyMap.target_rows
    monkeypatch.setattr(VocabularyMap, "target_rows", lambda *given: rows(*given).roll(5, 1))
    chosen = method(f"specinfer:drafter=pard:draft={pard(tmp_path)}")
    assert not model_check(small).check_sampled("wrong", chosen, 600).passed


@pytest.fixture(scope="module")
def tiny_rows() -> tuple[tuple[float, ...], ...]:
    """Marginals of a model of three tokens and a mask."""
    model = tiny_llama(vocab_size=4, layers=1, eos_token_id=None, bos_token_id=None)
    info = info_of(3)
    reader = ModelDrafter(attach(model, self_test=False), info)
    drafter = MaskedDrafter(reader, Mask(3), info, AHEAD)
    drafter.begin(0, Prefill(np.array([1, 2], dtype=np.int64), 0, ANY_ROWS))
    return marginals_of(drafter, 0, 0)


@pytest.mark.parametrize("name", ["pard", "traversal", "specinfer", "rrsw", "block", "talon"])
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

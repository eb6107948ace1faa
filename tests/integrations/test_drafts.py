"""Draft models that are given to ``generate`` as objects: which one is used, and how it ends."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import draftwood
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.engine.request import Completion
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import custom_generate
from draftwood.runner.attached_models import find_attached
from tests.factories.eagle3_heads import tiny_config
from tests.factories.given_costs import drafting_pays
from tests.factories.tiny_llama import VOCAB, save_tiny, tiny_llama, tiny_tokenizer

IDS = torch.tensor([[5, 17, 44, 5, 17]])
KWARGS: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": None}


def accepted(target: Any, method: Any) -> int:
    """Tokens of the draft that were accepted; the output is plain decoding's."""
    plain = target.generate(IDS, attention_mask=torch.ones_like(IDS), **KWARGS).tolist()
    tallies: list[int] = []
    ours = target.generate(
        IDS,
        custom_generate=method,
        on_finish=lambda done: tallies.append(done[0].tally.accepted),
        **KWARGS,
    )
    assert ours.tolist() == plain
    return tallies[0]


def test_two_drafts_of_one_architecture_are_two_drafts() -> None:
    target: Any = tiny_llama()
    right, wrong = tiny_llama(), tiny_llama(seed=9)
    assert repr(right) == repr(wrong)
    found_tokens = [
        accepted(target, draftwood.sd(draft=draft, budget=3))
        for draft in (wrong, right, wrong, right)
    ]
    # The target's own weights are always right, others hardly ever.
    assert found_tokens[1] == found_tokens[3] > 2 * max(found_tokens[0], found_tokens[2])


def test_equal_settings_share_an_engine() -> None:
    target, draft = tiny_llama(), tiny_llama(seed=9)
    made = [custom_generate("sd", draft=draft, budget=3) for _ in range(2)]
    assert made[0].key == made[1].key
    assert hash(made[0].key) == hash(made[1].key)
    others = [
        custom_generate("sd", draft=draft, budget=4),
        custom_generate("sd", draft=target, budget=3),
        custom_generate("sd:verifier=rejection", draft=draft, budget=3),
    ]
    assert len({made[0].key, *(other.key for other in others)}) == 4
    assert made[0].spelling == "sd:budget=3:draft=LlamaForCausalLM"


def test_a_draft_is_freed_with_its_attachment() -> None:
    target: Any = tiny_llama()
    draft = tiny_llama(seed=9)
    alive = weakref.ref(draft)
    accepted(target, draftwood.sd(draft=draft))
    del draft
    draftwood.detach(target)
    gc.collect()
    assert alive() is None


def test_a_draft_serves_several_targets_and_can_be_detached() -> None:
    draft = tiny_llama(seed=9)
    before = draft.config._attn_implementation
    for seed in (0, 1):
        accepted(tiny_llama(seed=seed), draftwood.sd(draft=draft))
    assert find_attached(draft) is not None
    draftwood.detach(draft)
    assert draft.config._attn_implementation == before
    accepted(tiny_llama(), draftwood.sd(draft=draft))


@pytest.mark.parametrize("kind", ["draft", "head"])
def test_a_detached_draft_is_attached_again(kind: str) -> None:
    target: Any = tiny_llama()
    draft: Any = tiny_llama()
    if kind == "head":
        config = tiny_config(vocab_size=VOCAB, hidden_size=32, target_hidden_size=32, taps=(1, 0))
        draft = Eagle3Head(config)
        draft.set_input_embeddings(target.get_input_embeddings())
        draft.train(mode=False)
    method = draftwood.sd(draft=draft) if kind == "draft" else draftwood.eagle3(head=draft)
    first = accepted(target, method)
    draftwood.detach(draft)
    assert accepted(target, method) == first


def test_a_draft_that_is_a_target_too() -> None:
    target, draft = tiny_llama(), tiny_llama(seed=9)
    accepted(draft, draftwood.goose())
    accepted(target, draftwood.sd(draft=draft))
    accepted(draft, draftwood.goose())


def padded(rows: int, **made: Any) -> Any:
    """A tiny model with another length of its tables, which often says tokens of the rest."""
    model = tiny_llama(**made)
    model.resize_token_embeddings(rows)
    with torch.no_grad():
        head = model.lm_head.weight
        head[VOCAB:] = 1.1 * head[: rows - VOCAB]
    return model


SIZES = [(384, 320), (320, 384), (320, 260), (260, 320)]


@pytest.mark.parametrize(("target_rows", "draft_rows"), SIZES)
@pytest.mark.parametrize("method", ["talon", "traversal", "auto", "goose-sampled"])
def test_a_draft_with_other_padding(
    method: str, target_rows: int, draft_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tokens beyond the draft's table stand in the prompt, and the target generates some of them.
    drafting_pays(monkeypatch)
    target: Any = padded(target_rows)
    draft = padded(draft_rows, seed=9)
    prompt = torch.tensor([[5, target_rows - 1, 44, 5, target_rows - 2]])
    plain = target.generate(prompt, attention_mask=torch.ones_like(prompt), **KWARGS)
    assert (plain[0, 5:].max() >= draft_rows) == (target_rows > draft_rows)
    done: list[Completion] = []
    given: Any = {"custom_generate": custom_generate(method, draft=draft), "on_finish": done.extend}
    assert target.generate(prompt, **given, **KWARGS).tolist() == plain.tolist()
    assert done[0].tally.drafted_by_source["draft"] > 0


@pytest.mark.parametrize(("target_rows", "draft_rows"), SIZES[:2])
def test_a_draft_with_other_padding_when_sampling(target_rows: int, draft_rows: int) -> None:
    # With noise by position, ranked trees return the very tokens of plain sampling.
    target: Any = padded(target_rows)
    draft = padded(draft_rows, seed=9)
    settings: Any = {"do_sample": True, "temperature": 0.8, "top_k": 0, **KWARGS}
    done: list[Completion] = []
    for method in (draftwood.ar(), draftwood.talon(draft=draft)):
        torch.manual_seed(3)
        target.generate(IDS, custom_generate=method, on_finish=done.extend, **settings)
    assert done[0].tokens == done[1].tokens
    assert [each.tally.drafted > 0 for each in done] == [False, True]
    assert (max(done[0].tokens) >= draft_rows) == (target_rows > draft_rows)


def test_an_unknown_draft_is_refused() -> None:
    draft = padded(320, seed=9)
    draft.config.bos_token_id = draft.config.eos_token_id = 3
    with pytest.raises(DraftwoodError, match=r"has 320 tokens and the target 260.*tokenizer="):
        accepted(tiny_llama(), draftwood.sd(draft=draft))


def test_tokenizers_are_stored_with_the_weights_or_given(tmp_path: Path) -> None:
    # 300 rows are no padding of 260, so tokenizers must say that the ids agree.
    model, tokenizer = padded(300, seed=9), tiny_tokenizer()
    model.save_pretrained(tmp_path / "draft")
    bare = AutoModelForCausalLM.from_pretrained(tmp_path / "draft")
    target: Any = tiny_llama()
    with pytest.raises(DraftwoodError, match="the target's and the draft model's tokenizer"):
        accepted(target, draftwood.sd(draft=bare))
    tokenizer.save_pretrained(tmp_path / "draft")
    known = AutoModelForCausalLM.from_pretrained(tmp_path / "draft")
    with pytest.raises(DraftwoodError, match="and the target's tokenizer is not known"):
        accepted(target, draftwood.sd(draft=known))
    for draft in (known, str(tmp_path / "draft")):
        draftwood.generate(target, IDS, draftwood.sd(draft=draft), tokenizer=tokenizer, **KWARGS)
    save_tiny(tmp_path / "target")
    accepted(AutoModelForCausalLM.from_pretrained(tmp_path / "target"), draftwood.sd(draft=known))

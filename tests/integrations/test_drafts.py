"""Draft models that are given to ``generate`` as objects: which one is used, and how it ends."""

import gc
import weakref
from typing import Any

import pytest
import torch

import draftwood
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import custom_generate
from draftwood.target.attached import found
from tests.tiny import tiny_llama

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


def test_a_draft_lives_no_longer_than_what_was_attached() -> None:
    target: Any = tiny_llama()
    draft = tiny_llama(seed=9)
    alive = weakref.ref(draft)
    accepted(target, draftwood.sd(draft=draft))
    del draft
    draftwood.detach(target)
    gc.collect()
    assert alive() is None


def test_a_draft_serves_several_targets_and_can_be_given_back() -> None:
    draft = tiny_llama(seed=9)
    before = draft.config._attn_implementation
    for seed in (0, 1):
        accepted(tiny_llama(seed=seed), draftwood.sd(draft=draft))
    assert found(draft) is not None
    draftwood.detach(draft)
    assert draft.config._attn_implementation == before
    accepted(tiny_llama(), draftwood.sd(draft=draft))


def test_a_draft_that_was_given_back_is_attached_again() -> None:
    target: Any = tiny_llama()
    draft = tiny_llama()
    method = draftwood.sd(draft=draft, budget=3)
    first = accepted(target, method)
    draftwood.detach(draft)
    assert accepted(target, method) == first


def test_a_draft_that_is_a_target_too() -> None:
    target, draft = tiny_llama(), tiny_llama(seed=9)
    accepted(draft, draftwood.goose())
    accepted(target, draftwood.sd(draft=draft))
    accepted(draft, draftwood.goose())


def test_a_draft_in_training_mode_is_refused() -> None:
    draft = tiny_llama(seed=9)
    draft.train()
    with pytest.raises(DraftwoodError, match="training mode"):
        accepted(tiny_llama(), draftwood.sd(draft=draft))

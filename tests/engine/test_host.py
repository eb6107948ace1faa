"""The place where drafters are built: loads once, and refuses another vocabulary."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.drafters.model import Model
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.protocols import Prefill
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.factories.eagle3_heads import tiny_config
from tests.factories.markov_target import MarkovTarget
from tests.factories.tiny_llama import VOCAB, save_tiny, tiny_llama, tiny_tokenizer

ANY_ROWS: Any = None


@pytest.fixture
def target() -> Runner:
    return attach(tiny_llama(), self_test=False)


def test_a_model_is_loaded_once_on_the_targets_device(target: Runner, tmp_path: Path) -> None:
    host = ModelHost(target, tiny_tokenizer())
    name = str(save_tiny(tmp_path))
    model, translation = host.model(name)
    assert model is host.model(name)[0]
    assert translation is None
    assert (model.info.device, model.info.dtype) == (target.info.device, target.info.dtype)
    assert model.info.vocab_size == VOCAB
    assert host.info is target.info


def test_a_loaded_model_may_be_given(target: Runner) -> None:
    draft = tiny_llama(seed=1, layers=1)
    host = ModelHost(target)
    assert host.model(draft)[0] is host.model(draft)[0]
    assert host.model(draft)[0].info.layers == 1


def test_an_object_on_another_device_is_refused(target: Runner) -> None:
    host = ModelHost(target)
    draft = nn.Module.to(tiny_llama(seed=1, layers=1), "meta")
    with pytest.raises(
        DraftwoodError,
        match=r"the draft model is on meta and the target on cpu: move it with draft\.to\('cpu'\)",
    ):
        host.model(draft)
    config = tiny_config(vocab_size=VOCAB, hidden_size=32, target_hidden_size=32, taps=(1, 0))
    with pytest.raises(DraftwoodError, match=r"the EAGLE-3 head is on meta .* head\.to\('cpu'\)"):
        host.head(nn.Module.to(Eagle3Head(config), "meta"))


def test_without_tokenizers_sizes_must_agree(tmp_path: Path) -> None:
    name = str(save_tiny(tmp_path))
    host = ModelHost(MarkovTarget(vocab_size=13))
    with pytest.raises(DraftwoodError, match=f"has {VOCAB} tokens and the target 13"):
        host.model(name)
    with pytest.raises(DraftwoodError, match=f"'LlamaForCausalLM' has {VOCAB} tokens"):
        host.model(tiny_llama())


def test_the_embedded_draft_model_is_refused_for_another_vocabulary(target: Runner) -> None:
    host = ModelHost(target, tiny_tokenizer())
    with pytest.raises(DraftwoodError, match="another vocabulary: give a draft model, draft=PATH"):
        host.model("embedded-draft")


def test_drafters_of_one_host_share_a_model(target: Runner) -> None:
    host, draft = ModelHost(target), tiny_llama(seed=1, layers=1)
    first, second = Model(draft).build(host), Model(draft).build(host)
    model, _ = host.model(draft)
    for slot, drafter in enumerate((first, second)):
        drafter.begin(slot, Prefill(np.array([1, 2]), 3, ANY_ROWS))
    assert model.open(8) == 2, "each drafter took a slot of the one model"


def test_a_head_borrows_the_targets_embedding(target: Runner, tmp_path: Path) -> None:
    config = tiny_config(vocab_size=VOCAB, hidden_size=32, target_hidden_size=32, taps=(1, 0))
    save_head(Eagle3Head(config), tmp_path)
    host = ModelHost(target)
    head, model = host.head(str(tmp_path))
    assert host.head(str(tmp_path)) == (head, model)
    assert head.taps == (1, 0)
    assert head.target_ids().tolist() == list(range(config.draft_vocab_size))
    assert isinstance(head, Eagle3Head)
    assert head.get_input_embeddings() is target.embedding()


def test_a_head_is_lent_by_name(target: Runner) -> None:
    host = ModelHost(target)
    head = Eagle3Head(
        tiny_config(vocab_size=VOCAB, hidden_size=32, target_hidden_size=32, taps=(1, 0))
    )
    head.set_input_embeddings(tiny_llama().get_input_embeddings())
    head.train(mode=False)
    host.lend_head("not on the disk", head)
    assert host.head("not on the disk")[0] is head
    with pytest.raises(DraftwoodError, match="not on the disk, too"):
        host.head("not on the disk, too")

"""The place where drafters are built: loads once, and refuses another vocabulary."""

from pathlib import Path

import pytest

from draftwood.drafters.model import Model
from draftwood.errors import DraftwoodError
from draftwood.hosting import TargetHost
from draftwood.target.attach import attach
from draftwood.target.runner import Runner
from tests.fakes import MarkovTarget
from tests.tiny import VOCAB, save_tiny, tiny_llama, tiny_tokenizer


@pytest.fixture
def target() -> Runner:
    return attach(tiny_llama(), self_test=False)


def test_a_model_is_loaded_once_on_the_targets_device(target: Runner, tmp_path: Path) -> None:
    host = TargetHost(target, tiny_tokenizer())
    name = str(save_tiny(tmp_path))
    model = host.model(name)
    assert model is host.model(name)
    assert (model.info.device, model.info.dtype) == (target.info.device, target.info.dtype)
    assert model.info.vocab_size == VOCAB
    assert host.info is target.info
    assert host.embedding() is target.model.get_input_embeddings()


def test_a_loaded_model_may_be_given(target: Runner) -> None:
    draft = tiny_llama(seed=1, layers=1)
    host = TargetHost(target)
    assert host.model(draft) is host.model(draft)
    assert host.model(draft).info.layers == 1


def test_without_tokenizers_sizes_must_agree(tmp_path: Path) -> None:
    name = str(save_tiny(tmp_path))
    host = TargetHost(MarkovTarget(vocab_size=13))
    with pytest.raises(DraftwoodError, match=f"has {VOCAB} tokens and the target 13"):
        host.model(name)
    with pytest.raises(DraftwoodError, match=f"'LlamaForCausalLM' has {VOCAB} tokens"):
        host.model(tiny_llama())


def test_another_vocabulary_is_refused(target: Runner) -> None:
    host = TargetHost(target, tiny_tokenizer())
    with pytest.raises(DraftwoodError, match="another vocabulary"):
        host.model("embedded-draft")


def test_engines_of_one_host_share_a_model(target: Runner, tmp_path: Path) -> None:
    host = TargetHost(target, tiny_tokenizer())
    name = str(save_tiny(tmp_path))
    first, second = Model(name).build(host), Model(name).build(host)
    assert first is not second
    assert first._model is second._model

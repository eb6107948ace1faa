"""transformers' prompt lookup and assisted generation give the tokens of its plain ``generate``."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.generating import Generate, _tally
from draftwood.lab.bench.peers.hf import HuggingFace
from draftwood.lab.bench.peers.hf_assistant import HuggingFaceAssistant
from draftwood.lab.bench.peers.hf_lookup import HuggingFaceLookup
from draftwood.lab.bench.peers.llamacpp_lookup import LlamaCppLookup
from draftwood.models import Loaded
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer
from tests.lab.bench.peers.answers import (
    PROMPTS,
    answers,
    check_sampling,
    late_end,
    plain,
    stock,
    texts,
)


@pytest.fixture(scope="module")
def model() -> Loaded:
    return stock()


def draft_model(directory: Path, vocabulary: int = 260) -> str:
    """The directory of a draft model with other weights than the target's."""
    model = tiny_llama(seed=1, layers=1)
    model.resize_token_embeddings(vocabulary, mean_resizing=False)
    model.save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return str(directory)


def test_lookup_is_plain_decoding_in_fewer_forwards(model: Loaded) -> None:
    for settings in ({}, {"tokens": 3}, {"tokens": 1, "ngram": 1}, {"ngram": 5}):
        assert texts(answers(HuggingFaceLookup(**settings).enter(model))) == plain(model)
    # The target's answers loop after a few tokens.
    found = answers(HuggingFaceLookup().enter(model))
    assert sum(a.completion.tally.steps for a in found) < 2 * 23


def test_an_end_inside_what_was_accepted_ends_the_answer(model: Loaded, checkpoint: str) -> None:
    eos = late_end(model)
    wanted = plain(model, eos=eos)
    assert wanted[0][1] == "eos"
    for peer in (HuggingFaceLookup(), HuggingFaceAssistant(draft=checkpoint, tokens=7)):
        assert texts(answers(peer.enter(model), eos=eos)) == wanted


def test_an_assistant_with_the_targets_weights_is_always_right(
    model: Loaded, checkpoint: str
) -> None:
    contender = HuggingFaceAssistant(draft=checkpoint, tokens=3).enter(model)
    contender.extra["assistant_model"].generation_config.assistant_confidence_threshold = 0.0
    (found,) = answers(contender, PROMPTS[1:])
    assert texts([found]) == plain(model, PROMPTS[1:])
    # 24 tokens in forwards of 3 accepted and a bonus: the prefill's 4, then 5 steps.
    tally = found.completion.tally
    assert (tally.steps, tally.committed) == (5, 20)
    assert (tally.drafted, tally.accepted) == (0, 0)  # they cannot be seen from outside
    assert found.steps == ()


def test_an_assistant_that_is_wrong_costs_forwards_only(model: Loaded, tmp_path: Path) -> None:
    found = answers(HuggingFaceAssistant(draft=draft_model(tmp_path)).enter(model))
    assert texts(found) == plain(model)
    assert any(a.completion.tally.steps > 10 for a in found)


def test_another_vocabulary_goes_through_text(model: Loaded, tmp_path: Path) -> None:
    # Bytes that are no text do not survive a way through text, so the prompt is plain ASCII.
    prompts = [tiny_tokenizer().encode("abc abc ")]
    contender = HuggingFaceAssistant(draft=draft_model(tmp_path, 300)).enter(model)
    assert set(contender.extra) == {"assistant_model", "tokenizer", "assistant_tokenizer"}
    assert texts(answers(contender, prompts)) == plain(model, prompts)


def test_the_assistants_own_generation_config_does_not_apply(model: Loaded, tmp_path: Path) -> None:
    draft_model(tmp_path)
    own = GenerationConfig(  # type: ignore[no-untyped-call]
        repetition_penalty=5.0, num_assistant_tokens=1, eos_token_id=256
    )
    own.save_pretrained(tmp_path)
    contender = HuggingFaceAssistant(draft=str(tmp_path)).enter(model)
    config = contender.extra["assistant_model"].generation_config
    assert config.num_assistant_tokens == 20
    assert config.repetition_penalty is None


def test_a_group_is_answered_one_by_one(model: Loaded) -> None:
    contender = HuggingFaceLookup().enter(model)
    together = answers(contender)
    alone = [answers(contender, [prompt])[0] for prompt in PROMPTS]
    assert texts(together) == texts(alone)
    first, second = (answer.completion for answer in together)
    # Both were asked for at once: the second waited for the first.
    assert 0 < first.ttft <= first.seconds < second.ttft <= second.seconds


@pytest.mark.parametrize("name", ["lookup", "assistant"])
def test_sampling_follows_the_seed_of_each_request(
    model: Loaded, checkpoint: str, name: str
) -> None:
    peer: Any = HuggingFaceLookup() if name == "lookup" else HuggingFaceAssistant(draft=checkpoint)
    check_sampling(peer.enter(model), model)


def test_defaults_are_those_of_the_installed_transformers() -> None:
    config = GenerationConfig()  # type: ignore[no-untyped-call]
    defaults = config._get_default_generation_params()
    assert HuggingFaceAssistant().tokens == defaults["num_assistant_tokens"]
    assert defaults["num_assistant_tokens_schedule"] == "constant"  # nothing outlives a call
    assert defaults["assistant_confidence_threshold"] == 0.4


@pytest.mark.parametrize(
    ("peer", "settings", "message"),
    [
        (HuggingFaceLookup, {"tokens": 0}, "tokens is 0; give at least 1"),
        (HuggingFaceLookup, {"ngram": -1}, "ngram is -1; give at least 1"),
        (HuggingFaceAssistant, {"tokens": 0}, "tokens is 0; give at least 1"),
        (LlamaCppLookup, {"tokens": 0}, "tokens is 0; give at least 1"),
        (LlamaCppLookup, {"ngram": 0}, "ngram is 0; give at least 1"),
    ],
)
def test_settings_below_one_are_refused(peer: Any, settings: dict[str, int], message: str) -> None:
    with pytest.raises(DraftwoodError, match=message):
        peer(**settings)


def test_an_assistant_that_cannot_be_used_is_refused(model: Loaded, tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="cannot load model"):
        HuggingFaceAssistant(draft=str(tmp_path)).enter(model)
    with pytest.raises(DraftwoodError, match="4096 tokens and the target 260: name a smaller"):
        HuggingFaceAssistant().enter(model)


def test_a_model_that_transformers_refuses_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stateful = stock()
    monkeypatch.setattr(type(stateful.model), "_is_stateful", True)
    with pytest.raises(DraftwoodError, match=r"LlamaForCausalLM in .* stateful models"):
        HuggingFaceLookup().enter(stateful)
    assert answers(HuggingFace().enter(stateful))


def test_decoding_on_a_few_tokens_leaves_the_random_state_alone(model: Loaded) -> None:
    before = torch.get_rng_state()
    Generate(model.model).tried()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("reached", "tokens", "steps", "committed"),
    [
        ([1, 2, 3, 4], 4, 3, 3),  # plain: a token a forward
        ([1, 2, 3, 4], 2, 1, 1),  # plain, in a group that went on
        ([4, 5, 9], 9, 2, 5),  # the prefill's own tokens are nobody's step
        ([4], 4, 0, 0),
        ([4], 2, 0, 0),
        ([], 0, 0, 0),
    ],
)
def test_forwards_are_counted_up_to_the_end_of_an_answer(
    reached: list[int], tokens: int, steps: int, committed: int
) -> None:
    tally = _tally(reached, tokens)
    assert (tally.steps, tally.committed) == (steps, committed)

"""transformers' prompt lookup and assisted generation give the tokens of its plain ``generate``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LlamaForCausalLM

from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.generating import Generate, _tally
from draftwood.lab.bench.measure import Answer, Contender
from draftwood.lab.bench.peers.hf import HuggingFace
from draftwood.lab.bench.peers.hf_assistant import HuggingFaceAssistant
from draftwood.lab.bench.peers.hf_lookup import HuggingFaceLookup
from draftwood.models import Loaded
from draftwood.sampling.sampler import SamplingParams
from tests.factories.tiny_llama import save_tiny, tiny_llama, tiny_tokenizer

EOS = frozenset({256})
PROMPTS = ([10, 20, 30, 10, 20, 30, 10], [7, 8])


@pytest.fixture(scope="module")
def stock() -> Loaded:
    return Loaded("tiny", tiny_llama(), tiny_tokenizer(), EOS)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A draft model with the target's own weights."""
    return str(save_tiny(tmp_path_factory.mktemp("twin")))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A draft model with as many tokens as the target and other weights."""
    directory = tmp_path_factory.mktemp("stranger")
    tiny_llama(seed=1, layers=1).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return str(directory)


@pytest.fixture(scope="module")
def wider(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A draft model whose embedding has rows that the target's has not."""
    directory = tmp_path_factory.mktemp("wider")
    model = tiny_llama(seed=1)
    model.resize_token_embeddings(300, mean_resizing=False)
    model.save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return str(directory)


def answers(
    contender: Contender, eos: frozenset[int] = EOS, prompts: Sequence[list[int]] = PROMPTS
) -> list[Answer]:
    return contender.begin(len(prompts))(
        [Request(prompt, max_new_tokens=24, eos=eos) for prompt in prompts]
    )


def spoken(found: Sequence[Answer]) -> list[tuple[tuple[int, ...], str]]:
    return [(a.completion.tokens, a.completion.reason) for a in found]


def test_lookup_is_plain_decoding_in_fewer_forwards(stock: Loaded) -> None:
    # A target that loops is what looking up is made for: this one does after a few tokens.
    plain = answers(HuggingFace().enter(stock))
    for settings in ({}, {"tokens": 3}, {"tokens": 1, "ngram": 1}, {"ngram": 5}):
        assert spoken(answers(HuggingFaceLookup(**settings).enter(stock))) == spoken(plain)
    looked_up = answers(HuggingFaceLookup().enter(stock))
    slow, fast = (sum(a.completion.tally.steps for a in found) for found in (plain, looked_up))
    assert slow == 2 * 23
    assert fast < slow


def test_an_end_inside_what_was_accepted_ends_the_answer(stock: Loaded, twin: str) -> None:
    plain = answers(HuggingFace().enter(stock))[0].completion.tokens
    # A token that comes late for the first time, so that forwards with accepted drafts go before.
    end = max(set(plain), key=plain.index)
    eos = frozenset({end, 256})
    wanted = spoken(answers(HuggingFace().enter(stock), eos))
    assert wanted[0] == (plain[: plain.index(end) + 1], "eos")
    for peer in (HuggingFaceLookup(), HuggingFaceAssistant(draft=twin, tokens=7)):
        assert spoken(answers(peer.enter(stock), eos)) == wanted


def test_an_assistant_with_the_targets_weights_is_always_right(stock: Loaded, twin: str) -> None:
    contender = HuggingFaceAssistant(draft=twin, tokens=3).enter(stock)
    contender.extra["assistant_model"].generation_config.assistant_confidence_threshold = 0.0
    plain = answers(HuggingFace().enter(stock), prompts=PROMPTS[1:])
    (found,) = answers(contender, prompts=PROMPTS[1:])
    assert spoken([found]) == spoken(plain)
    # 24 tokens in forwards of 3 accepted and a bonus: the prefill's 4, then 5 steps.
    tally = found.completion.tally
    assert (tally.steps, tally.committed) == (5, 20)
    assert (tally.drafted, tally.accepted) == (0, 0)  # they cannot be seen from outside
    assert found.steps == ()


def test_an_assistant_that_is_wrong_costs_forwards_only(stock: Loaded, stranger: str) -> None:
    plain = answers(HuggingFace().enter(stock))
    found = answers(HuggingFaceAssistant(draft=stranger).enter(stock))
    assert spoken(found) == spoken(plain)
    assert any(a.completion.tally.steps > 10 for a in found)


def test_another_vocabulary_goes_through_text(stock: Loaded, wider: str) -> None:
    # Bytes that are no text do not survive a way through text, so the prompt is plain ASCII.
    prompts = [tiny_tokenizer().encode("abc abc ")]
    contender = HuggingFaceAssistant(draft=wider).enter(stock)
    assert set(contender.extra) == {"assistant_model", "tokenizer", "assistant_tokenizer"}
    wanted = spoken(answers(HuggingFace().enter(stock), prompts=prompts))
    assert spoken(answers(contender, prompts=prompts)) == wanted


def test_the_assistants_own_generation_config_does_not_apply(
    stock: Loaded, twin: str, tmp_path: Path
) -> None:
    model = LlamaForCausalLM.from_pretrained(twin)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        repetition_penalty=5.0, num_assistant_tokens=1, eos_token_id=256
    )
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    config = (
        HuggingFaceAssistant(draft=str(tmp_path))
        .enter(stock)
        .extra["assistant_model"]
        .generation_config
    )
    assert config.num_assistant_tokens == 20
    assert config.repetition_penalty is None


def test_a_group_is_answered_one_by_one(stock: Loaded) -> None:
    contender = HuggingFaceLookup().enter(stock)
    together, alone = answers(contender), [answers(contender, prompts=[p])[0] for p in PROMPTS]
    assert spoken(together) == spoken(alone)
    first, second = (answer.completion for answer in together)
    # Both were asked for at once: the second waited for the first.
    assert 0 < first.ttft <= first.seconds < second.ttft <= second.seconds


@pytest.mark.parametrize("name", ["lookup", "assistant"])
def test_sampling_follows_the_seed_of_each_request(stock: Loaded, twin: str, name: str) -> None:
    peer: Any = HuggingFaceLookup() if name == "lookup" else HuggingFaceAssistant(draft=twin)
    decode = peer.enter(stock).begin(2)

    def drawn(*seeds: int, top_k: int = 0) -> list[tuple[int, ...]]:
        params = [SamplingParams(temperature=1.0, top_k=top_k, seed=seed) for seed in seeds]
        found = decode([Request(PROMPTS[0], max_new_tokens=12, sampling=p) for p in params])
        return [answer.completion.tokens for answer in found]

    assert drawn(1, 2) == [*drawn(1), *drawn(2)]
    assert drawn(1) != drawn(2)
    greedy = HuggingFace().enter(stock).begin(1)([Request(PROMPTS[0], max_new_tokens=12)])
    assert drawn(3, top_k=1) == [greedy[0].completion.tokens]


def test_defaults_are_those_of_the_installed_transformers() -> None:
    config = GenerationConfig()  # type: ignore[no-untyped-call]
    defaults = config._get_default_generation_params()
    assert HuggingFaceAssistant().tokens == defaults["num_assistant_tokens"]
    assert defaults["num_assistant_tokens_schedule"] == "constant"  # nothing outlives a call
    assert defaults["assistant_confidence_threshold"] == 0.4


@pytest.mark.parametrize(
    ("peer", "settings", "said"),
    [
        (HuggingFaceLookup, {"tokens": 0}, "tokens is 0; give at least 1"),
        (HuggingFaceLookup, {"ngram": -1}, "ngram is -1; give at least 1"),
        (HuggingFaceAssistant, {"tokens": 0}, "tokens is 0; give at least 1"),
    ],
)
def test_settings_below_one_are_refused(peer: Any, settings: dict[str, int], said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        peer(**settings)


def test_an_assistant_that_cannot_be_used_is_refused(stock: Loaded, tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="cannot load model"):
        HuggingFaceAssistant(draft=str(tmp_path)).enter(stock)
    with pytest.raises(DraftwoodError, match="4096 tokens and the target 260: name a smaller"):
        HuggingFaceAssistant().enter(stock)


def test_a_model_that_transformers_refuses_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_llama()
    monkeypatch.setattr(type(model), "_is_stateful", True)
    stateful = Loaded("tiny", model, tiny_tokenizer(), EOS)
    with pytest.raises(DraftwoodError, match=r"LlamaForCausalLM in .* stateful models"):
        HuggingFaceLookup().enter(stateful)
    assert answers(HuggingFace().enter(stateful))


def test_decoding_on_a_few_tokens_leaves_the_random_state_alone(stock: Loaded) -> None:
    before = torch.get_rng_state()
    Generate(stock.model).tried()
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

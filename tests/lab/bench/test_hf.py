"""The peer decodes as transformers does, alone and in a padded group."""

import pytest
import torch
from transformers import GenerationConfig

from draftwood.engine.request import Request
from draftwood.lab.bench.peers.hf import HuggingFace
from draftwood.models import Loaded
from draftwood.sampling.sampler import SamplingParams
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

EOS = frozenset({256})
PROMPTS = ([10, 20, 30, 40, 50], [7, 8])


@pytest.fixture(scope="module")
def stock() -> Loaded:
    return Loaded("tiny", tiny_llama(), tiny_tokenizer(), EOS)


def greedy(stock: Loaded, prompt: list[int], count: int, eos: frozenset[int]) -> tuple[int, ...]:
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            tokens.append(int(stock.model(torch.tensor([tokens])).logits[0, -1].argmax()))
            if tokens[-1] in eos:
                break
    return tuple(tokens[len(prompt) :])


def test_greedy_tokens_are_those_of_plain_forwards(stock: Loaded) -> None:
    decode = HuggingFace().enter(stock).begin(1)
    (answer,) = decode([Request(PROMPTS[0], max_new_tokens=12, eos=EOS)])
    done = answer.completion
    assert done.tokens == greedy(stock, PROMPTS[0], 12, EOS)
    assert done.tally.steps == done.tally.committed == len(done.tokens) - 1
    assert 0 < done.ttft < done.seconds
    assert answer.steps == ()


def test_a_group_is_padded_on_the_left_and_cut_at_each_end(stock: Loaded) -> None:
    alone = [greedy(stock, prompt, 12, EOS) for prompt in PROMPTS]
    # A token that only the first one meets, so that the group ends at different lengths.
    end = next(token for token in alone[0] if token not in alone[1])
    eos = frozenset({end})
    decode = HuggingFace().enter(stock).begin(2)
    answers = decode([Request(prompt, max_new_tokens=12, eos=eos) for prompt in PROMPTS])
    assert [a.completion.tokens for a in answers] == [
        greedy(stock, prompt, 12, eos) for prompt in PROMPTS
    ]
    assert [a.completion.reason for a in answers] == ["eos", "length"]
    assert answers[0].completion.seconds == answers[1].completion.seconds


def test_settings_that_come_with_the_checkpoint_do_not_apply(stock: Loaded) -> None:
    wanted = greedy(stock, PROMPTS[0], 12, EOS)
    stock.model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        repetition_penalty=5.0, min_new_tokens=1, eos_token_id=256, suppress_tokens=[wanted[0]]
    )
    decode = HuggingFace().enter(stock).begin(1)
    (answer,) = decode([Request(PROMPTS[0], max_new_tokens=12, eos=EOS)])
    assert answer.completion.tokens == wanted


def test_sampling_follows_the_seed(stock: Loaded) -> None:
    decode = HuggingFace().enter(stock).begin(1)

    def drawn(seed: int, temperature: float, top_k: int = 0) -> tuple[int, ...]:
        params = SamplingParams(temperature=temperature, top_k=top_k, seed=seed)
        request = Request(PROMPTS[0], max_new_tokens=12, sampling=params)
        return decode([request])[0].completion.tokens

    assert drawn(1, 1.0) == drawn(1, 1.0)
    assert drawn(1, 1.0) != drawn(2, 1.0)
    assert drawn(3, 1.0, top_k=1) == greedy(stock, PROMPTS[0], 12, frozenset())

"""The peer decodes as transformers does, alone and in a padded group."""

import pytest
import torch
from transformers import GenerationConfig

from draftwood.lab.bench.peers.hf import HuggingFace
from draftwood.models import Loaded
from tests.lab.bench.peers.answers import EOS, PROMPTS, answers, check_sampling, plain, stock, texts


@pytest.fixture
def model() -> Loaded:
    return stock()


def greedy(model: Loaded, prompt: list[int], eos: frozenset[int]) -> tuple[int, ...]:
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(12):
            tokens.append(int(model.model(torch.tensor([tokens])).logits[0, -1].argmax()))
            if tokens[-1] in eos:
                break
    return tuple(tokens[len(prompt) :])


def test_greedy_tokens_are_those_of_plain_forwards(model: Loaded) -> None:
    (answer,) = answers(HuggingFace().enter(model), PROMPTS[:1], length=12)
    done = answer.completion
    assert done.tokens == greedy(model, PROMPTS[0], EOS)
    assert done.tally.steps == done.tally.committed == len(done.tokens) - 1
    assert 0 < done.ttft < done.seconds
    assert answer.steps == ()


def test_a_group_is_padded_on_the_left_and_cut_at_each_end(model: Loaded) -> None:
    first, second = (greedy(model, prompt, EOS) for prompt in PROMPTS)
    # A token that only the first one meets, so that the group ends at different lengths.
    eos = frozenset({next(token for token in first if token not in second)})
    found = answers(HuggingFace().enter(model), eos=eos, length=12)
    assert texts(found) == [
        (greedy(model, PROMPTS[0], eos), "eos"),
        (greedy(model, PROMPTS[1], eos), "length"),
    ]
    assert len({answer.completion.seconds for answer in found}) == 1


def test_settings_that_come_with_the_checkpoint_do_not_apply(model: Loaded) -> None:
    wanted = plain(model)
    model.model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        repetition_penalty=5.0,
        min_new_tokens=1,
        eos_token_id=256,
        suppress_tokens=[wanted[0][0][0]],
    )
    assert plain(model) == wanted


def test_sampling_follows_the_seed(model: Loaded) -> None:
    check_sampling(HuggingFace().enter(model), model, groups=False)

"""Judgements against values worked out by hand."""

import math

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.evaluate import Repetition, agreement, greedy_loops, held_out_loss
from draftwood.lab.train.recipe import ModelShape
from draftwood.lab.train.text_model import TextModel, new_model

SHAPE = ModelShape(hidden=16, layers=1, heads=1, kv_heads=1, head_dim=16, ffn=16, context=512)


def flat_model(vocabulary: int) -> TextModel:
    """Every next token equally likely."""
    model = new_model(SHAPE, vocabulary, 1)
    torch.nn.init.zeros_(model.model.norm.weight)
    return model


def test_a_flat_model_loses_the_log_of_the_vocabulary(
    tokenizer: PreTrainedTokenizerFast, domains: tuple[Domain, ...]
) -> None:
    vocabulary = len(tokenizer)
    domain = domains[0]
    found = held_out_loss(flat_model(vocabulary), tokenizer, domain)
    assert found.nats_per_token == pytest.approx(math.log(vocabulary), abs=1e-3)
    count = found.tokens
    text = tokenizer.decode(domain.held_out[1 : count + 1].tolist())
    assert isinstance(text, str)
    size = len(text.replace("<|endoftext|>", ""))
    assert found.bits_per_byte == pytest.approx(math.log2(vocabulary) * count / size, abs=1e-3)


def test_a_model_agrees_with_itself_and_less_with_another(domains: tuple[Domain, ...]) -> None:
    model = new_model(SHAPE, 320, 1)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=1.0)
    alone = agreement(model, model, domains[0])
    assert alone.greedy == 1.0
    assert alone.sampled == pytest.approx(1.0, abs=1e-3)
    apart = agreement(flat_model(320), model, domains[0])
    assert apart.greedy < 0.5
    assert apart.sampled < 0.9


def test_a_model_that_repeats_itself_loops() -> None:
    tokens = np.arange(300, dtype=np.uint16) % 7 + 1
    domain = Domain("a", tokens, tokens)
    stuck = new_model(SHAPE, 320, 1)
    # Residual branches start at zero, so a token with a large embedding predicts itself.
    torch.nn.init.normal_(stuck.model.embed_tokens.weight, std=1.0)
    assert greedy_loops(stuck, domain, prompts=2) == Repetition(1.0, round(120 / 121, 4))


def test_a_model_that_ends_does_not_loop() -> None:
    tokens = np.full(300, 5, dtype=np.uint16)
    domain = Domain("a", tokens, tokens)
    ending = flat_model(320)
    # All logits are equal, and the first of equals is token 0, the end of text.
    assert greedy_loops(ending, domain, prompts=2) == Repetition(0.0, 0.0)

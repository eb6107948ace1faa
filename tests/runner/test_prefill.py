"""Prompts in chunks, ragged and together, are cached and answered as if each came alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs, TargetOutput
from draftwood.runner import prefill
from draftwood.runner.attach import attach
from draftwood.runner.prefill import ChunkedPrefill
from draftwood.runner.runner import Runner
from tests.factories.model_families import FAMILIES, SMALL, VOCAB, make_model
from tests.factories.path_logits import TOLERANCE, plain_logits, random_prompts, worst


@pytest.mark.parametrize(
    "family", ["llama", "mistral_sliding", "gemma2", "gemma3", "gemma4", "gpt2"]
)
@pytest.mark.parametrize("chunk", [1000, 16, 5])
def test_chunked_prefill_equals_one_forward(family: str, chunk: int) -> None:
    runner = attach(FAMILIES[family](), chunk=chunk, self_test=False)
    texts = random_prompts(np.random.default_rng(0), (33, 4, 16, 41), VOCAB)
    slots = [runner.open(len(text)) for text in texts]
    needs = Needs(top_k=3, prompt_rows=True, taps=(1,))
    for text, rows in zip(texts, runner.prefill(slots, texts, needs), strict=True):
        expected = plain_logits(runner.model, text)
        assert worst(rows, expected[-1:]) < TOLERANCE
        assert rows.argmax.tolist() == expected.argmax(-1).tolist()
        assert rows.top_tokens.tolist() == expected.topk(3).indices.tolist()
        check_top_probs(rows, expected)
        check_features(runner, text, rows)
    last_only = [runner.open(len(text)) for text in texts]
    found = runner.prefill(last_only, texts, Needs(top_k=2, taps=(1,)))
    for text, rows in zip(texts, found, strict=True):
        expected = plain_logits(runner.model, text)[-1:]
        assert worst(rows, expected) < TOLERANCE
        assert rows.argmax.shape == (1,)
        assert rows.top_tokens.tolist() == expected.topk(2).indices.tolist()
        check_top_probs(rows, expected)
        check_features(runner, text, rows)
    runner.detach()


def check_top_probs(rows: TargetOutput, expected: torch.Tensor) -> None:
    """Compare the probabilities of the likeliest tokens with those of logits ``[n, V]``."""
    best = expected.softmax(-1).topk(rows.top_tokens.shape[1]).values
    assert rows.top_probs.shape == best.shape
    np.testing.assert_allclose(rows.top_probs, best, atol=1e-4)


@torch.no_grad()
def check_features(runner: Runner, text: list[int], rows: TargetOutput) -> None:
    """Compare the features of a text with the states that enter the second layer."""
    model: Any = runner.model
    states = model(torch.tensor([text]), use_cache=False, output_hidden_states=True).hidden_states
    assert rows.features is not None
    torch.testing.assert_close(rows.features, states[1][0], atol=1e-4, rtol=1e-4)


@pytest.fixture
def llama() -> Runner:
    return attach(FAMILIES["llama"](), chunk=8, self_test=False)


def test_a_prompt_may_continue_a_slot(llama: Runner) -> None:
    texts = random_prompts(np.random.default_rng(1), (12, 20), VOCAB)
    slots = [llama.open(40) for _ in texts]
    llama.prefill(slots, [text[:7] for text in texts], Needs())
    found = llama.prefill(slots[::-1], [text[7:] for text in texts[::-1]], Needs())
    for text, rows in zip(texts[::-1], found, strict=True):
        assert worst(rows, plain_logits(llama.model, text)[-1:]) < TOLERANCE


class _AllRows(LlamaForCausalLM):  # type: ignore[no-untyped-call]
    """A wrapper that drops ``logits_to_keep``, such as that of Qwen2-Audio."""

    def forward(self, *args: Any, logits_to_keep: Any = 0, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


def test_models_that_return_the_logits_of_all_rows() -> None:
    runner = attach(make_model(_AllRows, LlamaConfig, **SMALL), chunk=8)
    texts = random_prompts(np.random.default_rng(2), (12, 1, 20), VOCAB)
    slots = [runner.open(40) for _ in texts]
    for text, rows in zip(texts, runner.prefill(slots, texts, Needs()), strict=True):
        expected = plain_logits(runner.model, text)[-1:]
        assert worst(rows, expected) < TOLERANCE
        assert rows.argmax.tolist() == expected.argmax(-1).tolist()
    runner.detach()


@pytest.mark.parametrize("prompt_rows", [False, True])
def test_a_forward_has_a_bounded_number_of_tokens(
    llama: Runner, monkeypatch: pytest.MonkeyPatch, prompt_rows: bool
) -> None:
    """Over all prompts that are cached together; of logits, if all rows are needed."""
    monkeypatch.setattr(prefill, "_TOKENS", 15)
    monkeypatch.setattr(prefill, "_LOGITS", 9 * VOCAB)
    seen: list[int] = []
    model: Any = llama.model
    model.model.register_forward_pre_hook(
        lambda module, given, named: seen.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    texts = random_prompts(np.random.default_rng(2), (30, 9, 1), VOCAB)
    slots = [llama.open(40) for _ in texts]
    found = llama.prefill(slots, texts, Needs(prompt_rows=prompt_rows))
    # As many tokens of each prompt as all may have: chunks have 8 tokens at most.
    assert seen == ([7, 8, 6, 8, 8, 3] if prompt_rows else [11, 11, 8, 8, 2])
    for text, rows in zip(texts, found, strict=True):
        assert worst(rows, plain_logits(llama.model, text)[-1:]) < TOLERANCE
        assert len(rows.argmax) == (len(text) if prompt_rows else 1)


@pytest.mark.parametrize(
    ("family", "begins", "sizes"),
    [
        ("llama", 0, [21]),
        ("llama", 3, [4, 4, 4, 4, 4, 1]),
        # It sees fewer positions: more need a mask.
        ("mistral_sliding", 0, [4, 4, 4, 4, 4, 1]),
        # Soft-capped attention keeps the scores of all pairs.
        ("gemma2", 0, [4, 4, 4, 4, 4, 1]),
    ],
)
def test_the_beginning_of_a_text_is_read_in_larger_chunks(
    family: str, begins: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill, "CHUNK", 4)
    monkeypatch.setattr(prefill, "_BEGINNING", 30)
    runner = attach(FAMILIES[family](), self_test=False)
    [text] = random_prompts(np.random.default_rng(3), (begins + 21,), VOCAB)
    slot = runner.open(40)
    if begins:
        runner.prefill([slot], [text[:begins]], Needs())
    seen: list[int] = []
    model: Any = runner.model
    model.model.register_forward_pre_hook(
        lambda module, given, named: seen.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    [found] = runner.prefill([slot], [text[begins:]], Needs())
    assert seen == sizes
    assert worst(found, plain_logits(runner.model, text)[-1:]) < TOLERANCE
    seen.clear()
    runner.prefill([runner.open(40)], [text], Needs(prompt_rows=True))
    assert max(seen) == 4, "all logits of so many take memory"


@pytest.mark.parametrize(
    ("device", "recurrent", "tokens"),
    [("cpu", None, 512), ("cpu", object(), 512), ("cuda", None, 2048), ("cuda", object(), 1024)],
)
def test_other_devices_read_more_of_a_prompt_at_a_time(
    device: str, recurrent: object, tokens: int
) -> None:
    where: Any = SimpleNamespace(device=torch.device(device), recurrent=recurrent)
    assert ChunkedPrefill(where, Needs(), None, VOCAB)._usual == tokens


def test_only_requested_rows_reach_the_lm_head(llama: Runner) -> None:
    seen: list[int] = []
    model: Any = llama.model
    model.lm_head.register_forward_hook(lambda module, given, out: seen.append(out.shape[1]))
    slots = [llama.open(20) for _ in range(2)]
    llama.prefill(slots, [[1] * 20, [2] * 17], Needs())
    assert seen == [1, 1, 2]


def test_prompts_that_cannot_be_cached_are_refused(llama: Runner) -> None:
    slot = llama.open(8)
    with pytest.raises(DraftwoodError, match="a prompt is empty"):
        llama.prefill([slot], [[]], Needs())
    with pytest.raises(DraftwoodError, match="named twice"):
        llama.prefill([slot, slot], [[1], [2]], Needs())
    assert llama.length(slot) == 0
    with torch.no_grad():
        assert llama.prefill([slot], [np.array([3, 4])], Needs())[0].argmax.shape == (1,)  # type: ignore[list-item]

"""A local model as the reference: its answers and its distribution are those of plain forwards."""

import itertools
import math
from typing import Any

import pytest
import torch

from draftwood import models
from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.client import Refused
from draftwood.lab.endpoint.local import LocalModel
from draftwood.lab.endpoint.prompts import Prompt
from tests.factories.tiny_llama import save_tiny, tiny_llama, tiny_tokenizer

PROMPT = Prompt("p", "abc abc ab")


@pytest.fixture(scope="module")
def local(checkpoint: str) -> LocalModel:
    return LocalModel(models.load(checkpoint))


def test_an_answer_is_that_of_generate(local: LocalModel) -> None:
    found = local.ask(PROMPT, 12).first
    ids = torch.tensor([tiny_tokenizer()(PROMPT.text)["input_ids"]])
    model: Any = tiny_llama()
    expected = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert found.text == tiny_tokenizer().decode(expected)
    assert found.reason == "length"
    assert len(found.tokens) == 12
    for token in found.tokens:
        assert max(logprob for _, logprob in token.top) == pytest.approx(token.logprob)
        assert len(token.top) <= 20
    assert found.tokens[0].start == 0
    assert local.dtype == "float32"


def test_fields_of_sampling_are_taken_and_others_refused(local: LocalModel) -> None:
    plain = local.ask(PROMPT, 12).first.text
    first = local.token_ids(plain[:1])[0]
    assert local.ask(PROMPT, 12, logit_bias={str(first): -100}).first.text[:1] != plain[:1]
    sampled = {local.ask(PROMPT, 12, temperature=1.0, seed=seed).first.text for seed in range(3)}
    assert len(sampled) == 3
    with pytest.raises(Refused, match="knows no n"):
        local.ask(PROMPT, 12, n=2)


def test_chats_are_asked_in_the_template(local: LocalModel) -> None:
    chat = Prompt("c", "hi", chat=True)
    assert local.ids(chat) == list(tiny_tokenizer()("User: hi\n\nAssistant:")["input_ids"])
    assert local.ids(PROMPT) == list(tiny_tokenizer()(PROMPT.text)["input_ids"])


def test_a_model_without_a_template_refuses_chats(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = save_tiny(tmp_path_factory.mktemp("raw"), chat=False)
    raw = LocalModel(models.load(str(place)))
    with pytest.raises(DraftwoodError, match="has no chat template"):
        raw.ask(Prompt("c", "hi", chat=True), 3)


@torch.inference_mode()
def test_the_distribution_is_that_of_forwards(local: LocalModel) -> None:
    model, tokenizer = tiny_llama(), tiny_tokenizer()
    start = tokenizer(PROMPT.text)["input_ids"]

    def after(*more: int) -> dict[int, float]:
        logits = model(torch.tensor([[*start, *more]])).logits[0, -1].double()
        best = logits.topk(3)
        shares = best.values.softmax(0).tolist()
        return dict(zip(best.indices.tolist(), shares, strict=True))

    expected: dict[str, float] = {}
    for a, b in itertools.product(after(), range(3)):
        second, share = list(after(a).items())[b]
        try:
            text = str(tokenizer.decode([a, second]))
        except UnicodeDecodeError:
            continue
        if "\ufffd" not in text:
            expected[text] = expected.get(text, 0.0) + after()[a] * share
    assert local.distribution(PROMPT, 2, 1e-6, 3) == pytest.approx(expected, abs=1e-6)


def test_the_distribution_of_all_tokens_leaves_out_what_is_rare(local: LocalModel) -> None:
    distribution = local.distribution(PROMPT, 1, 0.01, 0)
    whole = local.distribution(PROMPT, 1, 1e-9, 0)
    assert distribution == {text: share for text, share in whole.items() if share >= 0.01}
    assert 0 < sum(distribution.values()) < sum(whole.values()) < 1
    assert math.isclose(max(distribution.values()), max(whole.values()))

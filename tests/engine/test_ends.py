"""Tokens and strings that end a request, not before some tokens, and special tokens in its text."""

import pytest
import torch

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.sampling.params import SamplingParams
from draftwood.sampling.processors import WithheldTokens
from draftwood.sampling.sampler import Sampler
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

PROMPT = (1, 5, 2, 7, 1, 5, 2, 7, 1)


def decoded(name: str, request: Request) -> Completion:
    target = MarkovTarget(sharpness=1.5)
    [found] = Engine(target, method(name), host=FakeHost(target.info)).generate([request])
    return found.checked()


@pytest.mark.parametrize("name", ["ar", "goose", "auto", "rrsw"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_end_token_comes_too_early(name: str, temperature: float) -> None:
    ends = tuple(range(6))
    sampling = SamplingParams(temperature, seed=3)
    early = decoded(name, Request(PROMPT, 40, sampling, eos=ends))
    assert early.reason == "eos"
    least = len(early.tokens) + 5
    late = decoded(name, Request(PROMPT, 40, sampling, eos=ends, min_new_tokens=least))
    assert len(late.tokens) > least
    assert not set(late.tokens[:least]) & set(ends)
    assert late.tokens[: len(early.tokens) - 1] == early.tokens[:-1]
    if name in ("goose", "auto"):
        plain = decoded("ar", Request(PROMPT, 40, sampling, eos=ends, min_new_tokens=least))
        assert late.tokens == plain.tokens


def test_withheld_tokens_are_those_of_transformers() -> None:
    from transformers import MinNewTokensLengthLogitsProcessor

    theirs = MinNewTokensLengthLogitsProcessor(3, 2, [1, 4])
    ours = WithheldTokens([4, 1], 5)
    for length in (3, 4, 5, 6):
        ids, scores = torch.zeros(1, length, dtype=torch.int64), torch.randn(1, 6)
        assert torch.equal(ours(ids, scores), theirs(ids, scores))


@pytest.mark.parametrize("name", ["ar", "goose:budget=8"])
def test_no_stop_string_counts_too_early(name: str) -> None:
    engine = Engine(tiny_llama(), name, tiny_tokenizer())
    [whole] = engine.generate([Request("abcabc", 40)])
    stop = next(char for char in whole.text[3:] if char.isascii() and char.isprintable())
    [early] = engine.generate([Request("abcabc", 40, stop=(stop,))])
    assert early.reason == "stop"
    least = len(early.tokens)
    [late] = engine.generate([Request("abcabc", 40, stop=(stop,), min_new_tokens=least)])
    assert len(late.tokens) > least
    assert late.text.startswith(early.text + stop)
    assert whole.text.startswith(late.text)


def test_a_stop_string_counts_that_begins_before_the_least_tokens() -> None:
    engine = Engine(tiny_llama(), "goose:budget=8", tiny_tokenizer())
    [whole] = engine.generate([Request("abcabc", 40)])
    stop = whole.text[2:6]
    [plain] = engine.generate([Request("abcabc", 40, stop=(stop,))])
    assert plain.reason == "stop"
    least = len(plain.tokens) - 1
    [late] = engine.generate([Request("abcabc", 40, stop=(stop,), min_new_tokens=least)])
    assert (late.tokens, late.text) == (plain.tokens, plain.text)


def test_what_cannot_be_withheld_is_refused() -> None:
    sampler = Sampler(SamplingParams(), len(PROMPT))
    for request, words in (
        (Request(PROMPT, 5, min_new_tokens=6), "give 0 to 5"),
        (Request(PROMPT, 5, min_new_tokens=-1), "give 0 to 5"),
        (Request(PROMPT, 5, min_new_tokens=True), "must be an integer"),
        (Request(PROMPT, 5, sampler=sampler, min_new_tokens=1), "cannot be combined"),
    ):
        with pytest.raises(DraftwoodError, match=words):
            decoded("ar", request)


def test_a_text_ends_before_the_token_that_ends_it() -> None:
    engine = Engine(tiny_llama(), "goose:budget=8", tiny_tokenizer())
    [whole] = engine.generate([Request("abcabc", 40)])
    token = next(t for i, t in enumerate(whole.tokens) if i > 4 and t not in whole.tokens[:i])
    for stop in ((), ("never there",)):
        [found] = engine.generate([Request("abcabc", 40, eos=[token], stop=stop)])
        assert found.reason == "eos"
        assert found.tokens == whole.tokens[: whole.tokens.index(token) + 1]
        [before] = engine.generate([Request("abcabc", len(found.tokens) - 1)])
        assert found.text == before.text


def test_special_tokens_are_in_the_text_if_asked_for() -> None:
    sampling = SamplingParams(0.9, seed=1, logit_bias={256: 8.0})
    engine = Engine(tiny_llama(), "goose:budget=8", tiny_tokenizer())
    ask = {"sampling": sampling, "eos": ()}
    [hidden] = engine.generate([Request("abcabc", 30, **ask)])  # type: ignore[arg-type]
    [shown] = engine.generate(
        [Request("abcabc", 30, **ask, skip_special_tokens=False)]  # type: ignore[arg-type]
    )
    assert 256 in hidden.tokens
    assert shown.tokens == hidden.tokens
    decode = tiny_tokenizer().decode
    assert shown.text == decode(list(shown.tokens))
    assert hidden.text == decode(list(shown.tokens), skip_special_tokens=True)
    assert shown.text.count("<eos>") == shown.tokens.count(256)

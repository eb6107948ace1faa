"""The engine as a user meets it: models by name, text prompts, the model's own end, errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import draftwood
from draftwood import Request, SamplingParams
from draftwood.engine import Engine
from draftwood.engine.request import prepared
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import custom_generate
from draftwood.integrations.transformers.attachment import attachment_of
from draftwood.methods import method
from draftwood.runner.attach import detach, runner_of
from tests.factories.tiny_llama import save_tiny, tiny_llama, tiny_tokenizer

IDS = (5, 17, 44, 5, 17)
TEXT = "ab ab"


def plain(prompt: Any = IDS, **kwargs: Any) -> tuple[int, ...]:
    """What ``generate`` appends; its own end included."""
    model: Any = tiny_llama()
    ids = torch.tensor([prompt])
    settings = {"max_new_tokens": 12, "pad_token_id": 0} | kwargs
    found = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return tuple(found[0, len(prompt) :].tolist())


def ending() -> Any:
    """A model whose generation config ends a sequence of IDS after a few tokens."""
    model: Any = tiny_llama()
    model.generation_config.eos_token_id = [plain(eos_token_id=None)[4], 259]
    return model


def test_a_model_is_attached_and_shared_with_generate() -> None:
    model = tiny_llama()
    engine = Engine(model, "goose:budget=8")
    assert engine.target is runner_of(model)
    [done] = engine.generate([Request(IDS, 12)])
    assert done.tokens == plain()
    assert attachment_of(model).runner is engine.target
    detach(model)
    with pytest.raises(DraftwoodError, match="the model was detached"):
        engine.generate([Request(IDS, 12)])
    assert Engine(runner_of(model)).method.name == "auto"
    with pytest.raises(DraftwoodError, match="make a new one"):
        engine.generate([Request(IDS, 12)])


def test_requests_of_a_model_that_is_detached_meanwhile_say_so() -> None:
    model = tiny_llama()
    engine = Engine(model, "goose:budget=8")
    engine.add(Request(IDS, 12))
    while not engine.step():
        pass
    detach(model)
    with pytest.raises(DraftwoodError, match="the model was detached"):
        engine.step()


@pytest.mark.parametrize(
    "given", ["goose:budget=8", method("goose:budget=8"), custom_generate("goose", budget=8)]
)
def test_methods_in_any_form(given: Any) -> None:
    assert Engine(tiny_llama(), given).method == method("goose:budget=8")


def test_an_engine_by_name(tmp_path: Any) -> None:
    engine = Engine.load(str(save_tiny(tmp_path)), "pld", max_batch=2)
    assert engine.max_batch == 2
    assert engine.method.name == "pld"
    [done] = engine.generate([Request(TEXT, 12)])
    ids = tiny_tokenizer()(TEXT)["input_ids"]
    assert done.tokens == plain(ids)
    assert done.prompt_tokens == len(ids)
    assert done.text == tiny_tokenizer().decode(list(done.tokens), skip_special_tokens=True)
    with pytest.raises(DraftwoodError, match="cannot load model 'nowhere'"):
        Engine.load("nowhere")


def test_a_sequence_ends_where_the_model_says() -> None:
    engine = Engine(ending(), "goose:budget=8")
    own, none, other = engine.generate(
        [Request(IDS, 12), Request(IDS, 12, eos=()), Request(IDS, 12, eos=[plain()[1]])]
    )
    assert own.reason == "eos"
    assert own.tokens == plain()[:5]
    assert (none.reason, none.tokens) == ("length", plain(eos_token_id=None))
    assert (other.reason, other.tokens) == ("eos", plain()[:2])


def test_where_the_model_names_no_end_the_tokenizer_does() -> None:
    model: Any = tiny_llama()
    model.generation_config.eos_token_id = None
    for tokenizer, eos in ((None, frozenset()), (tiny_tokenizer(), frozenset({256}))):
        engine = Engine(model, "ar", tokenizer)
        number = engine.add(Request(IDS, 2))
        assert engine._waiting[0].request.eos == eos
        engine.cancel(number)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"prompt": np.array(IDS)}, {"prompt": IDS}),
        ({"prompt": torch.tensor(IDS)}, {"prompt": IDS}),
        ({"prompt": list(IDS)}, {"prompt": IDS}),
        ({"eos": 7}, {"eos": frozenset({7})}),
        ({"eos": [7, 8]}, {"eos": frozenset({7, 8})}),
        ({"eos": None}, {"eos": frozenset({9})}),
        ({"stop": "end"}, {"stop": ("end",)}),
        ({"stop": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"max_new_tokens": np.int64(5)}, {"max_new_tokens": 5}),
    ],
)
def test_requests_in_any_form(given: dict[str, Any], stored: dict[str, Any]) -> None:
    found = prepared(Request(**{"prompt": IDS} | given), None, frozenset({9}))
    for name, value in stored.items():
        assert getattr(found, name) == value
        assert type(getattr(found, name)) is type(value)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"prompt": "text"}, "a prompt that is text needs a tokenizer"),
        ({"prompt": 5}, "the prompt is 5: give a sequence of integers"),
        ({"prompt": [1.0, 2.0]}, "the prompt holds 1.0: give integers"),
        ({"prompt": torch.tensor([IDS])}, r"the prompt holds \[5, 17, 44, 5, 17\]"),
        ({"prompt": [True]}, "holds True"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [5, 999]}, "outside 0..259"),
        ({"prompt": [5] * 256}, "the model's context holds 256: shorten the prompt"),
        ({"eos": [7, 2**70]}, "eos holds 1180591620717411303424, which is no token id"),
        ({"stop": ("x",)}, "stop strings need a tokenizer"),
        ({"max_new_tokens": "4"}, "max_new_tokens must be an integer, but is '4'"),
        ({"max_new_tokens": 4.0}, "max_new_tokens must be an integer, but is 4.0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"eos": "x"}, "eos is 'x': give a sequence of integers"),
        ({"eos": 1.5}, "eos is 1.5: give a sequence of integers"),
        ({"stop": 5}, "stop is 5: give strings"),
        ({"speculate": "no"}, "speculate is 'no': give True or False"),
        ({"skip_special_tokens": 1}, "skip_special_tokens is 1: give True or False"),
        ({"should_stop": 5}, "should_stop is 5: give a function, or None"),
        ({"observer": 5}, "observer is 5: give a function, or None"),
        ({"sampler": 5}, "sampler is 5: give a draftwood.sampling.sampler.Sampler, or None"),
        ({"stop": [5]}, r"stop is \[5\]: give strings"),
        ({"sampling": 0.7}, r"sampling is 0.7: give draftwood\.SamplingParams"),
        ({"sampling": SamplingParams(banned_tokens=(900,))}, "banned_tokens"),
    ],
)
def test_wrong_requests_are_refused(given: dict[str, Any], complaint: str) -> None:
    engine = Engine(tiny_llama(), "ar")
    with pytest.raises(DraftwoodError, match=complaint):
        engine.add(Request(**{"prompt": IDS} | given))
    assert not engine.busy


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"target": "embedded"}, r"this is str: give one of transformers, or use .*Engine\.load"),
        ({"target": torch.nn.Linear(2, 2)}, "Linear is not a transformers model"),
        ({"method": 5}, "a method cannot be int: give its name"),
        ({"method": tiny_tokenizer()}, "a method cannot be"),
        ({"method": "gose"}, "unknown method 'gose'"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"max_batch": "2"}, "max_batch must be an integer, but is '2'"),
        ({"max_batch": True}, "max_batch must be an integer, but is True"),
    ],
)
def test_wrong_engines_are_refused(given: dict[str, Any], complaint: str) -> None:
    settings: dict[str, Any] = {"target": tiny_llama(), "method": "ar"} | given
    with pytest.raises(DraftwoodError, match=complaint):
        Engine(**settings)


@pytest.mark.parametrize("given", [Request(IDS, 4), "text", 5])
def test_anything_but_a_list_of_requests_is_refused(given: Any) -> None:
    engine = Engine(tiny_llama(), "ar")
    with pytest.raises(DraftwoodError, match=r"a list of requests: write \[request\]"):
        engine.generate(given)
    with pytest.raises(DraftwoodError, match=r"takes requests, such as .*but this is str"):
        engine.generate([Request(IDS), "text"])  # type: ignore[list-item]
    assert not engine.busy, "a wrong request leaves none behind"


def test_text_has_ids_only_once_it_is_encoded() -> None:
    with pytest.raises(DraftwoodError, match="the prompt is text: encode it first"):
        _ = Request("text").ids
    assert Request(IDS).ids == IDS
    assert Request(IDS).ends == ()
    assert draftwood.Request is Request
    assert draftwood.Engine is Engine


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: draftwood.detach(3), "int is not a transformers model"),
        (lambda: draftwood.detach(None), "NoneType is not a transformers model"),
        (lambda: draftwood.attach(3), "int is not a transformers model"),
        (
            lambda: draftwood.attach(tiny_llama(), chunk="a"),  # type: ignore[arg-type]
            "chunk must be an integer, but is 'a'",
        ),
        (lambda: draftwood.attach(tiny_llama(), chunk=True), "chunk must be an integer"),
        (
            lambda: draftwood.load(3),  # type: ignore[arg-type]
            "a model's name cannot be int: give a directory, a hub id or 'embedded'",
        ),
        (lambda: Engine.load(None), "a model's name cannot be NoneType"),  # type: ignore[arg-type]
        (lambda: draftwood.load(device=[]), "cannot be used here"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_a_wrong_type_are_refused(call: Callable[[], object], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        call()


def test_a_model_may_be_named_by_a_path(tmp_path: Path) -> None:
    loaded = draftwood.load(save_tiny(tmp_path))
    assert loaded.name == str(tmp_path)

"""Prompts in any form; a tokenizer without a pad token serves several texts."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BatchEncoding, GenerationConfig

from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import generate
from draftwood.integrations.transformers.attachment import attachment_of
from draftwood.integrations.transformers.inputs import pad_token
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

MODEL: Any = tiny_llama()
TOKENIZER = tiny_tokenizer()
SETTINGS: dict[str, Any] = {"max_new_tokens": 6, "method": "goose", "tokenizer": TOKENIZER}
IDS = [5, 17, 44, 5]
LONGER = [9, 5, 17, 44, 5, 17]


def alone(prompt: str | list[int]) -> list[int]:
    """The continuation of one prompt, by plain ``generate``."""
    ids = TOKENIZER(prompt)["input_ids"] if isinstance(prompt, str) else prompt
    tensor = torch.tensor([ids])
    mask = torch.ones_like(tensor)
    found = MODEL.generate(tensor, attention_mask=mask, max_new_tokens=6, pad_token_id=256)
    continued: list[int] = found[0, len(ids) :].tolist()
    return continued


def ours(inputs: Any = None, **kwargs: Any) -> list[list[int]]:
    found = generate(MODEL, inputs, **SETTINGS | kwargs)
    assert isinstance(found, torch.Tensor)
    return [[int(token) for token in row] for row in found.tolist()]


def ends(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(row[-6:]) for row in rows]


ENCODED = TOKENIZER("a b", return_tensors="pt")


@pytest.mark.parametrize(
    "inputs",
    [
        IDS,
        tuple(IDS),
        np.array(IDS),
        torch.tensor(IDS),
        torch.tensor([IDS]),
        torch.tensor([IDS], dtype=torch.int32),
        [IDS],
        [torch.tensor(IDS)],
        {"input_ids": torch.tensor([IDS])},
        {"input_ids": [IDS], "attention_mask": None},
        BatchEncoding({"input_ids": [IDS], "attention_mask": [[1] * 4]}),
        BatchEncoding({"input_ids": IDS, "attention_mask": [1] * 4}),
        BatchEncoding({"input_ids": torch.tensor(IDS), "attention_mask": torch.ones(4).long()}),
    ],
)
def test_one_prompt_in_any_form(inputs: Any) -> None:
    assert ours(inputs) == [[*IDS, *alone(IDS)]]


def test_a_tokenizers_output_as_keywords() -> None:
    assert ours(**ENCODED) == ours(ENCODED) == ours("a b") == ours(ENCODED["input_ids"])
    ids, mask = ENCODED["input_ids"], ENCODED["attention_mask"]
    assert ours(ids, attention_mask=mask) == ours("a b")
    assert ours(input_ids=ids.tolist(), attention_mask=mask.tolist()) == ours("a b")


def test_several_texts_need_no_pad_token() -> None:
    assert TOKENIZER.pad_token is None
    rows = ours(["a b", "c", "hello"])
    assert ends(rows) == [alone("a b"), alone("c"), alone("hello")]
    # Left of the shorter ones stands the end-of-sequence token.
    assert rows[1][:4] == [256] * 4
    assert [len(row) for row in rows] == [11, 11, 11]


def test_a_tokenizers_output_without_padding() -> None:
    encoded = TOKENIZER(["a b", "c", "hello"])
    assert len({len(row) for row in encoded["attention_mask"]}) > 1
    assert ours(encoded) == ours(["a b", "c", "hello"]) == ours(**encoded)
    hidden = ours([IDS, LONGER], attention_mask=[[1] * len(IDS), [0, 1, 1, 1, 1, 1]])
    assert ends(hidden) == [alone(IDS), alone(LONGER[1:])]


def test_several_prompts_of_ids() -> None:
    rows = ours([IDS, LONGER])
    assert ends(rows) == [alone(IDS), alone(LONGER)]
    assert rows[0][:6] == [256, 256, *IDS]
    assert ours([IDS, LONGER], pad_token_id=3)[0][:6] == [3, 3, *IDS]
    assert ours([IDS, torch.tensor(LONGER)]) == rows


def test_rows_that_end_early_are_padded_without_a_pad_token() -> None:
    stop = alone(IDS)[2]
    assert stop not in alone(LONGER)
    rows = ours([IDS, LONGER], eos_token_id=stop)
    assert rows[0][6:] == [*alone(IDS)[:3], stop, stop, stop]
    assert rows[1][6:] == alone(LONGER)


def test_both_sides_are_padded_with_the_tokenizers_token() -> None:
    assert MODEL.generation_config.pad_token_id is None
    tokenizer = deepcopy(TOKENIZER)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(3)
    stop = alone(IDS)[2]
    expected = [3, 3, *IDS, *alone(IDS)[:3], 3, 3, 3]
    assert ours([IDS, LONGER], eos_token_id=stop, tokenizer=tokenizer)[0] == expected
    kind: Any = GenerationConfig  # which transformers leaves untyped
    config = kind(max_new_tokens=6, eos_token_id=stop)
    given: dict[str, Any] = {"tokenizer": tokenizer, "generation_config": config}
    found: Any = generate(MODEL, [IDS, LONGER], "goose", **given)
    assert found[0].tolist() == expected
    assert config.pad_token_id is None
    # Without a mask, one of a prompt's tokens is not taken for padding.
    assert ours(torch.tensor([3, *IDS]), tokenizer=tokenizer) == [[3, *IDS, *alone([3, *IDS])]]


def test_the_pad_token() -> None:
    class Config:
        pad_token_id: int | None = None
        eos_token_id: int | list[int] | None = None

    none, eos, pad = Config(), Config(), Config()
    eos.eos_token_id, pad.pad_token_id = [7, 8], 9
    assert pad_token({}, none, eos) == 7
    assert pad_token({}, eos, pad) == 9
    assert pad_token({"pad_token_id": 5}, pad) == 5
    assert pad_token({"eos_token_id": 4}, none) == 4
    assert pad_token({"eos_token_id": torch.tensor([6, 2])}, none) == 6
    assert pad_token({}, None, none) is None


@pytest.mark.parametrize(
    ("inputs", "kwargs", "complaint"),
    [
        (None, {}, "there is no prompt: give text, token ids"),
        (IDS, {"input_ids": torch.tensor([IDS])}, "given twice"),
        (5, {}, "a prompt cannot be int"),
        ([], {}, "prompt 0 is empty"),
        ("", {}, "prompt 0 is empty"),
        (["a", ""], {}, "prompt 1 is empty"),
        ([IDS, []], {}, "prompt 1 is empty"),
        (["a", 5], {}, "prompt 0 is 'a': give a sequence of integers"),
        ([IDS, "a"], {}, "prompt 1 is 'a': give a sequence of integers"),
        ([1.5, 2.0], {}, "prompt 0 holds 1.5: give integers"),
        ([IDS, [True]], {}, "prompt 1 holds True: give integers"),
        (torch.tensor([1.0, 2.0]), {}, "this tensor is torch.float32"),
        (torch.ones(2, dtype=torch.bool), {}, "this tensor is torch.bool"),
        (torch.zeros(1, 2, 3, dtype=torch.int64), {}, r"has \[1, 2, 3\]"),
        (torch.zeros(0, dtype=torch.int64), {}, r"has \[0\]"),
        ("a b", {"tokenizer": None}, "needs a tokenizer"),
        (None, {"inputs_embeds": torch.zeros(1, 3, 32)}, "inputs_embeds"),
        (IDS, {"method": 3}, "a method cannot be 3: give its name"),
        (IDS, {"tokenizer": None, "stop_strings": ["a"]}, "stop_strings need a tokenizer"),
        (
            [IDS, LONGER],
            {"attention_mask": [[1] * 6, [1] * 6]},
            r"\[6, 6\] numbers .* \[4, 6\] tok",
        ),
        (IDS, {"custom_generate": "x"}, "custom_generate is given by method: leave it out"),
        (IDS, {"cache_implementation": "paged"}, "cache_implementation='paged'"),
    ],
)
def test_refusals(inputs: Any, kwargs: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        ours(inputs, **kwargs)


def test_auto_is_the_default() -> None:
    kwargs: dict[str, Any] = {"tokenizer": TOKENIZER, "max_new_tokens": 6}
    found = generate(MODEL, "a b", **kwargs)
    assert isinstance(found, torch.Tensor)
    assert ends(found.tolist()) == [alone("a b")]
    assert list(attachment_of(MODEL)._engines)[-1] == (("auto",), None)

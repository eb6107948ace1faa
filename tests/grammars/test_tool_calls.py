"""The grammar of tool calls, where its marks are tokens of their own and where they are text."""

import random
from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.grammars.constraint import GrammarConstraint, constraint_of
from draftwood.grammars.grammar import Grammar
from draftwood.grammars.tool_calls import Mode, ToolCalls
from tests.factories.small_tokenizers import byte_level
from tests.factories.toy_constraint import legal_tokens

pytest.importorskip("llguidance")

ADD = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/number"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"number": {"type": "integer"}},
}
FORM = ToolCalls({"add": ADD, "say": {"type": "object"}}, "<tool_call>", "</tool_call>")
THINKS = replace(FORM, reasoning=("<think>", "</think>"))
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
SAY = '<tool_call>{"name": "say", "arguments": {"x": ["y"]}}</tool_call>'
WRONG = (
    CALL.replace("add", "sub"),
    CALL.replace('"a"', '"b"'),
    CALL.replace("1", '"1"'),
    CALL.replace("1}", "1"),
    CALL.replace("</tool_call>", "</tool_calls>"),
)


def with_marks(*, special: bool | None) -> PreTrainedTokenizerBase:
    """A tokenizer with tokens for the marks; None: they are text."""
    found = byte_level()
    if special is not None:
        marks = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
        found.add_tokens(marks, special_tokens=special)
    return found


TOKENIZERS = {
    "special tokens": with_marks(special=True),
    "added tokens": with_marks(special=False),
    "text": with_marks(special=None),
}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return TOKENIZERS[request.param]


def constraint(calls: ToolCalls, tokenizer: PreTrainedTokenizerBase) -> GrammarConstraint:
    end = tokenizer.eos_token_id
    assert isinstance(end, int)
    return constraint_of(Grammar.tool_calls(calls), tokenizer, len(tokenizer), [end])


def whole(calls: ToolCalls, tokenizer: PreTrainedTokenizerBase, text: str) -> bool:
    """Whether an answer may be this text."""
    ids: Any = tokenizer(text, add_special_tokens=False)["input_ids"]
    path = [*ids, tokenizer.eos_token_id]
    return constraint(calls, tokenizer).legal_length(path) == len(path)


TEXTS: dict[Mode, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "some": (
        (CALL, SAY, f"{CALL}\n{SAY}", f"\n{SAY}{SAY}"),
        ("", "I add.", f"I add. {CALL}", f"{CALL} Done.", *WRONG, f"{CALL}\n{WRONG[0]}"),
    ),
    "one": ((CALL, SAY), ("", f"I add. {CALL}", f"{CALL}\n{SAY}", *WRONG)),
    "any": (
        (
            *("", "I add.", "a <b> c", CALL, f"I add.\n{CALL}", f"{CALL}\n{SAY} Done."),
            *("</tool_call>", f"<think>\nAdd.\n</think>\n\nI add. {CALL}"),
        ),
        (*WRONG, f"I add. {WRONG[0]}", f"{CALL}\n{WRONG[0]}", "<tool_call>"),
    ),
    "at most one": (
        ("", "I add.", f"I add.\n{CALL}"),
        (*WRONG, f"{CALL}\n{SAY}", f"I. {CALL} Done. {SAY}"),
    ),
}


@pytest.mark.parametrize("mode", TEXTS)
def test_answers_that_have_the_form_and_others(
    tokenizer: PreTrainedTokenizerBase, mode: Mode
) -> None:
    calls = replace(FORM, mode=mode)
    right, wrong = TEXTS[mode]
    for text in right:
        assert whole(calls, tokenizer, text), text
    for text in wrong:
        assert not whole(calls, tokenizer, text), text


def test_reasoning_may_come_before_calls_that_must_be(tokenizer: PreTrainedTokenizerBase) -> None:
    thought = "<think>\nAdd <1> and more.\n</think>\n\n"
    assert whole(THINKS, tokenizer, thought + CALL)
    assert whole(THINKS, tokenizer, CALL)
    assert not whole(THINKS, tokenizer, thought)
    assert not whole(THINKS, tokenizer, f"{thought}I add. {CALL}")
    assert not whole(THINKS, tokenizer, f"<think>\n{CALL}")
    assert not whole(FORM, tokenizer, thought + CALL)
    begun = replace(THINKS, reasons=True)
    assert whole(begun, tokenizer, f"Add.\n</think>\n{CALL}")
    assert not whole(begun, tokenizer, CALL)


@pytest.mark.parametrize("mode", ["any", "at most one"])
def test_a_thought_may_speak_of_calls(tokenizer: PreTrainedTokenizerBase, mode: Mode) -> None:
    thought = "I return it within <tool_call> and </tool_call>.\n</think>\n\n"
    begun = replace(THINKS, mode=mode, reasons=True)
    for answer in ("I add.", CALL, f"I add. {CALL}"):
        assert whole(begun, tokenizer, thought + answer)
    assert whole(begun, tokenizer, "It was cut off")
    assert not whole(begun, tokenizer, thought + WRONG[0])
    fresh = replace(THINKS, mode=mode)
    assert whole(fresh, tokenizer, CALL)
    assert not whole(fresh, tokenizer, WRONG[0])
    assert not whole(fresh, tokenizer, f"<think>\nI add.\n</think>\n{WRONG[0]}")
    if tokenizer is not TOKENIZERS["text"]:
        assert whole(fresh, tokenizer, f"<think>\n{thought}{CALL}")
        assert not whole(fresh, tokenizer, f"<think>\n{thought}{WRONG[0]}")


def test_a_constraint_that_was_moved_about_is_as_a_fresh_one(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    size = len(tokenizer)
    ids: Any = tokenizer(f"I add.\n{CALL}", add_special_tokens=False)["input_ids"]
    moved = constraint(replace(FORM, mode="any"), tokenizer)
    draw = random.Random(0)
    for _ in range(20):
        path = ids[: draw.randrange(len(ids) + 1)]
        fresh = constraint(replace(FORM, mode="any"), tokenizer)
        legal = legal_tokens(moved.bits(path), size)
        assert legal == legal_tokens(fresh.bits(path), size)
        assert moved.allows(path, range(size)) == [token in legal for token in range(size)]


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({}, "0 functions: give 1 to 128"),
        ({f"f{i}": {} for i in range(129)}, "129 functions"),
        ({"f": 5}, "the arguments of f: this is no JSON schema"),
        ({"f": {"enum": [*map(str, range(10_001))]}}, "the arguments of f: .*10001 values"),
    ],
)
def test_functions_that_are_none(functions: dict[str, Any], words: str) -> None:
    with pytest.raises(DraftwoodError, match=words):
        Grammar.tool_calls(replace(FORM, functions=functions))


def test_a_schema_that_the_library_does_not_know_is_refused() -> None:
    grammar = Grammar.tool_calls(replace(FORM, functions={"f": {"type": "king"}}))
    with pytest.raises(DraftwoodError, match=r"the grammar \(tool_calls\) is wrong"):
        grammar.check()


@pytest.mark.parametrize("levels", [300, 100_000])
def test_a_schema_in_many_levels(levels: int) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    calls = replace(FORM, functions={"add": schema})
    if levels < 1000:
        assert ToolCalls.of_json(calls.json()).functions == {"add": schema}
        assert Grammar.tool_calls(calls).kind == "tool_calls"
    else:
        with pytest.raises(DraftwoodError, match="add"):
            Grammar.tool_calls(calls)

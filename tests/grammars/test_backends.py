"""The grammar libraries: their matchers along paths, their errors, and the tokenizers they read."""

import json
import random
import sys
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.grammars.compilers import compiler_of
from draftwood.grammars.constraint import GrammarConstraint, constraint_of
from draftwood.grammars.grammar import Grammar, backend_names
from tests.factories.small_tokenizers import byte_level, metaspace, named_ids
from tests.factories.toy_constraint import legal_tokens

SCHEMA = {
    "type": "object",
    "properties": {
        "thing": {"enum": ["the ring", "the thing", "wö"]},
        "name": {"type": "string", "maxLength": 5},
        "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["thing", "list"],
    "additionalProperties": False,
}
GBNF = 'root ::= "the" (" " word)* "."\nword ::= "ing" | "h" [a-f0-9]+ | "thing"'
TOKENIZERS = {"byte_level": byte_level(), "metaspace": metaspace()}
PADDED = 70
"""Rows of logits beyond the tokens."""


@pytest.fixture(params=backend_names())
def backend(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


def grammars(backend: str) -> list[Grammar]:
    found = [
        Grammar.json_schema(SCHEMA, backend=backend, fixed_spaces=True),
        Grammar.json_schema(SCHEMA, backend=backend),
        Grammar.json_object(backend=backend),
        Grammar.regex(r"the (ring|thing|herring)s? [a-h]{2,5}", backend=backend),
        Grammar.ebnf(GBNF, backend=backend),
        Grammar.lark('start: "the" (" " WORD)+\nWORD: /[a-i]+/', backend=backend),
    ]
    if backend == "llguidance":  # its own option
        found.append(Grammar.lark('%llguidance {"no_forcing": true}\nstart: "the thing" /[a-c]+/'))
    return found


def constraint(grammar: Grammar, tokenizer: PreTrainedTokenizerBase) -> GrammarConstraint:
    size, end = len(tokenizer) + PADDED, tokenizer.eos_token_id
    assert isinstance(end, int)
    return constraint_of(grammar, tokenizer, size, [end])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_matcher_that_was_moved_about_is_as_a_fresh_one(backend: str, name: str) -> None:
    tokenizer = TOKENIZERS[name]
    size, end = len(tokenizer) + PADDED, tokenizer.eos_token_id
    generator = random.Random(0)
    forced = 0
    for grammar in grammars(backend):
        moved = constraint(grammar, tokenizer)
        paths: list[tuple[int, ...]] = [()]
        for _ in range(60):
            path = generator.choice(paths)
            legal = legal_tokens(moved.bits(path), size)
            assert legal, "the grammar goes on or ends"
            assert max(legal) < len(tokenizer), "rows without a token are illegal"
            assert legal == legal_tokens(constraint(grammar, tokenizer).bits(path), size)
            tokens = [*generator.sample(range(-1, size), 40), *legal, end]
            assert moved.allows(path, tokens) == [token in legal for token in tokens]
            for token in tokens[:12]:
                long = moved.legal_length([*path, token]) == len(path) + 1
                assert long == (token in legal)
            fresh = constraint(grammar, tokenizer)
            fresh.advance(path)
            following = fresh.forced()
            forced += bool(following)
            assert moved.legal_length([*path, *following]) == len(path) + len(following)
            ordinary = sorted(legal - {end})
            if ordinary and len(path) < 25:
                paths.append((*path, generator.choice(ordinary)))
    assert forced > 10


@pytest.mark.parametrize("name", TOKENIZERS)
def test_legal_tokens_lead_to_a_text_of_the_grammar(backend: str, name: str) -> None:
    tokenizer = TOKENIZERS[name]
    generator = random.Random(1)
    grammar = Grammar.json_schema(SCHEMA, backend=backend, fixed_spaces=True)
    for _ in range(5):
        of, tokens = constraint(grammar, tokenizer), list[int]()
        while not tokens or tokens[-1] != tokenizer.eos_token_id:
            legal = sorted(legal_tokens(of.bits(()), len(tokenizer)))
            tokens.append(generator.choice(legal))
            of.advance(tokens[-1:])
        # xgrammar lets control characters into strings.
        strict = backend != "xgrammar"
        found = json.loads(str(tokenizer.decode(tokens[:-1])), strict=strict)
        assert found.keys() <= SCHEMA["properties"].keys()  # type: ignore[attr-defined]
        assert found["thing"] in {"the ring", "the thing", "wö"}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_choice_is_one_of_its_texts(backend: str, name: str) -> None:
    tokenizer = TOKENIZERS[name]
    options = ["the thing", 'a "b"', "back\\slash", "two\nlines", "wö"]
    of = constraint(Grammar.choice(options, backend=backend), tokenizer)
    for option in options:
        [first, *rest] = tokenizer("\n" + option, add_special_tokens=False)["input_ids"]
        del first
        rest = [token for token in rest if tokenizer.decode([token]) != "\n" or "\n" in option]
        text = str(tokenizer.decode(rest))
        if text == option:  # the tokenizer of words may spell the line break otherwise
            assert of.legal_length([*rest, tokenizer.eos_token_id]) == len(rest) + 1
    assert not any(of.allows((), tokenizer("x", add_special_tokens=False)["input_ids"]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "regex", "text": "(a"},
        {"kind": "json_schema", "text": '{"type": "objct"}'},
        {"kind": "ebnf", "text": "root ::= other"},
        {"kind": "lark", "text": "start: other"},
    ],
)
def test_a_wrong_grammar_is_refused_with_and_without_a_tokenizer(
    backend: str, wrong: dict[str, Any]
) -> None:
    grammar = Grammar(**wrong, backend=backend)
    complaint = rf"the grammar \({grammar.kind}\) is wrong: "
    with pytest.raises(DraftwoodError, match=complaint):
        grammar.check()
    with pytest.raises(DraftwoodError, match=complaint):
        constraint(grammar, TOKENIZERS["byte_level"])


def test_grammars_that_are_right_pass_the_check(backend: str) -> None:
    for grammar in grammars(backend):
        grammar.check()


def test_a_schema_that_would_grow_without_bounds_is_refused() -> None:
    pytest.importorskip("llguidance")
    part: dict[str, Any] = {"type": "object"}
    for i in range(9):
        names = {f"property_{i}_{j}": part for j in range(3)}
        part = {"type": "object", "properties": names, "required": [*names]}
    with pytest.raises(DraftwoodError, match=r"is wrong: schema too large|at most 1048576"):
        constraint(Grammar.json_schema(part), TOKENIZERS["byte_level"])


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.lark('{"grammars": [{"lark_grammar": "start: \\"a\\""}]}'),
        Grammar.ebnf('start: "a" // ::='),
    ],
    ids=str,
)
def test_a_grammar_is_read_as_what_it_is_given_for(grammar: Grammar) -> None:
    """What else the library would take it for has limits of its own."""
    pytest.importorskip("llguidance")
    with pytest.raises(DraftwoodError, match=rf"the grammar \({grammar.kind}\) is wrong: "):
        constraint(grammar, TOKENIZERS["byte_level"])


def test_a_drafted_token_that_exceeds_a_limit_does_not_end_the_text() -> None:
    pytest.importorskip("llguidance")
    tokenizer = TOKENIZERS["byte_level"]
    size = len(tokenizer)
    x, y, z, end = named_ids(tokenizer, "x", "y", "z", "<eos>")
    many = " | ".join(f'"{i}." more' for i in range(2100))
    grammar = Grammar.lark(f'start: "x" many | "y" "z"\nmany: {many}\nmore: "a" more | "b"')
    of = constraint(grammar, tokenizer)
    assert legal_tokens(of.bits(()), size) == {x, y}
    for _ in range(2):
        assert of.legal_length([x, *tokenizer("1.b")["input_ids"]]) < 4
        assert "max is 2000" in of.error
        assert of.allows((), [x, y, z]) == [True, True, False]
        assert legal_tokens(of.bits(()), size) == {x, y}
        assert not of.error
        assert of.legal_length([y, z, end]) == 3
        of.advance([])
    of.advance([y, z])
    assert legal_tokens(of.bits(()), size) == {end}


def test_a_library_that_is_not_installed_is_named(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"llguidance": "grammar", "xgrammar": "xgrammar"}[backend]
    for module in (backend, f"{backend}.hf"):
        monkeypatch.setitem(sys.modules, module, None)
    message = rf"this needs {backend}.*pip install 'draftwood\[{extra}\]'"
    with pytest.raises(DraftwoodError, match=message):
        Grammar.regex("a", backend=backend).check()
    with pytest.raises(DraftwoodError, match=message):
        constraint(Grammar.regex("a", backend=backend), byte_level())


def test_a_tokenizer_is_read_once_for_each_size(backend: str) -> None:
    tokenizer = byte_level()
    found = compiler_of(tokenizer, backend, 300)
    assert compiler_of(tokenizer, backend, 300) is found
    assert compiler_of(tokenizer, backend, 301) is not found


def test_what_a_grammar_cannot_do_without_is_named() -> None:
    tokenizer, grammar = byte_level(), Grammar.regex("a")
    with pytest.raises(DraftwoodError, match="needs the model's tokenizer"):
        constraint_of(grammar, None, 300, [1])
    with pytest.raises(DraftwoodError, match="this request has none: give eos"):
        constraint_of(grammar, tokenizer, 300, [])
    with pytest.raises(DraftwoodError, match=r"grammar is str: give a draftwood\.Grammar"):
        constraint_of("a", tokenizer, 300, [1])  # type: ignore[arg-type]
    slow: Any = type("Slow", (), {"is_fast": False})()
    with pytest.raises(DraftwoodError, match="needs a fast tokenizer, and Slow is none"):
        constraint_of(grammar, slow, 300, [1])

"""llguidance, the default library: JSON schemas, regular expressions, Lark grammars and GBNF.

Where a text is forced, its masks allow one token: the one with which the tokenizer would go on
itself. What it says of single tokens does not have that restriction, so it is made here.

It compiles lazily, so a grammar that is too large may show as such only while it is matched; its
first mask is made when it is compiled. Its limits of work for each token are the library's own, and
that of a lexer's first states is lower.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError, first_line, need
from draftwood.grammars.grammar import Grammar, wrong
from draftwood.grammars.matcher import allow, words
from draftwood.grammars.tool_calls import ToolCalls
from draftwood.tree import common_prefix

_KEPT = 64
"""Most compiled grammars that are kept for each tokenizer."""

_LEXER_FUEL = 200_000
"""Work on the lexer's first states. The library's own limit is 1,000,000, which lets a pattern such
as ``(a{1000}){1000}`` take seconds and 250 MB; this one holds enumerations of 10,000 texts."""

_FIXED_SPACES = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}


def compiler(tokenizer: PreTrainedTokenizerBase, size: int) -> LlguidanceCompiler:
    """A compiler for a tokenizer and a model with so many rows of logits.

    Raises:
        DraftwoodError: llguidance is not installed, or cannot read the tokenizer.
    """
    library = need("llguidance.hf", "grammar")
    try:
        # Rows beyond the tokenizer's tokens have no text, so no grammar allows them.
        vocabulary = library.from_tokenizer(tokenizer, n_vocab=max(size, len(tokenizer)))
    except (ValueError, TypeError, RuntimeError) as error:
        raise DraftwoodError(
            f"llguidance cannot read this tokenizer ({first_line(error)}): give the grammar "
            "backend='xgrammar', or leave it out"
        ) from error
    special = {
        text: number
        for text, number in tokenizer.get_added_vocab().items()
        if vocabulary.is_special_token(number)
    }
    return LlguidanceCompiler(vocabulary, size, special)


def check(grammar: Grammar) -> None:
    """Check a grammar before a tokenizer is at hand.

    Raises:
        DraftwoodError: it is wrong, or llguidance is not installed.
    """
    library = need("llguidance", "grammar")
    text = _text(library, grammar, {})
    failed, said = library.LLMatcher.validate_grammar_with_warnings(text)
    if failed:
        raise wrong(grammar, said[0])


class LlguidanceCompiler:
    """Implements :class:`draftwood.grammars.matcher.Compiler`.

    Args:
        vocabulary: an ``LLTokenizer``.
        size: the model's rows of logits.
        special: ids of tokens that the library takes for no text, such as ``<tool_call>``.
    """

    def __init__(self, vocabulary: Any, size: int, special: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._size = size
        self._special = special
        self._compiled: Callable[[Grammar], Any] = lru_cache(_KEPT)(self._compile)

    def start(self, grammar: Grammar) -> LlguidanceMatcher:
        """See :class:`draftwood.grammars.matcher.Compiler`."""
        ends = self._vocabulary.eos_tokens
        # Lark has an option by which a forced text may be spelt otherwise.
        free = "no_forcing" in grammar.text
        return LlguidanceMatcher(self._compiled(grammar), ends, self._size, free=free)

    def _compile(self, grammar: Grammar) -> Any:
        library = need("llguidance", "grammar")
        limits = library.LLParserLimits(initial_lexer_fuel=_LEXER_FUEL)
        text = _text(library, grammar, self._special)
        found = library.LLMatcher(self._vocabulary, text, log_level=0, limits=limits)
        if not found.is_error():
            found.compute_bitmask()  # the lexer's first states, which all copies then have
        if found.is_error():
            raise wrong(grammar, _said(found))
        return found


class LlguidanceMatcher:
    """Implements :class:`draftwood.grammars.matcher.Matcher`.

    An ``LLMatcher`` that exceeds a limit stays in error. Drafted tokens may lead it there, which
    must not end the text: it is made anew when it is moved.

    Args:
        start: an ``LLMatcher`` at the beginning of a text; copies of it are moved.
        ends: tokens that the library lets end a text.
        size: the model's rows of logits.
        free: whether masks may allow other spellings of a forced text, too.
    """

    def __init__(self, start: Any, ends: Sequence[int], size: int, *, free: bool) -> None:
        self._start = start
        self._free = free
        self._matcher = start.deep_copy()
        self._tokens: list[int] = []
        self._ends = [end for end in ends if end < size]
        self._size = size

    @property
    def accepting(self) -> bool:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        return bool(self._matcher.is_accepting())

    @property
    def complete(self) -> bool:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()

    @property
    def error(self) -> str:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        return _said(self._matcher) if self._matcher.is_error() else ""

    def accept(self, tokens: Sequence[int]) -> int:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        if self._matcher.is_error():
            self._make_anew()
        taken = 0
        while taken < len(tokens):
            forced = self._only()
            count = common_prefix(forced, tokens[taken:]) if forced else 1
            count = int(self._matcher.try_consume_tokens(list(tokens[taken : taken + count])))
            taken += count
            if not count:
                break
        self._tokens += tokens[:taken]
        return taken

    def rollback(self, count: int) -> None:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        if not count:
            return
        del self._tokens[-count:]
        if not self._matcher.is_error():
            self._matcher.rollback(count)

    def bits(self) -> NDArray[np.int64]:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        found = np.zeros(words(self._size), dtype=np.int64)
        if not self._matcher.is_error():
            own = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            found.view(np.uint8)[: len(own)] = own[: found.nbytes]
        allow(found, self._ends, legal=False)
        return found

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        if only := self._only():
            return [token == only[0] for token in tokens]
        valid = self._matcher.validate_tokens
        found = [token not in self._ends and valid([token]) == 1 for token in tokens]
        if not self._matcher.is_error():
            return found
        # A limit was exceeded for one of them; a sampled draft needs what the masks say.
        self._make_anew()
        legal = np.unpackbits(self.bits().view(np.uint8), bitorder="little")
        return [bool(legal[token]) for token in tokens]

    def forced(self) -> list[int]:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        if self._matcher.is_error() or not self._matcher.compute_ff_bytes():
            return []  # the bytes are at hand, the tokens take a hundred times as long
        return list(self._matcher.compute_ff_tokens())

    def _only(self) -> list[int]:
        """The forced tokens, if the first of them is all that the mask allows."""
        found = self.forced()
        if found and self._free and np.unpackbits(self.bits().view(np.uint8)).sum() > 1:
            return []
        return found

    def _make_anew(self) -> None:
        self._matcher = self._start.deep_copy()
        self._matcher.try_consume_tokens(self._tokens)


def _said(matcher: Any) -> str:
    """The message of an error, without the state of the parser behind it."""
    return str(matcher.get_error()).partition("<state>")[0].strip() or "it is in error"


def _text(library: Any, grammar: Grammar, special: Mapping[str, int]) -> str:
    """The grammar in llguidance's own terms."""
    try:
        if grammar.kind == "tool_calls":
            lark = ToolCalls.of_json(grammar.text).lark(special)
            return str(library.grammar_from("lark", lark))
        return str(_FORMS[grammar.kind](library, grammar))
    except (ValueError, TypeError) as error:
        raise wrong(grammar, str(error)) from error


def _json(library: Any, grammar: Grammar) -> Any:
    spaces = _FIXED_SPACES if grammar.fixed_spaces else None
    return library.LLMatcher.grammar_from_json_schema(grammar.schema, overrides=spaces)


def _choice(texts: Sequence[str]) -> str:
    """One terminal: as alternatives of a rule, their time grows with the square of their number."""
    return "start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, texts))


def _lark(text: str) -> str:
    """In a list of grammars: text that begins with a brace would be taken for such a list."""
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def _ebnf(grammar: Grammar) -> str:
    """By the converter alone: `grammar_from` takes a text with a line of Lark for Lark."""
    converter = need("llguidance.gbnf_to_lark", "grammar")
    try:
        return _lark(converter.gbnf_to_lark(grammar.text))
    except Exception as error:  # its errors have no class in common
        raise ValueError(str(error)) from error


_FORMS: Mapping[str, Callable[[Any, Grammar], Any]] = {
    "json_object": _json,
    "json_schema": _json,
    "regex": lambda library, grammar: library.grammar_from("regex", grammar.text),
    "choice": lambda _, grammar: _choice(json.loads(grammar.text)),
    "lark": lambda _, grammar: _lark(grammar.text),
    "ebnf": lambda _, grammar: _ebnf(grammar),
}

"""xgrammar: JSON schemas, regular expressions, Lark grammars and GBNF.

It ignores keywords of a JSON schema that it does not know, and has no limits of its own but that of
recursion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError, first_line, need
from draftwood.grammars.grammar import Grammar, wrong
from draftwood.grammars.matcher import allow, words

_KEPT = 64
"""Most compiled grammars that are kept for each tokenizer."""

_BEFORE = "\n"
"""Text to encode a text behind: some tokenizers add a space to the beginning of a text."""


def compiler(tokenizer: PreTrainedTokenizerBase, size: int) -> XgrammarCompiler:
    """A compiler for a tokenizer and a model with so many rows of logits.

    Raises:
        DraftwoodError: xgrammar is not installed, or cannot read the tokenizer.
    """
    library = need("xgrammar", "xgrammar")
    try:
        vocabulary = library.TokenizerInfo.from_huggingface(tokenizer, vocab_size=size)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DraftwoodError(
            f"xgrammar cannot read this tokenizer ({first_line(error)}): leave backend out, or the "
            "grammar"
        ) from error
    return XgrammarCompiler(library, vocabulary, size, tokenizer.backend_tokenizer)


def check(grammar: Grammar) -> None:
    """Check a grammar before a tokenizer is at hand.

    Raises:
        DraftwoodError: it is wrong, or xgrammar is not installed.
    """
    _parsed(need("xgrammar", "xgrammar"), grammar)


class XgrammarCompiler:
    """Implements :class:`draftwood.grammars.matcher.Compiler`.

    Args:
        library: xgrammar.
        vocabulary: its ``TokenizerInfo``.
        size: the model's rows of logits.
        tokenizer: of the library ``tokenizers``.
    """

    def __init__(self, library: Any, vocabulary: Any, size: int, tokenizer: Any) -> None:
        self._library = library
        self._compiler = library.GrammarCompiler(vocabulary, max_threads=1, cache_enabled=False)
        self._size = size
        self._tokenizer = tokenizer
        self._compiled: Callable[[Grammar], Any] = lru_cache(_KEPT)(self._compile)

    def start(self, grammar: Grammar) -> XgrammarMatcher:
        """See :class:`draftwood.grammars.matcher.Compiler`."""
        matcher = self._library.GrammarMatcher(self._compiled(grammar))
        return XgrammarMatcher(matcher, self._size, self._spelt)

    def _compile(self, grammar: Grammar) -> Any:
        return self._compiler.compile_grammar(_parsed(self._library, grammar))

    def _spelt(self, text: str) -> list[int]:
        """The tokens of a text in the middle of another one."""
        before, whole = (
            self._tokenizer.encode(each, add_special_tokens=False).ids
            for each in (_BEFORE, _BEFORE + text)
        )
        return list(whole[len(before) :]) if whole[: len(before)] == before else []


class XgrammarMatcher:
    """Implements :class:`draftwood.grammars.matcher.Matcher`.

    Args:
        matcher: a ``GrammarMatcher``.
        size: the model's rows of logits.
        spelt: makes tokens of a text.
    """

    error = ""

    def __init__(self, matcher: Any, size: int, spelt: Callable[[str], list[int]]) -> None:
        self._matcher = matcher
        self._ends = [end for end in matcher.stop_token_ids if end < size]
        self._size = size
        self._spelt = spelt

    @property
    def accepting(self) -> bool:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        return bool(self._matcher.is_completed())

    @property
    def complete(self) -> bool:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        return self.accepting and not self.bits().any()

    def accept(self, tokens: Sequence[int]) -> int:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        for place, token in enumerate(tokens):
            if token in self._ends or not self._matcher.accept_token(token):
                return place
        return len(tokens)

    def rollback(self, count: int) -> None:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        if count:
            self._matcher.rollback(count)

    def bits(self) -> NDArray[np.int64]:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        found = np.zeros(words(self._size), dtype=np.int64)
        own = torch.zeros((1, -(-self._size // 32)), dtype=torch.int32, device="cpu")
        self._matcher.fill_next_token_bitmask(own, 0)
        found.view(np.int32)[: own.shape[1]] = own[0].numpy()
        allow(found, self._ends, legal=False)
        return found

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        found = []
        for token in tokens:
            legal = self.accept([token]) == 1
            self.rollback(int(legal))
            found.append(legal)
        return found

    def forced(self) -> list[int]:
        """See :class:`draftwood.grammars.matcher.Matcher`."""
        try:
            text = self._matcher.find_jump_forward_string()
        except UnicodeDecodeError:  # it begins or ends inside of a character
            return []
        return self._spelt(text) if text else []


def _parsed(library: Any, grammar: Grammar) -> Any:
    """The grammar as xgrammar's own object."""
    try:
        return _FORMS[grammar.kind](library.Grammar, grammar)
    except (ValueError, TypeError, RuntimeError) as error:
        raise wrong(grammar, str(error)) from error


def _json(make: Any, grammar: Grammar) -> Any:
    return make.from_json_schema(
        grammar.schema, any_whitespace=not grammar.fixed_spaces, strict_mode=False
    )


def _choice(make: Any, grammar: Grammar) -> Any:
    options = " | ".join(json.dumps(each, ensure_ascii=False) for each in json.loads(grammar.text))
    return make.from_ebnf(f"root ::= {options}")


_FORMS: Mapping[str, Callable[[Any, Grammar], Any]] = {
    "json_object": _json,
    "json_schema": _json,
    "regex": lambda make, grammar: make.from_regex(grammar.text),
    "choice": _choice,
    "lark": lambda make, grammar: make.from_lark(grammar.text),
    "ebnf": lambda make, grammar: make.from_ebnf(grammar.text),
}

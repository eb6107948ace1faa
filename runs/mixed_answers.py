"""Answers to mixed requests: those of a server, and those of each request alone, decoded plainly.

A difference is a near tie if rounding of the logits explains it, as in the benchmark
(:mod:`draftwood.lab.bench.margins`); any other is a fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from draftwood import Delta, Engine, Finished, Request, load
from draftwood.engine.token_bytes import tokens_of
from draftwood.grammars.constraint import constraint_of
from draftwood.lab.bench.margins import Margin, margin
from runs.mixed_requests import Mixed, request_of

REASONS = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}
"""The API's words for the ends of a request."""


@dataclass
class Choice:
    """A choice as a server answered it.

    Attributes:
        text: all of it, or what came before the client went away.
        names: of each token its text, as ``logprobs`` or ``token_sources`` show it.
        reason: for which it ended; None: it did not.
    """

    text: str = ""
    names: list[str] = field(default_factory=list)
    reason: str | None = None

    def add(self, found: Mapping[str, Any]) -> bool:
        """Take a choice of an answer, or what a chunk adds to it; returns whether it had text."""
        part = found.get("message") or found.get("delta") or {}
        text = found.get("text") or part.get("content") or ""
        self.text += text
        logprobs = found.get("logprobs") or {}
        self.names += [each["token"] for each in logprobs.get("content") or ()]
        self.names += logprobs.get("tokens") or ()
        self.names += [each["text"] for each in found.get("token_sources") or ()]
        self.reason = found.get("finish_reason") or self.reason
        return bool(text)


@dataclass
class Answer:
    """A server's answer to a request: its choices, the tokens that it counted, and its error."""

    choices: dict[int, Choice] = field(default_factory=dict)
    tokens: int | None = None
    error: str = ""
    cancelled: bool = False

    def add(self, found: Mapping[str, Any]) -> bool:
        """Take an answer or a chunk of one; returns whether it had text."""
        if "error" in found:
            self.error = str(found["error"])
        usage = found.get("usage")
        self.tokens = usage["completion_tokens"] if usage else self.tokens
        had = [
            self.choices.setdefault(each["index"], Choice()).add(each)
            for each in found.get("choices") or ()
        ]
        return any(had)


@dataclass(frozen=True)
class Plain:
    """A choice alone, decoded plainly; ``names`` as a server shows the tokens."""

    request: Request
    tokens: tuple[int, ...]
    text: str
    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Difference:
    """A difference of an answer from plain decoding's.

    Attributes:
        choice: the choice in which it is.
        what: differs, in words.
        position: the first token that differs; None: no token does.
        expected, found: there; for a token its text.
        margin: between the two tokens, if the server's is known.
    """

    choice: int
    what: str
    position: int | None = None
    expected: str | None = None
    found: str | None = None
    margin: Margin | None = None

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it."""
        return self.margin is not None and self.margin.near_tie


class Alone:
    """Decodes one request at a time, plainly, in float32.

    Args:
        model: name of a model, its directory or its hub id.
    """

    def __init__(self, model: str) -> None:
        self._name = model
        loaded = load(model, dtype="float32")
        self.tokenizer, self._eos = loaded.tokenizer, loaded.eos
        self._engine = Engine(loaded.model, "ar", loaded.tokenizer, max_batch=1)
        self._size = self._engine.target.info.vocab_size
        self._tokens = tokens_of(loaded.tokenizer, self._size)

    @cached_property
    def _stock(self) -> Any:
        return load(self._name, dtype="float32")

    def decode(self, asked: Mixed, choice: int) -> Plain:
        """A choice of a request."""
        request = request_of(asked, choice, self.tokenizer, self._eos)
        events = list(self._engine.stream([request]))
        [done] = [e.completion.checked() for e in events if isinstance(e, Finished)]
        names = [piece for e in events if isinstance(e, Delta) for piece in e.pieces]
        if "logprobs" in asked.body:
            names = [*map(self._tokens.spelling, done.tokens)]
        return Plain(request, done.tokens, done.text, tuple(names), REASONS[done.reason])

    def margin(self, plain: Plain, position: int, name: str) -> Margin | None:
        """Margin between the token at a place and the nearest that a server could show so."""
        between = plain.tokens[position]
        spelling = self._tokens.spelling
        others = [t for t in range(self._size) if t != between and spelling(t) == name]
        tokens = (*plain.request.ids, *plain.tokens[:position])
        found = [
            margin(
                self._stock,
                tokens,
                (between, other),
                plain.request.sampling,
                generated=position,
                legal=self._legal(plain, position),
            )
            for other in others
        ]
        return min(found, key=lambda each: each.gap, default=None)

    def _legal(self, plain: Plain, position: int) -> torch.Tensor:
        """The tokens that the request's form and least length allow at a place, bool ``[V]``."""
        request, legal = plain.request, torch.ones(self._size, dtype=torch.bool)
        if request.grammar is not None:
            rule = constraint_of(request.grammar, self.tokenizer, self._size, request.ends)
            rule.advance(plain.tokens[:position])
            bits = np.unpackbits(rule.bits(()).view(np.uint8), bitorder="little")
            legal &= torch.from_numpy(bits[: self._size].astype(bool))
        if position < request.min_new_tokens:
            legal[sorted(request.ends)] = False
        return legal


def differences(asked: Mixed, answer: Answer, alone: Alone) -> list[Difference]:
    """Those of all choices of a request, at most one of each."""
    if answer.error:
        return [Difference(0, "an error", found=answer.error)]
    count = asked.body.get("n", 1)
    if sorted(answer.choices) != [*range(count)]:
        return [Difference(0, f"choices: {sorted(answer.choices)} of {count}")]
    plain = [alone.decode(asked, choice) for choice in range(count)]
    pairs = [(i, answer.choices[i], plain[i]) for i in range(count)]
    found = [_difference(*pair, alone, cut=answer.cancelled) for pair in pairs]
    told = [each for each in found if each is not None]
    total = sum(len(each.tokens) for each in plain)
    if not told and answer.tokens not in (None, total):
        told.append(Difference(0, "number of tokens", None, str(total), str(answer.tokens)))
    return told


def _difference(
    number: int, got: Choice, plain: Plain, alone: Alone, *, cut: bool
) -> Difference | None:
    """The first difference of a choice; ``cut``: it is only the beginning of one."""
    wanted: Sequence[str] = plain.names[: len(got.names)] if cut else plain.names
    for place, (expected, found) in enumerate(zip_longest(wanted, got.names)):
        if expected == found:
            continue
        known = expected is not None and found is not None
        between = alone.margin(plain, place, found) if known else None
        return Difference(number, "a token", place, expected, found, between)
    text = plain.text[: len(got.text)] if cut else plain.text
    if text != got.text:
        return Difference(number, "the text", None, plain.text, got.text)
    if not cut and plain.reason != got.reason:
        return Difference(number, "the reason of the end", None, plain.reason, got.reason)
    return None

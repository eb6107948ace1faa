"""Answers of a server, read from the JSON of completions, of chats and of their streams.

Log probabilities come in two forms, columns (text completions of OpenAI and vLLM) and a list of
entries (chats, and llama.cpp's text completions); both are read wherever they occur.
"""

import codecs
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

_SPELT = re.compile(r"bytes:((?:\\x[0-9a-fA-F]{2})+)")
"""How OpenAI writes a token that is no whole character, as in ``bytes:\\xe2``."""


class MalformedError(Exception):
    """What a server sent is no answer."""


@dataclass(frozen=True)
class Token:
    """A token of an answer.

    Attributes:
        text: as the server spells it.
        logprob: natural logarithm of its probability, as reported.
        top: the likeliest tokens at its place with theirs, in the order of the answer.
        start: characters of the answer's text before it.
        ordered: whether ``top`` came as a list, whose order means something.
    """

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    start: int = 0
    ordered: bool = False


@dataclass(frozen=True)
class Choice:
    """One answer to a prompt.

    Attributes:
        text: without the prompt.
        reason: why it ended, as reported.
        tokens: with log probabilities; empty if the server reported none.
    """

    text: str
    reason: str | None = None
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a request returned.

    Attributes:
        choices: in the order of their indices.
        indices: as the server numbered them, in that order.
        generated: tokens of all choices, as reported; None: not reported.
        drafted: drafted tokens, likewise.
        accepted: accepted drafted tokens, likewise.
    """

    choices: tuple[Choice, ...]
    indices: tuple[int, ...] = (0,)
    generated: int | None = None
    drafted: int | None = None
    accepted: int | None = None

    @property
    def first(self) -> Choice:
        """The first choice."""
        return self.choices[0]


def answer_of(body: Any) -> Answer:
    """An answer in one piece.

    Raises:
        MalformedError: it has no choices, or they lack what the API says.
    """
    try:
        found = sorted(body["choices"], key=lambda each: int(each.get("index", 0)))
        if not found:
            raise MalformedError("an answer has no choices")
        return Answer(
            tuple(map(_choice, found)),
            tuple(int(each.get("index", 0)) for each in found),
            _count((body.get("usage") or {}).get("completion_tokens")),
            *_drafts(body, found),
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise MalformedError(f"an answer is not of the API's form: {error!r}") from error


def streamed(chunks: Iterable[Any]) -> Answer:
    """The answer that a stream's chunks add up to; of the first choice alone.

    Raises:
        MalformedError: a chunk is not of the API's form.
    """
    text, reason, generated = "", None, None
    try:
        for chunk in chunks:
            if chunk.get("error"):
                raise MalformedError(f"a stream has an error: {chunk['error']}")
            generated = _count((chunk.get("usage") or {}).get("completion_tokens")) or generated
            for each in chunk.get("choices") or ():
                text += _text(each)
                reason = each.get("finish_reason") or reason
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedError(f"a chunk is not of the API's form: {error!r}") from error
    return Answer((Choice(text, reason),), generated=generated)


def _choice(found: Mapping[str, Any]) -> Choice:
    logprobs = found.get("logprobs") or {}
    if logprobs.get("content") is not None:
        tokens = _entries(logprobs["content"])
    else:
        tokens = _columns(logprobs)
    return Choice(_text(found), found.get("finish_reason"), tokens)


def _text(found: Mapping[str, Any]) -> str:
    """The text of a choice or of a chunk, reasoning included."""
    if "text" in found:
        return str(found["text"] or "")
    part = found.get("message") or found.get("delta") or {}
    reasoning = part.get("reasoning_content") or part.get("reasoning") or ""
    return str(reasoning) + str(part.get("content") or "")


def _columns(found: Mapping[str, Any]) -> tuple[Token, ...]:
    texts: Sequence[str] = found.get("tokens") or ()
    own: Sequence[float | None] = found.get("token_logprobs") or ()
    if len(own) != len(texts) or any(each is None for each in own):
        return ()
    tops: Sequence[Mapping[str, float] | None] = found.get("top_logprobs") or [None] * len(texts)
    offsets: Sequence[int] = found.get("text_offset") or ()
    if len(offsets) == len(texts):
        starts = [each - offsets[0] for each in offsets]
    else:
        starts = _starts([spelt(text) for text in texts])
    return tuple(
        Token(str(text), float(logprob or 0.0), _pairs((top or {}).items()), start)
        for text, logprob, top, start in zip(texts, own, tops, starts, strict=True)
    )


def _entries(found: Sequence[Mapping[str, Any]]) -> tuple[Token, ...]:
    if any(each.get("logprob") is None for each in found):
        return ()
    pieces = [
        spelt(each["token"]) if each.get("bytes") is None else bytes(each["bytes"])
        for each in found
    ]
    return tuple(
        Token(
            str(each["token"]),
            float(each["logprob"]),
            _pairs((top["token"], top["logprob"]) for top in each.get("top_logprobs") or ()),
            start,
            ordered=True,
        )
        for each, start in zip(found, _starts(pieces), strict=True)
    )


def _pairs(found: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple((str(text), float(logprob)) for text, logprob in found if logprob is not None)


def spelt(token: str) -> bytes:
    """The bytes of a token as a server spells it."""
    found = _SPELT.fullmatch(token)
    return bytes.fromhex(found[1].replace("\\x", "")) if found else token.encode()


def _starts(pieces: Sequence[bytes]) -> list[int]:
    """Whole characters before each piece."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [0, *accumulate(len(decoder.decode(piece)) for piece in pieces)][: len(pieces)]


def _drafts(
    body: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]
) -> tuple[int | None, int | None]:
    """Drafted and accepted tokens: as Draftwood and vLLM report them, or as llama.cpp does."""
    stats = [each["speculative_decoding_stats"] for each in choices if _has_stats(each)]
    if stats:
        drafted = sum(each["num_draft_tokens"] for each in stats)
        return drafted, sum(each["num_accepted_draft_tokens"] for each in stats)
    timings = body.get("timings") or {}
    return _count(timings.get("draft_n")), _count(timings.get("draft_n_accepted"))


def _has_stats(choice: Mapping[str, Any]) -> bool:
    return bool(choice.get("speculative_decoding_stats"))


def _count(value: Any) -> int | None:
    whole = isinstance(value, int | float) and math.isfinite(value)
    return int(value) if whole else None

"""Answers of chat models, split into text, reasoning and tool calls.

The rules of each family of models are transformers' own (its response templates). A model without
one answers with text alone.
"""

import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from draftwood.errors import DraftwoodError

logger = logging.getLogger(__name__)

_STEPS = re.compile(r"[\w\s]*[^\w\s]|[\w\s]+")
"""Parts of a piece, cut where the delimiter of a call may end."""


@dataclass(frozen=True)
class Text:
    """Text of the answer."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """Text of the reasoning before the answer."""

    text: str


@dataclass(frozen=True)
class Call:
    """A tool call; ``arguments`` is JSON text."""

    name: str
    arguments: str
    id: str


Part: TypeAlias = Text | Reasoning | Call


class AnswerParser(Protocol):
    """Splits the text of one answer as it comes."""

    def feed(self, piece: str) -> list[Part]:
        """The parts that became certain with a piece of text."""

    def finish(self) -> list[Part]:
        """What was held back, once no text will follow."""


MakeParser: TypeAlias = Callable[[str, Sequence[dict[str, Any]]], AnswerParser]
"""Makes the parser of an answer from the prompt's text and the tools that the model may call."""


class PlainAnswer:
    """An answer that is text alone."""

    def feed(self, piece: str) -> list[Part]:
        """See :class:`AnswerParser`."""
        return [Text(piece)] if piece else []

    def finish(self) -> list[Part]:
        """See :class:`AnswerParser`."""
        return []


class TemplateAnswer:
    """An answer that is parsed by a response template.

    If it does not keep to the template, such as a tool call whose arguments are not JSON, or one of
    an answer that has no tools, the rest is text as the model wrote it: nothing is dropped.

    Args:
        parser: transformers' ``ResponseParser``.
        parts: makes parts of its events.
        held: the end of the prompt, which the parser gives out with the first text: white space,
            as a delimiter may begin with it.
    """

    def __init__(
        self, parser: Any, parts: Callable[[list[Any]], list[Part]], held: str = ""
    ) -> None:
        self._parser: Any | None = parser
        self._parts = parts
        self._held = held
        self._rest = ""  # text of which no part has been made

    def feed(self, piece: str) -> list[Part]:
        """See :class:`AnswerParser`."""
        return [part for step in _STEPS.findall(piece) for part in self._fed(step)]

    def finish(self) -> list[Part]:
        """See :class:`AnswerParser`."""
        parser = self._parser
        return self._events(lambda: parser.finalize()[1], "") if parser else []

    def _fed(self, step: str) -> list[Part]:
        parser = self._parser
        return self._events(lambda: parser.feed(step), step) if parser else [Text(step)]

    def _events(self, events: Callable[[], list[Any]], piece: str) -> list[Part]:
        self._rest += piece
        try:
            parts = self._parts(events())
        except Exception as error:  # noqa: BLE001 - the model may write anything
            logger.info("an answer does not keep to the response template: %s", error)
            self._parser = None
            return [Text(self._rest)] if self._rest else []
        found: list[Part] = []
        for part in parts:
            if isinstance(part, Call):  # this piece has ended it
                self._held = ""
                self._rest = piece if piece[-1:].isalnum() or piece[-1:].isspace() else ""
                found.append(part)
            elif own := self._own(part.text):
                before, begun, after = self._rest.partition(own)
                self._rest = after if begun else before
                found.append(replace(part, text=own))
        return found

    def _own(self, text: str) -> str:
        """The text of a part without what the prompt has of it."""
        held, self._held = self._held, ""
        if not (held + self._rest).startswith(text):  # a delimiter has taken it
            return text
        self._held = held[len(text) :]
        return text[len(held) :]


def response_template(tokenizer: Any, model: Any) -> dict[str, Any] | None:
    """The response template of a model's family; None if transformers knows none."""
    try:
        from transformers.cli.serving import utils
        from transformers.utils import chat_parsing  # noqa: F401 - from 5.23 on
    except ImportError:
        return None
    found: dict[str, Any] | None = utils.get_response_template(tokenizer, model)
    return found


def parser_maker(tokenizer: Any, model: Any) -> MakeParser | None:
    """How answers of a model are parsed; None if they are text alone."""
    template = response_template(tokenizer, model)
    if template is None:
        return None
    from transformers.cli.serving import utils
    from transformers.utils.chat_parsing import ResponseParser

    def make(prompt: str, tools: Sequence[dict[str, Any]]) -> AnswerParser:
        def parts(events: list[Any]) -> list[Part]:
            chunks = utils.response_events_to_chunks(events)
            return [_part(item, utils, calls=bool(tools)) for item in chunks]

        parser = ResponseParser(template, prefix=prompt, tools=[*tools])
        return TemplateAnswer(parser, parts, _held(ResponseParser(template, prefix=prompt), parts))

    return make


def _held(parser: Any, parts: Callable[[list[Any]], list[Part]]) -> str:
    """The end of the prompt that a parser has read and keeps back."""
    try:
        left = parts(parser.finalize()[1])
    except Exception:  # noqa: BLE001 - the prompt may end within anything
        return ""
    return "".join(part.text for part in left if not isinstance(part, Call))


def _part(item: Any, utils: Any, *, calls: bool) -> Part:
    """A part of an answer; ``calls``: whether there are tools to call.

    Raises:
        DraftwoodError: it cannot be one.
    """
    if isinstance(item, utils.ToolCall):
        if not calls:
            raise DraftwoodError("it calls a tool, and has none")
        (item.name + item.arguments).encode()  # a name may be no text, and text half a character
        return Call(item.name, item.arguments, f"call_{uuid.uuid4().hex[:24]}")
    if isinstance(item, utils.ReasoningText):
        return Reasoning(str(item))
    if not isinstance(item, str):
        raise DraftwoodError(f"transformers' parser returned {type(item).__name__}")
    return Text(item)

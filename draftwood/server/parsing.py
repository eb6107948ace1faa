"""Answers of chat models, split into text, reasoning and tool calls.

The rules of each family of models are transformers' own (its response templates). A model without
one answers with text alone.
"""

import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

    If it does not keep to the template, such as a tool call whose arguments are not JSON, the rest
    is text as the model wrote it: nothing is dropped.

    Args:
        parser: transformers' ``ResponseParser``.
        parts: makes parts of its events.
    """

    def __init__(self, parser: Any, parts: Callable[[list[Any]], list[Part]]) -> None:
        self._parser: Any | None = parser
        self._parts = parts
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
        for part in parts:
            if isinstance(part, Call):  # this piece has ended it
                self._rest = piece if piece[-1:].isalnum() or piece[-1:].isspace() else ""
                continue
            before, found, after = self._rest.partition(part.text)
            self._rest = after if found else before
        return parts


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

    def parts(events: list[Any]) -> list[Part]:
        return [_part(item, utils) for item in utils.response_events_to_chunks(events)]

    def make(prompt: str, tools: Sequence[dict[str, Any]]) -> AnswerParser:
        parser = ResponseParser(template, prefix=prompt, tools=[*tools])
        return TemplateAnswer(parser, parts)

    return make


def _part(item: Any, utils: Any) -> Part:
    if isinstance(item, utils.ToolCall):
        return Call(item.name, item.arguments, f"call_{uuid.uuid4().hex[:24]}")
    if isinstance(item, utils.ReasoningText):
        return Reasoning(str(item))
    if not isinstance(item, str):
        raise DraftwoodError(f"transformers' parser returned {type(item).__name__}")
    return Text(item)

"""Answers of chat models, split into text, reasoning and tool calls.

The rules of each family of models are transformers' own (its response templates). A model without
one answers with text alone.
"""

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import msgspec

from draftwood.errors import DraftwoodError

logger = logging.getLogger(__name__)

_STEPS = re.compile(r"[\w\s]*[^\w\s]|[\w\s]+")
"""Parts of a piece, cut where the delimiter of a call may end."""


_REASONING, _CALLS, _CONTENT = "reasoning_content", "tool_calls", "content"
"""Fields of a response template."""


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

    If it does not keep to the template, such as a tool call whose arguments are not JSON, or one
    that is cut off, the rest is text as the model wrote it: nothing is dropped. Reasoning comes
    before the answer: once that has begun, the tags of a thought are text that the answer is about.

    Args:
        parser: transformers' ``ResponseParser``.
        parts: makes parts of its events.
        held: the end of the prompt, which the parser gives out with the first text: white space,
            as a delimiter may begin with it.
        later: makes the parser of what follows the beginning of the answer.
        closing: regular expression of a call's end, for a form in which the parser takes a call
            that is cut off for a whole one; None: it does not.
    """

    def __init__(
        self,
        parser: Any,
        parts: Callable[[list[Any]], list[Part]],
        held: str,
        later: Callable[[], Any],
        closing: Any = None,
    ) -> None:
        self._parser: Any | None = parser
        self._parts = parts
        self._held = held
        self._later: Callable[[], Any] | None = later
        self._closing = closing
        self._rest = ""  # text of which no part has been made

    def feed(self, piece: str) -> list[Part]:
        """See :class:`AnswerParser`."""
        return [part for step in _STEPS.findall(piece) for part in self._fed(step)]

    def finish(self) -> list[Part]:
        """See :class:`AnswerParser`."""
        parser, rest = self._parser, self._rest
        if parser is None:
            return []
        found = self._events(lambda: parser.finalize()[1], "")
        cut = self._closing is not None and not self._closing.search(rest)
        return [Text(rest)] if cut and any(isinstance(part, Call) for part in found) else found

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
                self._held, self._rest = "", self._behind_call(piece)
                found.append(part)
            elif own := self._own(part.text):
                before, begun, after = self._rest.partition(own)
                self._rest = after if begun else before
                found.append(replace(part, text=own))
        if any(isinstance(part, Text) and not part.text.isspace() for part in found):
            found += self._answer_begins()
        return found

    def _behind_call(self, piece: str) -> str:
        """The text behind a call that a piece has ended."""
        if self._closing is None:
            return piece if piece[-1:].isalnum() or piece[-1:].isspace() else ""
        # Whether a tag ends there, the parser may know only by the text behind it.
        ends = [match.end() for match in self._closing.finditer(self._rest)]
        return self._rest[ends[-1] :] if ends else ""

    def _answer_begins(self) -> list[Part]:
        """Go on with the parser of an answer's text, which reads what the first one kept back."""
        if self._later is None:
            return []
        parser, self._later, rest, self._rest = self._later(), None, self._rest, ""
        self._parser = parser
        return self._events(lambda: parser.feed(rest), rest)

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


def tag_tokens(tokenizer: Any, template: Mapping[str, Any] | None) -> frozenset[int]:
    """The special tokens that reasoning and calls are written with, by a response template."""
    if template is None:
        return frozenset()
    fields = [field for name, field in template["fields"].items() if name != _CONTENT]
    spelt = [*_texts(fields)]
    return frozenset(
        token
        for token, added in tokenizer.added_tokens_decoder.items()
        if added.special and _named(added.content, spelt)
    )


def _named(token: str, texts: Sequence[str]) -> bool:
    """Whether one of some texts and regular expressions has a token in it."""
    return any(token in text or re.escape(token) in text for text in texts)


def _texts(found: Any) -> Iterator[str]:
    """All texts in a template or a part of it."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, Mapping):
        for each in found.values():
            yield from _texts(each)
    elif isinstance(found, Sequence):
        for each in found:
            yield from _texts(each)


def parser_maker(tokenizer: Any, model: Any) -> MakeParser | None:
    """How answers of a model are parsed; None if they are text alone."""
    template = response_template(tokenizer, model)
    if template is None:
        return None
    template = _whole_values(_endless(template))
    closing = _closing(template["fields"].get(_CALLS, {}))
    from transformers.cli.serving import utils

    from draftwood.server.call_parser import CallParser

    def parts(events: list[Any]) -> list[Part]:
        return [_part(item, utils) for item in utils.response_events_to_chunks(events)]

    def make(prompt: str, tools: Sequence[dict[str, Any]]) -> AnswerParser:
        own = template if tools else _without(template, _CALLS)
        # JSON has types. Values of XML get theirs from the schemas.
        typed = template["fields"].get(_CALLS, {}).get("content") == "json"
        schemas: list[Any] = [] if typed else [*tools]
        begun = _begun(template, prompt)
        return TemplateAnswer(
            CallParser(own, prefix=begun, tools=schemas),
            parts,
            _held(CallParser(own, prefix=begun), parts),
            lambda: CallParser(_without(own, _REASONING), prefix="", tools=schemas),
            closing,
        )

    return make


def _without(template: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A response template without a field."""
    fields = {key: field for key, field in template["fields"].items() if key != name}
    return {**template, "fields": fields}


def _endless(template: Mapping[str, Any]) -> dict[str, Any]:
    """A response template in which nothing ends the text of an answer.

    The tokens that do are not in it, and what only looks like them is text.
    """
    fields = dict(template["fields"])
    if _CONTENT in fields:
        text = fields[_CONTENT].items()
        fields[_CONTENT] = {key: each for key, each in text if not key.startswith("close")}
    return {**template, "fields": fields}


def _whole_values(template: Mapping[str, Any]) -> dict[str, Any]:
    """A response template in which values in XML keep their white space.

    The form has one line break before a value and one behind it, which are no part of it.
    """
    fields = dict(template["fields"])
    given = fields.get(_CALLS, {}).get("content_args", {})
    if "tag_pattern" in given:
        around = given["tag_pattern"].replace(r"\s*(?P<value>.*?)\s*", r"\n?(?P<value>.*?)\n?")
        fields[_CALLS] = {**fields[_CALLS], "content_args": {**given, "tag_pattern": around}}
    return {**template, "fields": fields}


def _closing(calls: Mapping[str, Any]) -> Any:
    """What ends a call by its field of a response template; None where JSON shows its end."""
    if calls.get("content") == "json":
        return None
    import regex  # type: ignore[import-untyped]  # which transformers compiles these with

    literals, pattern = calls.get("close") or (), calls.get("close_pattern")
    if pattern is None and literals:
        literals = [literals] if isinstance(literals, str) else literals
        pattern = "|".join(map(re.escape, literals))
    return None if pattern is None else regex.compile(pattern, regex.DOTALL)


def _begun(template: Mapping[str, Any], prompt: str) -> str:
    """The part of a prompt that may have begun the answer.

    Of a prompt that is not in the form that the template knows, with no anchor before the answer,
    at most the beginning of a thought: all else is what others have said.
    """
    anchors = template.get("start_anchor") or ()
    anchors = [anchors] if isinstance(anchors, str) else anchors
    if any(anchor in prompt for anchor in anchors):
        return prompt
    opening = template["fields"].get(_REASONING, {}).get("open")
    if isinstance(opening, str) and prompt.rstrip().endswith(opening.rstrip()):
        return prompt[prompt.rindex(opening.rstrip()) :]
    return ""


def _held(parser: Any, parts: Callable[[list[Any]], list[Part]]) -> str:
    """The end of the prompt that a parser has read and keeps back."""
    try:
        left = parts(parser.finalize()[1])
    except Exception:  # noqa: BLE001 - the prompt may end within anything
        return ""
    return "".join(part.text for part in left if not isinstance(part, Call))


def _part(item: Any, utils: Any) -> Part:
    """A part of an answer.

    Raises:
        DraftwoodError: it cannot be one.
        msgspec.DecodeError: a call's arguments are not JSON.
    """
    if isinstance(item, utils.ToolCall):
        msgspec.json.decode(item.arguments)
        # transformers escapes all that is not ASCII, which some clients show as it is.
        arguments = json.dumps(json.loads(item.arguments), ensure_ascii=False)
        (item.name + arguments).encode()  # a name may be no text, and text half a character
        return Call(item.name, arguments, f"call_{uuid.uuid4().hex[:24]}")
    if isinstance(item, utils.ReasoningText):
        return Reasoning(str(item))
    if not isinstance(item, str):
        raise DraftwoodError(f"transformers' parser returned {type(item).__name__}")
    return Text(item)

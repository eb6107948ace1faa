"""transformers' parser of answers, which takes a closing tag within a call's string for text."""

import re
from typing import Any

from transformers.utils.chat_parsing import ResponseParser

_ESCAPED = re.compile(r"\\.", re.DOTALL)


class CallParser(ResponseParser):
    """Parses an answer by a response template.

    A call is JSON between tags. Its arguments may hold the closing tag, for example where a model
    writes about tags: there the call goes on.
    """

    _ends = False

    def finalize(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """End the answer: a call that still goes on is none."""
        self._ends = True
        found: tuple[dict[str, Any], list[dict[str, Any]]] = super().finalize()
        return found

    def _close_current(self, events: list[dict[str, Any]]) -> None:
        tag = None if self._ends else self._tag()
        if tag is None:
            super()._close_current(events)
        else:
            self._body += tag

    def _tag(self) -> str | None:
        """The closing tag just read, if it is within a string of JSON."""
        field = None if self._current is None else self._spec.fields[self._current]
        if field is None or field.content != "json" or field.content_args.get("string_delims"):
            return None  # strings of another form, such as Gemma's
        if not within_string(self._body):
            return None
        read = self._buffer[: self._pos]
        return next((tag for tag in field.close_literals or () if read.endswith(tag)), None)


def within_string(text: str) -> bool:
    """Whether JSON that begins like this goes on within a string, in which no line can end."""
    *_, last = pieces = _ESCAPED.sub("", text).split('"')
    return len(pieces) % 2 == 0 and "\n" not in last

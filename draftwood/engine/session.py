"""A chat whose turns compute only what is new."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from draftwood.engine.arguments import Makes
from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Event, Finished, Request, checked
from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.models.chat_template import apply_template
from draftwood.protocols import Target


class Session:
    """A chat with a model.

    The keys and values of the chat are kept between its turns. A turn caches the tokens of the new
    message only, as far as the chat template leaves those before it as they were.

    Args:
        target: as for :class:`draftwood.Engine`.
        tokenizer: the model's, with a chat template.
        method: as for :class:`draftwood.Engine`.
        system: the first message, of role ``"system"``.
        memory: bytes for the chat's keys and values between turns, or a text such as ``"1GB"``.

    Attributes:
        messages: so far, as a chat template takes them; may be changed between turns.

    Raises:
        DraftwoodError: the tokenizer has no chat template, or as :class:`draftwood.Engine` does.
    """

    def __init__(
        self,
        target: Target | PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        method: Method | Makes | str = "auto",
        *,
        system: str | None = None,
        memory: int | str = "1GB",
    ) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise DraftwoodError(
                "a session needs a chat template, and this tokenizer has none: set "
                "tokenizer.chat_template, or use draftwood.Engine with plain text"
            )
        self._tokenizer = tokenizer
        self._engine = Engine(target, method, tokenizer, max_batch=1, prefix_cache=memory)
        self._turn: Generator[Event, None, None] | None = None
        self.messages: list[dict[str, Any]] = []
        if system is not None:
            self.messages.append({"role": "system", "content": system})

    @property
    def note(self) -> str:
        """A line about what the method takes that is shipped for the model; empty without."""
        return self._engine.note

    def send(self, text: str, **settings: Any) -> Completion:
        """Send a message and return the answer, which becomes a message of its own.

        Args:
            text: of the message.
            settings: of the :class:`draftwood.Request`, such as ``max_new_tokens``.

        Raises:
            DraftwoodError: a setting is wrong, or the request failed. The chat is as it was before.
        """
        *_, last = self.stream(text, **settings)
        assert isinstance(last, Finished)
        return last.completion

    def stream(self, text: str, **settings: Any) -> Generator[Event, None, None]:
        """Send a message and yield the events of the answer, the last of which is its end.

        The message and its answer are added to the chat at its end, and not if the iterator is
        closed before. The next turn closes the iterator of one that has not ended.

        Raises:
            DraftwoodError: see :meth:`send`; also if the chat template refuses the chat.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        encoded: Any = apply_template(
            self._tokenizer, asked, add_generation_prompt=True, return_dict=True
        )
        try:
            request = replace(Request(encoded["input_ids"]), **settings)
        except TypeError as error:
            raise DraftwoodError(f"a request has no such setting: {error}") from error
        if self._turn is not None:
            self._turn.close()
        self._turn = turn = self._engine.stream([request])
        try:
            for event in checked(turn):
                if isinstance(event, Finished):
                    answer = {"role": "assistant", "content": event.completion.text}
                    self.messages = [*asked, answer]
                yield event
        finally:
            turn.close()

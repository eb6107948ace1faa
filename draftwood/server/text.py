"""Text to tokens and back, beside the engine.

The engine's thread uses its tokenizer all the time, and tokenizers do not promise to be safe across
threads. So the server has a copy, which one worker thread uses; long prompts do not hold up the
event loop.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any, TypeVar

from transformers import PreTrainedTokenizerBase

from draftwood.engine.token_bytes import Tokens, tokens_of
from draftwood.errors import DraftwoodError
from draftwood.models.chat_template import apply_template
from draftwood.server.errors import bad_request

T = TypeVar("T")

_TOKEN_TEXTS = 65_536
"""Tokens whose texts are remembered."""


class TextWorker:
    """Encodes prompts, applies the chat template, and decodes single tokens.

    Args:
        tokenizer: copied.
        template: chat template, in the place of the tokenizer's own.
        vocabulary: number of the model's tokens.
        tokens: the bytes of its tokens, if they are known.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template: str | None,
        vocabulary: int,
        tokens: Tokens | None = None,
    ) -> None:
        self.tokenizer: Any = deepcopy(tokenizer)
        if template is not None:
            self.tokenizer.chat_template = template
        self.vocabulary = vocabulary
        self._tokens = tokens or tokens_of(self.tokenizer, vocabulary)
        self._worker = ThreadPoolExecutor(1, "draftwood-text")
        self._aside: asyncio.Future[TextWorker] | None = None
        self._longest = 0
        self.token_text = lru_cache(_TOKEN_TEXTS)(self._token_text)

    async def run(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Call a function on the worker thread, where the tokenizer may be used."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, partial(function, *args, **named))

    async def aside(self) -> "TextWorker":
        """Another worker, whose work no prompt waits for; made when it is first asked for."""
        if self._aside is None or _failed(self._aside):
            made = self.run(TextWorker, self.tokenizer, None, self.vocabulary, self._tokens)
            self._aside = asyncio.ensure_future(made)
        return await asyncio.shield(self._aside)  # who asks first may leave

    def close(self) -> None:
        """Let the worker threads end."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        if self._aside is not None and self._aside.done() and not _failed(self._aside):
            self._aside.result().close()

    @property
    def template(self) -> str | None:
        """The chat template's text; None without one."""
        found = self.tokenizer.chat_template
        return "\n".join(map(str, found.values())) if isinstance(found, dict) else found

    def template_reads(self, name: str) -> bool:
        """Whether the chat template has a word."""
        return re.search(rf"\b{re.escape(name)}\b", self.template or "") is not None

    def check_length(self, text: str, context: int, field: str) -> None:
        """Refuse a text that cannot be so few tokens, without the time that encoding it takes.

        Raises:
            ApiError: it is longer than so many of the longest tokens.
        """
        if len(text) <= context:
            return
        if not self._longest:
            self._longest = max(len(self.token_bytes(each)) for each in range(self.vocabulary))
        if len(text.encode()) > context * self._longest:
            raise bad_request(
                f"the prompt has {len(text)} characters, more than the {context} tokens of the "
                "context can hold: shorten the prompt",
                field,
                "context_length_exceeded",
            )

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text; ``special``: with those that the tokenizer puts around it."""
        found = self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return list(found)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        """A conversation as the chat template writes it.

        Args:
            messages: of the conversation.
            tools: functions that the model may call.
            prompt: whether the template begins an answer.
            variables: further ones of the template.

        Raises:
            ApiError: the template raises an exception.
        """
        try:
            return str(
                apply_template(
                    self.tokenizer,
                    messages,
                    tools=tools,
                    tokenize=False,
                    add_generation_prompt=prompt,
                    **variables,
                )
            )
        except DraftwoodError as error:
            raise bad_request(str(error), "messages") from error

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
        return str(self.tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False))

    def names(self, tokens: Sequence[int]) -> list[str]:
        """The tokens' names in the vocabulary; empty for ids that the tokenizer lacks."""
        return [name or "" for name in self.tokenizer.convert_ids_to_tokens(list(tokens))]

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to a text; a special token's name."""
        return self._tokens.content(token)

    def _token_text(self, token: int) -> tuple[str, list[int]]:
        """A token as OpenAI's API spells it, and its bytes."""
        return self._tokens.spelling(token), list(self._tokens.content(token))


def _failed(work: asyncio.Future[Any]) -> bool:
    return work.done() and (work.cancelled() or work.exception() is not None)

"""Token ids of a prompt's next turn, after the answers so far.

With the model's chat template a prompt is the user's turn. Without one, a plain prompt is its text,
and a dialogue a transcript with ``User:`` and ``Assistant:`` paragraphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.prompts import Prompt
from draftwood.models.chat_template import apply_template


@dataclass(frozen=True)
class TurnContext:
    """Token ids to continue, and whether older tokens were cut off."""

    ids: tuple[int, ...]
    cut: bool = False


class Contexts:
    """Encodes every turn of every prompt in the same way for all methods.

    Args:
        tokenizer: the target's tokenizer.
        context_limit: longest sequence of the target, in tokens.
        max_new_tokens: longest answer, in tokens.
        chat: use the chat template for all prompts (True), for none (False), or, if the model has
            one, for all but texts to be continued (None).
        truncate: number of last tokens to keep of longer contexts; None refuses them.

    Raises:
        DraftwoodError: ``chat`` is True and there is no template, or an answer does not fit.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        context_limit: int,
        max_new_tokens: int,
        *,
        chat: bool | None = None,
        truncate: int | None = None,
    ) -> None:
        if chat and not tokenizer.chat_template:
            raise DraftwoodError("this model has no chat template: leave --chat out")
        self._tokenizer = tokenizer
        self._max_new_tokens = max_new_tokens
        self._chat = chat
        self._truncate = truncate
        self._room = context_limit - max_new_tokens
        if self._room < (truncate or 1):
            raise DraftwoodError(
                f"{truncate or 1} prompt tokens and {max_new_tokens} new ones exceed the model's "
                f"context of {context_limit}: lower --max-new-tokens or --truncate"
            )
        self._most = min(truncate or self._room, self._room)

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Refuse prompts that may exceed the context limit with answers of full length.

        Raises:
            DraftwoodError: a prompt has no tokens, the chat template refuses it, or it is too long
                and ``truncate`` is None.
        """
        for prompt in prompts:
            count = self.most_tokens(prompt)
            if count > self._room and self._truncate is None:
                raise DraftwoodError(
                    f"prompt {prompt.id!r} takes up to {count} tokens, and the model's context "
                    f"has {self._room} beside the answer: cut prompts with --truncate N"
                )

    def most_tokens(self, prompt: Prompt) -> int:
        """Length of the prompt's last context if every answer has its full length.

        Raises:
            DraftwoodError: the prompt has no tokens, or the chat template refuses it.
        """
        earlier = len(prompt.turns) - 1
        count = len(self._encode(prompt, [""] * earlier))
        if not count:
            raise DraftwoodError(f"prompt {prompt.id!r} has no tokens: give it some text")
        return count + earlier * self._max_new_tokens

    def after(self, prompt: Prompt, answers: Sequence[Sequence[int]]) -> TurnContext:
        """Context of the turn after these answers (token ids)."""
        decode = self._tokenizer.decode
        texts = [str(decode(list(ids), skip_special_tokens=True)).strip() for ids in answers]
        ids = self._encode(prompt, texts)
        # Decoding and encoding an answer may lengthen it, so the limit is enforced here too.
        return TurnContext(tuple(ids[-self._most :]), cut=len(ids) > self._most)

    def longest(self, prompt: Prompt, more: int) -> tuple[int, ...]:
        """Ids as many as of the prompt's last context, and ``more``: its first one, repeated.

        They end as that one does, so that an answer begins as usual.
        """
        ids = self.after(prompt, ()).ids
        count = min(self.most_tokens(prompt), self._most) + more
        return tuple(islice(cycle(reversed(ids)), count))[::-1]

    def _encode(self, prompt: Prompt, answers: Sequence[str]) -> list[int]:
        turns = prompt.turns[: len(answers) + 1]
        chat = self._chat
        if chat is None:
            chat = bool(self._tokenizer.chat_template) and not prompt.completion
        if chat:
            messages = [{"role": "user", "content": turns[0]}]
            for answer, turn in zip(answers, turns[1:], strict=True):
                messages.append({"role": "assistant", "content": answer})
                messages.append({"role": "user", "content": turn})
            try:
                text = apply_template(
                    self._tokenizer, messages, tokenize=False, add_generation_prompt=True
                )
            except DraftwoodError as error:
                raise DraftwoodError(f"prompt {prompt.id!r}: {error}") from error
            # A chat template writes its special tokens itself.
            return list(self._tokenizer.encode(str(text), add_special_tokens=False))
        return list(self._tokenizer.encode(_transcript(prompt, turns, answers)))


def _transcript(prompt: Prompt, turns: Sequence[str], answers: Sequence[str]) -> str:
    if not prompt.dialogue:
        return turns[0]
    text = f"User: {turns[0]}\n\nAssistant:"
    for answer, turn in zip(answers, turns[1:], strict=True):
        text += f" {answer}\n\nUser: {turn}\n\nAssistant:"
    return text

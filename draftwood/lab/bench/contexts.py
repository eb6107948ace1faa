"""From a prompt and the answers so far to the token ids of the next turn.

Knows nothing of methods. Three forms: a plain prompt is its text as it stands; with the model's
chat template it is the user's turn; a dialogue without a template is a transcript of ``User:`` and
``Assistant:`` paragraphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.prompts import Prompt


@dataclass(frozen=True)
class Context:
    """Token ids to continue, and whether older ones were cut off."""

    ids: tuple[int, ...]
    cut: bool = False


class Contexts:
    """Encodes every turn of every prompt in the same way for all methods.

    Args:
        tokenizer: the target's.
        context_limit: longest sequence the target's positions reach, in tokens.
        max_new_tokens: room that is kept for each answer, in tokens.
        chat: True for the chat template everywhere, False for nowhere, None for dialogues only and
            if there is one.
        truncate: keep this many of the last tokens of a longer context; None refuses it.

    Raises:
        DraftwoodError: a chat template is asked for and there is none, or an answer does not fit.
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

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Refuse prompts that may outgrow the context, every answer counted at full length.

        Raises:
            DraftwoodError: a prompt is empty in tokens, or too long and nothing says to cut it.
        """
        for prompt in prompts:
            count = self.most_tokens(prompt)
            if count > self._room and self._truncate is None:
                raise DraftwoodError(
                    f"prompt {prompt.id!r} takes up to {count} tokens, and the model's context "
                    f"holds {self._room} beside the answer: cut prompts with --truncate N"
                )

    def most_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt's last context, uncut, if every answer has its full length.

        Raises:
            DraftwoodError: it is empty in tokens.
        """
        earlier = len(prompt.turns) - 1
        count = len(self._encode(prompt, [""] * earlier))
        if not count:
            raise DraftwoodError(f"prompt {prompt.id!r} has no tokens: give it some text")
        return count + earlier * self._max_new_tokens

    def after(self, prompt: Prompt, answers: Sequence[Sequence[int]]) -> Context:
        """The context of the turn that follows these answers (token ids of each)."""
        decode = self._tokenizer.decode
        texts = [str(decode(list(ids), skip_special_tokens=True)).strip() for ids in answers]
        ids = self._encode(prompt, texts)
        # Decoding an answer and encoding it again may lengthen it, so the limit holds here too.
        most = min(self._truncate or self._room, self._room)
        return Context(tuple(ids[-most:]), cut=len(ids) > most)

    def _encode(self, prompt: Prompt, answers: Sequence[str]) -> list[int]:
        said = prompt.turns[: len(answers) + 1]
        chat = bool(self._tokenizer.chat_template) if self._chat is None else self._chat
        if self._chat is None and not prompt.dialogue:
            chat = False
        if chat:
            messages = [{"role": "user", "content": said[0]}]
            for answer, turn in zip(answers, said[1:], strict=True):
                messages.append({"role": "assistant", "content": answer})
                messages.append({"role": "user", "content": turn})
            text = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            # A chat template writes its special tokens itself.
            return list(self._tokenizer.encode(str(text), add_special_tokens=False))
        return list(self._tokenizer.encode(_plain(prompt, said, answers)))


def _plain(prompt: Prompt, said: Sequence[str], answers: Sequence[str]) -> str:
    if not prompt.dialogue:
        return said[0]
    text = f"User: {said[0]}\n\nAssistant:"
    for answer, turn in zip(answers, said[1:], strict=True):
        text += f" {answer}\n\nUser: {turn}\n\nAssistant:"
    return text

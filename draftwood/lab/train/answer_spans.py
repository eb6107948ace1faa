"""Where the answers are in the token rows of chats."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.models.chat_template import apply_template

_SAID = ("Hello.", "Good morning.", "Thank you.")


@dataclass(frozen=True)
class AnswerMarks:
    """The tokens between which a chat template puts an answer.

    Attributes:
        begin: token ids of the generation prompt.
        end: the token id that ends an answer.
    """

    begin: tuple[int, ...]
    end: int

    def followed_by_answer(self, rows: Tensor) -> Tensor:
        """Bool ``[b, q]``: whether the token after each of int64 ``[b, q]`` belongs to an answer.

        The end of an answer belongs to it. An answer that began before a row is not found.
        """
        width = len(self.begin)
        begins = torch.zeros_like(rows, dtype=torch.bool)
        if rows.shape[1] >= width:
            mark = torch.tensor(self.begin, device=rows.device)
            begins[:, width - 1 :] = (rows.unfold(1, width, 1) == mark).all(-1)
        places = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
        last_begin = places.masked_fill(~begins, -1).cummax(1).values
        last_end = places.masked_fill(rows != self.end, -1).cummax(1).values
        return last_begin > last_end


def answer_marks(tokenizer: PreTrainedTokenizerBase) -> AnswerMarks | None:
    """The marks of a tokenizer's chat template.

    None if it has no template, or one that refuses a plain chat, has no generation prompt, or has
    no special token that ends every answer.
    """
    if not tokenizer.chat_template:
        return None

    def rendered(turns: int, *, begin: bool = False) -> str:
        chat = [
            {"role": ("user", "assistant")[turn % 2], "content": _SAID[turn]}
            for turn in range(turns)
        ]
        return str(apply_template(tokenizer, chat, tokenize=False, add_generation_prompt=begin))

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    try:
        asked, begun, after = rendered(1), rendered(1, begin=True), rendered(3)
    except DraftwoodError:
        return None
    begin = ids(begun.removeprefix(asked))
    end = ids(after.partition(_SAID[1])[2])[:1]
    if not begun.startswith(asked) or not begin or not set(end) & set(tokenizer.all_special_ids):
        return None
    return AnswerMarks(tuple(begin), end[0])

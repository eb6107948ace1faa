"""Where the answers are in the token rows of chats."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase


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
    """The marks of a tokenizer's chat template; None if it has none, or no generation prompt."""
    if not tokenizer.chat_template or tokenizer.eos_token_id is None:
        return None
    chat = [{"role": "user", "content": "Hello."}]
    asked, begun = (
        str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=begin))
        for begin in (False, True)
    )
    begin = tokenizer.encode(begun.removeprefix(asked), add_special_tokens=False)
    if not begun.startswith(asked) or not begin:
        return None
    return AnswerMarks(tuple(begin), int(tokenizer.eos_token_id))

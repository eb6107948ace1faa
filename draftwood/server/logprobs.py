"""Log probabilities in the forms of chat and of text completions."""

from collections.abc import Sequence

from draftwood.engine.logprobs import TokenLogprob
from draftwood.server.schemas.answers import ChatLogprob, ChatLogprobs, TextLogprobs, TopLogprob
from draftwood.server.text import TextWorker


def chat_logprobs(found: Sequence[TokenLogprob], text: TextWorker) -> ChatLogprobs:
    """One entry for each token, with its likeliest rivals."""

    def entry(token: int, logprob: float) -> tuple[str, float, list[int]]:
        shown, spelt = text.token_text(token)
        return shown, logprob, spelt

    return ChatLogprobs(
        [
            ChatLogprob(
                *entry(each.token, each.logprob), [TopLogprob(*entry(*pair)) for pair in each.top]
            )
            for each in found
        ]
    )


def text_logprobs(
    found: Sequence[TokenLogprob], pieces: Sequence[str], begin: int, text: TextWorker
) -> TextLogprobs:
    """Columns with one entry for each token.

    Args:
        found: of the tokens.
        pieces: the text that each token added.
        begin: characters of the text before them.
        text: has the tokens' texts.
    """
    offsets = []
    for piece in pieces:
        offsets.append(begin)
        begin += len(piece)
    rivals = [_rivals(each, text) for each in found]
    return TextLogprobs(
        text_offset=offsets,
        token_logprobs=[each.logprob for each in found],
        tokens=[text.token_text(each.token)[0] for each in found],
        top_logprobs=rivals if any(rivals) else None,
    )


def _rivals(each: TokenLogprob, text: TextWorker) -> dict[str, float]:
    """The likeliest tokens by their texts, of equal texts the likelier one; with the chosen one."""
    found: dict[str, float] = {}
    for token, logprob in each.top:
        found.setdefault(text.token_text(token)[0], logprob)
    if each.top:
        found.setdefault(text.token_text(each.token)[0], each.logprob)
    return found

"""Whether two models speak of the same tokens.

A draft model proposes token ids, so each id must mean the same to both. A wrong pairing would not
change what is decoded, only that nothing is ever accepted: worth a sentence before time is spent.
"""

from transformers import PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError

_SHOWN = 3


def check_vocabulary(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, draft_name: str
) -> None:
    """Accept equal vocabularies, and such that differ by tokens at the end that one lacks.

    Raises:
        DraftwoodError: some token has another id in the draft model's vocabulary, or some id
            below both sizes belongs to one of them only; names both tokenizers.
    """
    ours, theirs = _by_id(target), _by_id(draft)
    shared = min(max(ours, default=-1), max(theirs, default=-1))
    wrong = [i for i in range(shared + 1) if ours.get(i) != theirs.get(i)]
    if not wrong:
        return
    examples = ", ".join(f"{i}: {ours.get(i)!r} and {theirs.get(i)!r}" for i in wrong[:_SHOWN])
    raise DraftwoodError(
        f"the draft model {draft_name!r} has another vocabulary ({_named(draft)}) than the target "
        f"({_named(target)}): {len(wrong)} of {shared + 1} ids differ, e.g. {examples}; name a "
        "smaller model of the target's own family"
    )


def _by_id(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {i: token for token, i in tokenizer.get_vocab().items()}


def _named(tokenizer: PreTrainedTokenizerBase) -> str:
    name = tokenizer.name_or_path or "unnamed"
    return f"{type(tokenizer).__name__} of {name}, {len(tokenizer)} tokens"

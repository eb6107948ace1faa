"""Vocabularies of a target and a draft model: whether their token ids agree, or are translated.

A draft model proposes token ids, so each id must be the same token in both models, or be
translated. With wrong ids a pair would still decode losslessly, but nothing would ever be accepted.
So it is refused.

If both tokenizers are known and differ, tokens are translated
(:mod:`draftwood.engine.translation`). The draft model then proposes only tokens that both have, so
a pair that shares too few is refused.

Models of one family often have tables of different lengths, because training pads them: Qwen2.5 has
152,064 rows at 7B and 151,936 at 0.5B, for one tokenizer. So equal lengths pass. Different lengths
are compared token by token if both tokenizers are given or stored with the models. Without
tokenizers, lengths pass that padding explains (:func:`padding_explains`) if the configurations name
one family and the same begin or end token.
"""

import logging
from dataclasses import dataclass

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from draftwood.engine.intersection import intersect
from draftwood.engine.token_bytes import tokens_of
from draftwood.engine.translation import TokenTranslation
from draftwood.errors import DraftwoodError
from draftwood.protocols import Origin, Translation

logger = logging.getLogger(__name__)

PADDING = 512
"""Largest multiple to which published models pad their tables (Qwen2.5-7B, Pythia-12B)."""

LEAST_SHARE = 0.2
"""Least part of the smaller vocabulary that both must have.

The part is of the smaller one because that is the most that can be shared: 32,000 tokens are an
eighth of 256,000, and can hold all that is frequent in a text. Below a fifth the two were made for
other texts, such as other scripts, and little of what the draft model would say can be proposed.
"""

_NO_TOKENIZER = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ImportError,
    AttributeError,
    RuntimeError,
)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A model's vocabulary.

    Attributes:
        size: rows of its embedding, padding included.
        origin: the model's, if known.
        tokenizer: the model's, if given.
    """

    size: int
    origin: Origin | None = None
    tokenizer: PreTrainedTokenizerBase | None = None


def translation_of(target: Vocabulary, draft: Vocabulary, draft_name: str) -> Translation | None:
    """The translation between a target's tokens and a draft model's; None if their ids agree.

    Raises:
        DraftwoodError: the tokenizers share too few tokens, or the lengths differ and nothing shows
            that the ids agree; the message says what to give.
    """
    ours, theirs = target.tokenizer, draft.tokenizer
    if target.size != draft.size:
        ours = ours or _tokenizer_of(target.origin)
        theirs = theirs or _tokenizer_of(draft.origin)
    if ours is not None and theirs is not None:
        if ids_agree(ours, theirs):
            return None
        return _translation(ours, target.size, theirs, draft.size, draft_name)
    if target.size == draft.size:
        return None
    padded = padding_explains(target.size, draft.size)
    if padded and _of_one_family(target.origin, draft.origin):
        return None
    reason = (
        "their configurations do not show that they are of one family"
        if padded
        else "padding does not explain the difference"
    )
    lacking = " and ".join(
        name
        for name, found in (("the target's", ours), ("the draft model's", theirs))
        if found is None
    )
    raise DraftwoodError(
        f"the draft model {draft_name!r} has {draft.size} tokens and the target {target.size}: "
        f"{reason}, and {lacking} tokenizer is not known, so that ids cannot be compared; name a "
        "smaller model of the target's own family, or make the tokenizers known: load the models "
        "from directories or hub ids that hold them, give the draft model by name, and "
        "generate(..., tokenizer=...) or Engine(..., tokenizer) the target's"
    )


def padding_explains(first: int, second: int) -> bool:
    """Whether two table lengths can be one vocabulary, each padded to a multiple of a power of two.

    The power is :data:`PADDING` at most.
    """
    return max(first - _padding(first), second - _padding(second)) < min(first, second)


def _padding(size: int) -> int:
    """The largest power of two, up to :data:`PADDING`, that divides the size."""
    return min(PADDING, size & -size)


def _of_one_family(target: Origin | None, draft: Origin | None) -> bool:
    if target is None or draft is None or target.family != draft.family:
        return False
    begins = target.begins is not None and target.begins == draft.begins
    return begins or bool(set(target.ends) & set(draft.ends))


def _tokenizer_of(origin: Origin | None) -> PreTrainedTokenizerBase | None:
    """The tokenizer stored with a model's weights on this machine; None if there is none."""
    if origin is None or not origin.name:
        return None
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            origin.name, local_files_only=True
        )
    except _NO_TOKENIZER as error:
        logger.debug("no tokenizer beside %s: %s", origin.name, error)
        return None
    return found if found.get_vocab() else None


def ids_agree(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> bool:
    """Whether two tokenizers agree on all ids that both have; one may have more at the end."""
    ours, theirs = _by_id(target), _by_id(draft)
    shared = min(max(ours, default=-1), max(theirs, default=-1))
    return all(ours.get(i) == theirs.get(i) for i in range(shared + 1))


def _translation(
    target: PreTrainedTokenizerBase,
    target_size: int,
    draft: PreTrainedTokenizerBase,
    draft_size: int,
    draft_name: str,
) -> Translation:
    ours, theirs = tokens_of(target, target_size), tokens_of(draft, draft_size)
    found = intersect(ours, theirs, draft_size)
    if found.share < LEAST_SHARE:
        raise DraftwoodError(
            f"the draft model {draft_name!r} has another tokenizer ({_named(draft)}) than the "
            f"target ({_named(target)}), and they share only {found.shared} tokens: "
            f"{found.share:.1%} of the smaller vocabulary, less than {LEAST_SHARE:.0%}; name a "
            "draft model for the same kind of text, or a smaller model of the target's own family"
        )
    made = TokenTranslation(ours, theirs, found)
    logger.warning("the draft model %r has another tokenizer: it %s", draft_name, made.note)
    return made


def _by_id(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {i: token for token, i in tokenizer.get_vocab().items()}


def _named(tokenizer: PreTrainedTokenizerBase) -> str:
    name = tokenizer.name_or_path or "unnamed"
    return f"{type(tokenizer).__name__} of {name}, {len(tokenizer)} tokens"

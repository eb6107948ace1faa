"""Vocabularies of a target and a draft model: the check that they agree, and the map between them.

A draft model proposes token ids, so each id must be the same token in both models. A wrong pair
would still decode losslessly, but nothing would ever be accepted. So it is refused.

Models of one family often have tables of different lengths, because training pads them: Qwen2.5 has
152,064 rows at 7B and 151,936 at 0.5B, for one tokenizer. So equal lengths pass. Different lengths
are compared token by token if both tokenizers are given or stored with the models. Without
tokenizers, lengths pass that padding explains (:func:`padding_explains`) if the configurations name
one family and the same begin or end token.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from draftwood.errors import DraftwoodError
from draftwood.protocols import Origin, TargetInfo, TargetOutput

logger = logging.getLogger(__name__)

PADDING = 512
"""Largest multiple to which published models pad their tables (Qwen2.5-7B, Pythia-12B)."""

_SHOWN = 3
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


def check_vocabularies(target: Vocabulary, draft: Vocabulary, draft_name: str) -> None:
    """Check that a draft model's token ids agree with the target's.

    Raises:
        DraftwoodError: an id is another token in the draft model, or the lengths differ and nothing
            shows that the ids agree; the message says what to give.
    """
    ours, theirs = target.tokenizer, draft.tokenizer
    if target.size != draft.size:
        ours = ours or _tokenizer_of(target.origin)
        theirs = theirs or _tokenizer_of(draft.origin)
    if ours is not None and theirs is not None:
        check_vocabulary(ours, theirs, draft_name)
        return
    if target.size == draft.size:
        return
    padded = padding_explains(target.size, draft.size)
    if padded and _of_one_family(target.origin, draft.origin):
        return
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


def check_vocabulary(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, draft_name: str
) -> None:
    """Check that two tokenizers agree on all ids that both have; one may have more at the end.

    Raises:
        DraftwoodError: they differ in an id below both sizes; the message names both tokenizers.
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


class VocabularyMap:
    """The map between a draft model's outputs and the target's tokens.

    Args:
        to_target: int64 ``[Vd]``: the target's token of each output, -1 if it has none.
        target: the target, with V tokens.

    Attributes:
        to_target: as given.
        of_token: int64 ``[V]``: the output of each token, -1 if it has none.
        unmapped: int64, the outputs without a token of the target, ascending.

    Raises:
        DraftwoodError: an output maps to a token that the target lacks, or two outputs map to one
            token.
    """

    def __init__(self, to_target: NDArray[np.int64], target: TargetInfo) -> None:
        self.to_target = to_target
        self._shape, self._device = target.vocab_size, target.device
        outputs = np.flatnonzero(to_target >= 0)
        tokens = to_target[outputs]
        most = int(tokens.max(initial=-1))
        if most >= target.vocab_size:
            raise DraftwoodError(
                f"the draft model yields token {most}, but the target has {target.vocab_size} "
                "tokens; use a draft model that was made for this target"
            )
        counts = np.bincount(tokens, minlength=1)
        if counts.max() > 1:
            raise DraftwoodError(
                f"two outputs of the draft model map to token {int(counts.argmax())}; "
                "use a draft model that has every token once"
            )
        self.unmapped = np.flatnonzero(to_target < 0)
        self.of_token = np.full(target.vocab_size, -1, dtype=np.int64)
        self.of_token[tokens] = outputs
        self._from: slice | torch.Tensor
        self._to: slice | torch.Tensor
        order = np.arange(len(outputs))
        self._equal = False
        if np.array_equal(outputs, order) and np.array_equal(tokens, order):
            # Equal ids up to the shorter length: a slice instead of a scatter.
            self._from = self._to = slice(len(outputs))
            self._equal = len(outputs) == len(to_target) == target.vocab_size
        else:
            self._from = torch.from_numpy(outputs).to(target.device)
            self._to = torch.from_numpy(tokens).to(target.device)

    @torch.inference_mode()
    def mapped_output(self, rows: TargetOutput, k: int) -> TargetOutput:
        """A forward's output with unmapped outputs masked, and the top-k of the others.

        The logits are masked in place, before anything is ranked or drawn. So q is a distribution
        over the target's tokens.

        Args:
            rows: logits ``[n, Vd]`` and ``features``; its other fields are replaced.
            k: length of the top-k.
        """
        logits = rows.logits
        logits[:, torch.from_numpy(self.unmapped).to(logits.device)] = -torch.inf
        top = torch.softmax(logits.float(), dim=-1).topk(min(k, logits.shape[1]))
        # HAND-OVER: n * k numbers.
        outputs, shares = top.indices.cpu().numpy(), top.values.cpu().numpy()
        return replace(rows, top_tokens=outputs, top_probs=shares)

    def outputs_of(self, tokens: Iterable[int]) -> NDArray[np.int64]:
        """The outputs of some of the target's tokens; tokens without an output are left out."""
        found = self.of_token[np.fromiter(tokens, dtype=np.int64)]
        return found[found >= 0]

    def target_rows(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Rows ``[Vd]`` over outputs as ``[n, V]`` over the target's tokens, 0 elsewhere.

        The values are unchanged. The result is on the target's device and may share memory with the
        rows given.
        """
        if not rows:
            return torch.zeros((0, self._shape), device=self._device)
        given = rows[0][None] if len(rows) == 1 else torch.stack(tuple(rows))
        given = given.to(self._device)
        if self._equal:
            return given
        found = torch.zeros((len(rows), self._shape), device=self._device)
        found[:, self._to] = given[:, self._from]
        return found

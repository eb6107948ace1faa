"""The tokens that a target's and a draft model's vocabulary share.

Ordinary tokens are equal if their bytes are. Special tokens are equal if they have one role: both
end a text, or both begin one, or both are special under one name. A special token never equals an
ordinary one that is spelt like it.

Source: Timor et al., *Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies* (2025), token-level intersection. The draft model's q is restricted to
the tokens that both have, and renormalised.

Deviation: the paper compares the tokens' strings, which differ between kinds of tokenizers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from draftwood.engine.token_bytes import Tokens

_ROLES: Final = ("eos_token_id", "bos_token_id")


@dataclass(frozen=True, eq=False)
class Intersection:
    """The tokens that two vocabularies share.

    Attributes:
        to_target: int64 ``[Vd]``, the target's token of each of the draft model's, -1 if it has
            none. No two have the same.
        of_target: the draft model's token of each of the target's that has one. Several may have
            the same, as what is read need not be told apart.
        shared: number of ordinary tokens in both; tokens of equal bytes count once, here and below.
        target: number of the target's ordinary tokens.
        draft: number of the draft model's.
    """

    to_target: NDArray[np.int64]
    of_target: Mapping[int, int]
    shared: int
    target: int
    draft: int

    @property
    def share(self) -> float:
        """The shared part of the smaller vocabulary."""
        return self.shared / max(1, min(self.target, self.draft))


def intersect(target: Tokens, draft: Tokens, size: int) -> Intersection:
    """The tokens that both have; ``size`` is the draft model's number of rows, Vd."""
    to_target = np.full(size, -1, dtype=np.int64)
    both = [each for each in draft.id_of if each in target.id_of]
    for each in both:
        to_target[draft.id_of[each]] = target.id_of[each]
    of_target = {
        number: draft.id_of[each] for number, each in target.bytes_of.items() if each in draft.id_of
    }
    for ours, theirs in _special_pairs(target, draft):
        of_target.setdefault(ours, theirs)
        if to_target[theirs] < 0 and ours not in to_target:
            to_target[theirs] = ours
    return Intersection(to_target, of_target, len(both), len(target.id_of), len(draft.id_of))


def _special_pairs(target: Tokens, draft: Tokens) -> list[tuple[int, int]]:
    """Special tokens of the target and of the draft model with one role, roles before names."""
    found = []
    for role in _ROLES:
        ours, theirs = _of_role(target.tokenizer, role), _of_role(draft.tokenizer, role)
        if ours in target.special and theirs in draft.special:
            found.append((ours, theirs))
    names = {name: number for number, name in draft.special.items()}
    found += [(ours, names[name]) for ours, name in target.special.items() if name in names]
    return found


def _of_role(tokenizer: PreTrainedTokenizerBase, role: str) -> int:
    found = getattr(tokenizer, role)
    return -1 if found is None else int(found)

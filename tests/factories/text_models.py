"""Models whose logits depend on the text alone, so that all tokenizers of it can be compared."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from draftwood.protocols import DraftDtype, DraftModel, Translation
from tests.factories.markov_target import FakeHost, MarkovTarget

LETTERS = ("a", "b", "c", "d", "Ġ")


class TextModel(MarkovTarget):
    """The logit of a token depends on its text and on the two bytes before it.

    Two models of different vocabularies agree on what both can say, if each of their tokens'
    texts are bytes of the same text.

    Args:
        tokenizer: its tokens are those whose text is made of a few letters, and the special ones.
        seed: of the logits.
        sharpness: factor of the logits, which are evenly spread from 0 to 1.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, seed: int = 0, sharpness: float = 8.0
    ) -> None:
        super().__init__(2, context_limit=512)
        self.info = replace(self.info, vocab_size=len(tokenizer))
        names = {number: name for name, number in tokenizer.get_vocab().items()}
        self.texts = [names[number] for number in range(len(tokenizer))]
        self._spoken = [all(letter in LETTERS for letter in text) for text in self.texts]
        self._seed, self._sharpness = seed, sharpness

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        before = "".join(self.texts[token] for token in tokens[-6:])[-2:]
        found = torch.full((len(self.texts),), -1e4)
        for number, text in enumerate(self.texts):
            if self._spoken[number]:
                share = zlib.crc32(f"{self._seed} {before} {text}".encode()) / 2**32
                found[number] = self._sharpness * share
        return found


@dataclass
class TextHost(FakeHost):
    """A host with one draft model, which has a tokenizer of its own."""

    draft: Any = None
    translation: Translation | None = None

    def model(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftModel, Translation | None]:
        return self.draft, self.translation

"""The place where drafters are built: loads what they ask for, once, beside the target.

Knows how models are loaded and attached; nothing of what drafters do with them.
"""

from typing import Any

from transformers import PreTrainedTokenizerBase

from draftwood import models
from draftwood.eagle.checkpoint import load_head
from draftwood.errors import DraftwoodError
from draftwood.hosts import DraftModel, Head
from draftwood.protocols import Target, TargetInfo
from draftwood.target.attach import attach
from draftwood.vocabulary import check_vocabulary


class TargetHost:
    """A :class:`draftwood.hosts.Host`; drafters built here share the models they load.

    Args:
        target: what is drafted for.
        tokenizer: the target's; without it, only the sizes of vocabularies are compared.
    """

    def __init__(self, target: Target, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        self._target = target
        self._tokenizer = tokenizer
        self._models: dict[Any, DraftModel] = {}
        self._heads: dict[Any, tuple[Head, DraftModel]] = {}

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        return self._target.info

    def model(self, name: Any) -> DraftModel:
        """See :meth:`draftwood.hosts.Host.model`."""
        if name not in self._models:
            self._models[name] = self._load(name)
        return self._models[name]

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """See :meth:`draftwood.hosts.Host.head`."""
        if name not in self._heads:
            head = name
            if isinstance(name, str):
                where = models.location(name)
                head = load_head(where, self.info, self._target.embedding())
            # Its trees are the target's business to judge: a head has no plain forward to be
            # compared with.
            self._heads[name] = head, attach(head, packing="move", self_test=False)
        return self._heads[name]

    def _load(self, name: Any) -> DraftModel:
        if not isinstance(name, str):
            self._compare(name, None, type(name).__name__)
            return attach(name)
        dtype = next((n for n, d in models.DTYPES.items() if d == self.info.dtype), "auto")
        loaded = models.load(name, dtype=dtype, device=str(self.info.device))
        self._compare(loaded.model, loaded.tokenizer, name)
        return attach(loaded.model, packing="move")

    def _compare(self, model: Any, tokenizer: PreTrainedTokenizerBase | None, name: str) -> None:
        if self._tokenizer is not None and tokenizer is not None:
            check_vocabulary(self._tokenizer, tokenizer, name)
            return
        size = model.config.get_text_config().vocab_size
        if size != self.info.vocab_size:
            raise DraftwoodError(
                f"the draft model {name!r} has {size} tokens and the target "
                f"{self.info.vocab_size}: name a smaller model of the target's own family"
            )

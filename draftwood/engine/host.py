"""Builds drafters beside a target: loads each model or head that they ask for once.

Knows how models are loaded and attached; nothing of what drafters do with them.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from torch import nn
from transformers import PreTrainedTokenizerBase

from draftwood import models
from draftwood.costs.store import identity_at
from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.engine.vocabulary import Vocabulary, check_vocabularies
from draftwood.errors import DraftwoodError
from draftwood.models import origin_of
from draftwood.protocols import DraftHead, DraftModel, Target
from draftwood.runner.attach import attach, runner_of

T = TypeVar("T")


class ModelHost:
    """A :class:`draftwood.protocols.Host`; drafters built here share the models they load.

    Args:
        target: the model that is drafted for.
        tokenizer: the target's, if it is at hand: vocabularies are compared by it.
    """

    def __init__(self, target: Target, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        self.target = target
        self.info = target.info
        self.tokenizer = tokenizer
        self._shared: dict[Hashable, Any] = {}

    def model(self, name: Any) -> DraftModel:
        """See :meth:`draftwood.protocols.Host.model`."""
        if not isinstance(name, str):
            self._compare(name, None, type(name).__name__)
            self._check_place(name, "draft model", "draft")
            return runner_of(name)
        return self.share(("model", name), lambda: self._load(name))

    def head(self, name: Any) -> tuple[DraftHead, DraftModel]:
        """See :meth:`draftwood.protocols.Host.head`."""
        # Its trees are the target's business to judge: a head has no plain forward to be compared
        # with.
        if not isinstance(name, str):
            self._check_place(name, "EAGLE-3 head", "head")
            return name, attach(name, self_test=False)
        return self.share(("head", name), lambda: self._load_head(name))

    @property
    def vocabulary(self) -> str:
        """See :attr:`draftwood.protocols.Host.vocabulary`."""
        tokenizer = self.tokenizer  # which the next call of generate may bring
        if tokenizer is None:
            return ""
        return self.share(tokenizer, lambda: models.vocabulary_digest(tokenizer))

    def identity(self, name: Any) -> str:
        """See :meth:`draftwood.protocols.Host.identity`."""
        return identity_at(models.location(name)) if isinstance(name, str) else ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """See :meth:`draftwood.protocols.Host.share`."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found

    def _load(self, name: str) -> DraftModel:
        dtype = next((n for n, d in models.DTYPES.items() if d == self.info.dtype), "auto")
        loaded = models.load(name, dtype=dtype, device=str(self.info.device))
        self._compare(loaded.model, loaded.tokenizer, name)
        return attach(loaded.model)

    def _load_head(self, name: str) -> tuple[DraftHead, DraftModel]:
        target = self.target
        where = models.location(name)
        head = load_head(where, self.info, target.embedding(), target.lm_head())
        return head, attach(head, self_test=False)

    def _check_place(self, given: Any, what: str, called: str) -> None:
        """Refuse an object whose weights are on another device than the target's."""
        weight = next(given.parameters(), None) if isinstance(given, nn.Module) else None
        if weight is not None and weight.device != self.info.device:
            raise DraftwoodError(
                f"the {what} is on {weight.device} and the target on {self.info.device}: move it "
                f"with {called}.to('{self.info.device}')"
            )

    def _compare(self, model: Any, tokenizer: PreTrainedTokenizerBase | None, name: str) -> None:
        size = model.config.get_text_config().vocab_size
        check_vocabularies(
            Vocabulary(self.info.vocab_size, self.info.origin, self.tokenizer),
            Vocabulary(size, origin_of(model.config), tokenizer),
            name,
        )

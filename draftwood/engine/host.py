"""Builds drafters beside a target: loads each model or head that they ask for once.

Knows how models are loaded and attached; nothing of what drafters do with them.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from draftwood import models
from draftwood.costs.store import identity_at
from draftwood.drafters.eagle3.checkpoint import load_any_head
from draftwood.engine.draft_dtype import load_draft, load_in
from draftwood.engine.vocabulary import Vocabulary, translation_of
from draftwood.errors import DraftwoodError
from draftwood.models import origin_of
from draftwood.protocols import DraftDtype, DraftHead, DraftModel, Target, Translation, shared
from draftwood.runner.attach import attach, runner_of

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


class ModelHost:
    """A :class:`draftwood.protocols.Host`; drafters built here share the models they load.

    Args:
        target: the model that is drafted for.
        tokenizer: the target's, if it is at hand: vocabularies are compared by it.
    """

    def __init__(self, target: Target, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        self.target = target
        self.info = target.info
        # Weights are packed by what is timed, and so in each process otherwise.
        self._packing = shared(target) is None
        self.tokenizer = tokenizer
        self._shared: dict[Hashable, Any] = {}

    def model(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftModel, Translation | None]:
        """See :meth:`draftwood.protocols.Host.model`."""
        if not isinstance(name, str):
            _refuse_dtype(name, dtype)
            translation = self._translation(name, None, type(name).__name__)
            self._check_place(name, "draft model", "draft")
            runner = runner_of(name) if self._packing else attach(name, packing=False)
            return runner, translation
        return self.share(("model", name, dtype), lambda: self._load(name, dtype))

    def head(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftHead, DraftModel]:
        """See :meth:`draftwood.protocols.Host.head`."""
        # Its trees are the target's business to judge: a head has no plain forward to be compared
        # with.
        if not isinstance(name, str):
            _refuse_dtype(name, dtype)
            self._check_place(name, "EAGLE-3 head", "head")
            return name, attach(name, packing=self._packing, self_test=False)
        return self.share(("head", name, dtype), lambda: self._load_head(name, dtype))

    def lend_head(self, name: str, head: DraftHead) -> None:
        """Give a head a name: drafters that name it have this one, and none is loaded.

        Args:
            name: no directory and no hub id.
            head: on the target's device.
        """
        self.share(("head", name, "auto"), lambda: self.head(head))

    def loaded(
        self,
        load: Callable[[str, Target, torch.dtype], M],
        name: Any,
        dtype: DraftDtype = "auto",
    ) -> M:
        """See :meth:`draftwood.protocols.Host.loaded`."""
        return self._read(load, name, dtype)

    def _read(
        self,
        load: Callable[[str, Target, torch.dtype], M],
        name: Any,
        dtype: DraftDtype,
        *,
        few_rows: bool = False,
    ) -> M:
        """As :meth:`loaded`; for ``few_rows`` see :func:`load_in`: kernels multiply them."""
        if not isinstance(name, str):
            _refuse_dtype(name, dtype)
            self._check_place(name, type(name).__name__, "head")
            found: M = name
            return found

        def read(dtype: torch.dtype) -> M:
            return load(models.location(name), self.target, dtype)

        target, device = self.info.dtype, self.info.device
        return self.share(
            (load, name, dtype), lambda: load_in(dtype, target, device, read, few_rows=few_rows)
        )

    @property
    def vocabulary(self) -> str:
        """See :attr:`draftwood.protocols.Host.vocabulary`."""
        tokenizer = self.tokenizer  # which the next call of generate may bring
        if tokenizer is None:
            return ""
        return self.share(tokenizer, lambda: models.vocabulary_digest(tokenizer))

    def encode(self, text: str) -> Sequence[int]:
        """See :meth:`draftwood.protocols.Host.encode`."""
        if self.tokenizer is None:
            raise DraftwoodError("a drafter that reads text needs the target's tokenizer")
        found: Sequence[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    def identity(self, name: Any, dtype: DraftDtype = "auto") -> str:
        """See :meth:`draftwood.protocols.Host.identity`."""
        return f"{identity_at(models.location(name))} {dtype}" if isinstance(name, str) else ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """See :meth:`draftwood.protocols.Host.share`."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found

    def _load(self, name: str, wanted: DraftDtype) -> tuple[DraftModel, Translation | None]:
        loaded = load_draft(name, wanted, self.info.dtype, self.info.device)
        translation = self._translation(loaded.model, loaded.tokenizer, name)
        return attach(loaded.model, packing=self._packing), translation

    def _load_head(self, name: str, wanted: DraftDtype) -> tuple[DraftHead, DraftModel]:
        head = self._read(load_any_head, name, wanted, few_rows=True)  # it is attached
        if wanted in models.DTYPES and head.dtype != models.DTYPES[wanted]:
            raise DraftwoodError(
                f"head {name} shares the target's lm_head, so its weights have the target's dtype, "
                f"not {wanted}: leave the setting dtype out"
            )
        return head, attach(head, packing=self._packing, self_test=False)

    def _check_place(self, given: Any, what: str, called: str) -> None:
        """Refuse an object whose weights are on another device than the target's."""
        weight = next(given.parameters(), None) if isinstance(given, nn.Module) else None
        if weight is not None and weight.device != self.info.device:
            raise DraftwoodError(
                f"the {what} is on {weight.device} and the target on {self.info.device}: move it "
                f"with {called}.to('{self.info.device}')"
            )

    def _translation(
        self, model: Any, tokenizer: PreTrainedTokenizerBase | None, name: str
    ) -> Translation | None:
        size = model.config.get_text_config().vocab_size
        found = translation_of(
            Vocabulary(self.info.vocab_size, self.info.origin, self.tokenizer),
            Vocabulary(size, origin_of(model.config), tokenizer),
            name,
        )
        if found is not None and name in models.EMBEDDED:
            # It is every method's default, so that a model may just be missing.
            raise DraftwoodError(
                f"the draft model {name!r} was made for the embedded model, and this target has "
                "another vocabulary: give a draft model, draft=PATH"
            )
        return found


def _refuse_dtype(given: Any, dtype: DraftDtype) -> None:
    """Refuse a setting that would change the weights of an object."""
    if dtype != "auto":
        raise DraftwoodError(
            f"dtype is {dtype}, but a loaded {type(given).__name__} was given, which keeps its own:"
            " cast it before, or give its path"
        )

"""The place where drafters are built: loads what they ask for, once, beside the target.

Knows how models are loaded and attached; nothing of what drafters do with them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from draftwood import models
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.fit import fit
from draftwood.costs.live import LiveCosts
from draftwood.costs.measure import SHORTEST, Grid, measure_reached, measure_target
from draftwood.costs.progress import working
from draftwood.costs.store import identity_at, key_of, recall
from draftwood.drafters._rollout.vocabulary import Vocabulary, check_vocabularies
from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.errors import DraftwoodError
from draftwood.models import origin_of
from draftwood.protocols import Built, DraftModel, Head, Needs, Target, TargetInfo
from draftwood.runner.attach import attach, runner_of

_OUTSIDE, _NODE = 0.08, 0.001
"""What a step and a node of it are taken to cost outside of forwards, over a forward of one token,
until steps have been timed."""

_FLAT = Curve((1, 2), (1.0, 1.0))
"""Of a model whose context has no room for drafts: one second a forward, whatever its size."""


class ModelHost:
    """A :class:`draftwood.protocols.Host`; drafters built here share the models they load.

    Args:
        target: what is drafted for.
        tokenizer: the target's, if it is at hand: vocabularies are compared by it.
    """

    def __init__(self, target: Target, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        self._target = target
        self.tokenizer = tokenizer
        self._models: dict[str, DraftModel] = {}
        self._costs: dict[object, LiveCosts] = {}
        self._heads: dict[str, tuple[Head, DraftModel]] = {}

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        return self._target.info

    def model(self, name: Any) -> DraftModel:
        """See :meth:`draftwood.protocols.Host.model`."""
        if not isinstance(name, str):
            self._compare(name, None, type(name).__name__)
            self._check_place(name, "draft model", "draft")
            return runner_of(name)
        if name not in self._models:
            self._models[name] = self._load(name)
        return self._models[name]

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """See :meth:`draftwood.protocols.Host.head`."""
        # Its trees are the target's business to judge: a head has no plain forward to be compared
        # with.
        if not isinstance(name, str):
            self._check_place(name, "EAGLE-3 head", "head")
            return name, attach(name, self_test=False)
        if name not in self._heads:
            where, target = models.location(name), self._target
            head = load_head(where, self.info, target.embedding(), target.lm_head())
            self._heads[name] = head, attach(head, self_test=False)
        return self._heads[name]

    def costs(self, drafters: Mapping[str, Built]) -> LiveCosts:
        """See :meth:`draftwood.protocols.Host.costs`."""
        with_model = {source: built for source, built in drafters.items() if built.spec.model}
        key = tuple((source, built.spec) for source, built in with_model.items())
        if key not in self._costs:
            measure = partial(self._measured, with_model)
            names = {source: built.spec.model for source, built in with_model.items()}
            known = self.info.identity and all(isinstance(name, str) for name in names.values())
            if known:
                places = {s: identity_at(models.location(name)) for s, name in names.items()}
                found = recall(key_of(self.info, places), measure)
            else:
                found = measure()
            self._costs[key] = LiveCosts(found)
        return self._costs[key]

    def _measured(self, drafters: Mapping[str, Built]) -> StepCosts:
        if self.info.context_limit < SHORTEST:
            # Nothing can be drafted there, so that nobody asks what it would cost.
            return StepCosts(_FLAT, dict.fromkeys(drafters, _FLAT))
        with working("timing what a step costs, once for this machine and model"):
            return self._timed(drafters)

    def _timed(self, drafters: Mapping[str, Built]) -> StepCosts:
        grid = Grid().fitted(self.info.context_limit)
        curve = fit(measure_target(self._target, grid, Needs(top_k=10)))
        levels = {source: self._level(source, built, grid) for source, built in drafters.items()}
        # Outside of forwards nothing is known yet; live costs soon do.
        first = curve.seconds(1)
        return StepCosts(curve, levels, fixed=_OUTSIDE * first, node=_NODE * first)

    def _level(self, source: str, built: Built, grid: Grid) -> Curve:
        """Seconds of a level, at contexts that the drafter's own model reaches."""
        samples = measure_reached(built.drafter, source, self._target, grid)
        return fit(samples) if samples else _FLAT

    def _load(self, name: str) -> DraftModel:
        dtype = next((n for n, d in models.DTYPES.items() if d == self.info.dtype), "auto")
        loaded = models.load(name, dtype=dtype, device=str(self.info.device))
        self._compare(loaded.model, loaded.tokenizer, name)
        return attach(loaded.model)

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

"""Live step costs of a host: read from the cache, or measured on first use.

What measures them is imported then, as it loads torch: a host that has costs needs none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.protocols import Built, DrafterSpec, Host, Needs, Target, shared

_OUTSIDE, _NODE = 0.08, 0.001
"""Host time per step and per node, relative to a forward of one token, until steps are timed."""

_FLAT = Curve((1, 2), (1.0, 1.0))
"""Costs of a model whose context has no room for drafts: one second per forward of any size."""


@dataclass(frozen=True)
class CostsOf:
    """The key under which a host shares its live costs.

    Attributes:
        drafters: source and settings of every drafter that has a model.
    """

    drafters: tuple[tuple[str, DrafterSpec], ...]


def recall_or_measure(host: Host, drafters: Mapping[str, Built]) -> LiveCosts:
    """Live step costs of the target and of each draft model.

    Measured on first use or read from the cache; one object per host and set of drafters.

    Args:
        host: where the drafters were built.
        drafters: by source name.
    """
    with_model = {source: built for source, built in drafters.items() if built.spec.model}

    def measure() -> StepCosts:
        return _measured(host.target, with_model)

    def make() -> LiveCosts:
        from draftwood.costs.store import key_of, read_or_measure

        specs = {source: built.spec for source, built in with_model.items()}
        places = {s: host.identity(spec.model, spec.dtype) for s, spec in specs.items()}
        known = host.info.identity and all(places.values())
        return LiveCosts(
            read_or_measure(key_of(host.info, places), measure) if known else measure()
        )

    key = CostsOf(tuple((source, built.spec) for source, built in with_model.items()))
    return host.share(key, make)


def _measured(target: Target, drafters: Mapping[str, Built]) -> StepCosts:
    from draftwood.costs.fit import fit, fit_prompts
    from draftwood.costs.measure import (
        SHORTEST,
        USUAL,
        measure_levels,
        measure_prompts,
        measure_target,
    )
    from draftwood.costs.progress import working

    if target.info.context_limit < SHORTEST:
        # Nothing can be drafted there, so the costs are never used.
        return StepCosts(_FLAT, dict.fromkeys(drafters, _FLAT))
    with working("timing what a step costs, once for this machine and model"):
        grid = USUAL.fitted(target.info.context_limit)
        clock = _clock(target)
        curve = fit(measure_target(target, grid, Needs(top_k=10), clock))
        prompt = fit_prompts(measure_prompts(target, clock=clock))
        timed = {
            source: measure_levels(built.drafter, source, target, grid, clock)
            for source, built in drafters.items()
        }
        levels = {source: fit(samples) if samples else _FLAT for source, samples in timed.items()}
        # Host time is a guess until live costs are updated by the first steps.
        first = curve.seconds(1)
        return StepCosts(curve, levels, _OUTSIDE * first, _NODE * first, prompt=prompt)


def _clock(target: Target) -> Callable[[], float]:
    """The clock; that of the first of the processes that run the target, so that all do the same.

    How often a forward is repeated follows from it.
    """
    together = shared(target)
    if together is None:
        return perf_counter
    return lambda: together.of_first([perf_counter()])[0]

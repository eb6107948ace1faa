"""Live step costs of a host: read from the cache, or measured on first use.

What measures them is imported then, as it loads torch: a host that has costs needs none.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from time import perf_counter

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.protocols import Built, DrafterSpec, Host, Needs, Policy, Target, settings, shared

_OUTSIDE, _NODE = 0.08, 0.001
"""Host time per step and per node, relative to a forward of one token, until steps are timed."""

_FLAT = Curve((1, 2), (1.0, 1.0))
"""Costs of a model whose context has no room for drafts: one second per forward of any size."""


@dataclass(frozen=True)
class CostsOf:
    """The key under which a host shares its live costs.

    Attributes:
        drafters: source and settings of every drafter that has a model.
        method: the policy and all drafters. Engines of other methods have live costs of their own:
            how long a search takes, and whether drafting pays, differs from method to method.
    """

    drafters: tuple[tuple[str, DrafterSpec], ...]
    method: Hashable = None


@dataclass(frozen=True)
class _MeasuredOf:
    """The key under which a host shares measured costs, whatever the method."""

    drafters: tuple[tuple[str, DrafterSpec], ...]


def recall_or_measure(
    host: Host, drafters: Mapping[str, Built], policy: Policy | None = None
) -> LiveCosts:
    """Live step costs of the target and of each draft model.

    Measured on first use or read from the cache. One object per host and method.

    Args:
        host: where the drafters were built.
        drafters: by source name.
        policy: of the method.
    """
    with_model = {source: built for source, built in drafters.items() if built.spec.model}

    def measure() -> StepCosts:
        return _measured(host.target, with_model)

    def recall() -> StepCosts:
        from draftwood.costs.store import key_of, read_or_measure

        places = places_of(host, {source: built.spec for source, built in with_model.items()})
        known = host.info.identity and all(places.values())
        return read_or_measure(key_of(host.info, places), measure) if known else measure()

    models = tuple((source, built.spec) for source, built in with_model.items())
    every = tuple((source, built.spec) for source, built in drafters.items())
    return host.share(
        CostsOf(models, (policy, every)), lambda: LiveCosts(host.share(_MeasuredOf(models), recall))
    )


def places_of(host: Host, specs: Mapping[str, DrafterSpec]) -> dict[str, str]:
    """What the costs of drafters with a model depend on, by source; empty text: not known.

    It is the model, the kind of drafter and its settings: these decide what a forward is over.
    """
    found = {}
    for source, spec in specs.items():
        identity = host.identity(spec.model, spec.dtype)
        given = (getattr(spec, each.name) for each in settings(type(spec)) if not each.flag)
        kind = " ".join([type(spec).__name__, *map(str, given)])
        found[source] = identity and f"{identity} {kind}"
    return found


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
        # With the adjacency table, which most methods have. That of ``auto`` reads no prompts.
        needs = Needs(top_k=10)
        curve = fit(measure_target(target, grid, needs, clock))
        prompt = fit_prompts(measure_prompts(target, needs, clock=clock))
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

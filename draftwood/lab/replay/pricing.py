"""Costs of a step from a file, or expected from data sheets for a GPU and shapes of models."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.costs.roofline import GPUS, expected, workload
from draftwood.errors import DraftwoodError
from draftwood.files import read_json
from draftwood.lab.inflate.shapes import preset
from draftwood.protocols import DraftModel, Head, Host, Target, TargetInfo

T = TypeVar("T")

VOCABULARY = 128256
"""Tokens of the models expected of data sheets: those of Llama 3."""

STEP, NODE = 4e-4, 1e-5
"""Seconds a step and a drafted node outside of forwards, where data sheets say nothing."""


def read_costs(path: Path) -> StepCosts:
    """Costs that ``draftwood tune --json`` wrote, or bare step costs.

    Raises:
        DraftwoodError: the file cannot be read, or holds something else.
    """
    found = read_json(path)
    if isinstance(found, dict) and "costs" in found:
        found = found["costs"]
    try:
        return StepCosts.from_json(found)
    except DraftwoodError as error:
        raise DraftwoodError(f"{path}: {error}") from error


def expected_costs(
    gpu: str, shape: str, draft_shape: str | None = None, sources: Iterable[str] = ()
) -> StepCosts:
    """Costs expected from data sheets.

    Args:
        gpu: short name of a GPU.
        shape: name of the target's shape.
        draft_shape: the same for drafters with a model; None: their costs are not known.
        sources: names of these drafters.

    Raises:
        DraftwoodError: there is no such GPU or shape.
    """
    if gpu not in GPUS:
        raise DraftwoodError(f"no GPU is called {gpu!r}: choose {', '.join(GPUS)}")

    def curve(name: str) -> Curve:
        return expected(GPUS[gpu], workload(preset(name), VOCABULARY))

    drafters = {} if draft_shape is None else dict.fromkeys(sources, curve(draft_shape))
    return StepCosts(curve(shape), drafters, fixed=STEP, node=NODE)


def assumed_costs() -> StepCosts:
    """Costs where nothing is known of them: a node takes 1 % of a plain step."""
    return StepCosts(Curve((1, 101), (1.0, 2.0)))


def check_priced(costs: StepCosts, sources: Iterable[str]) -> None:
    """Refuse costs that lack a drafter's.

    Raises:
        DraftwoodError: names it.
    """
    missing = sorted(set(sources) - set(costs.drafters))
    if missing:
        raise DraftwoodError(
            f"costs of drafters {', '.join(missing)} are not known: measure them with "
            "'draftwood tune --draft', or give --draft-shape with --gpu"
        )


class GivenCosts(LiveCosts):
    """Costs that learn nothing: the seconds of a replayed step say nothing of a live one."""

    def observe(self, *step: float) -> None:
        """Nothing is learnt."""

    def searched(self, *step: float) -> None:
        """Nothing either."""


@dataclass(frozen=True)
class ModelFreeHost:
    """A :class:`draftwood.protocols.Host` that has the target's facts and no model."""

    info: TargetInfo

    def model(self, name: Any) -> DraftModel:
        """Nothing.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"there is no model {name!r} here")

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """Nothing.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError(f"there is no head {name!r} here")

    @property
    def target(self) -> Target:
        """Nothing.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("there is no target here: nothing can be measured")

    def identity(self, name: Any) -> str:  # noqa: ARG002
        """Nothing is to be remembered of any model."""
        return ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` makes; costs cannot be measured.

        Raises:
            DraftwoodError: the costs of a step are asked for.
        """
        if isinstance(key, CostsOf):
            raise DraftwoodError(
                "this method weighs nodes by what they cost, and nothing is timed here: give the "
                "costs with --costs FILE, or --gpu and --shape"
            )
        return make()


@dataclass(frozen=True)
class PricedHost:
    """Another host, and costs that are given instead of being measured there."""

    host: Host
    given: StepCosts

    @property
    def info(self) -> TargetInfo:
        """The target's facts."""
        return self.host.info

    def model(self, name: Any) -> DraftModel:
        """See :meth:`draftwood.protocols.Host.model`."""
        return self.host.model(name)

    def head(self, name: Any) -> tuple[Head, DraftModel]:
        """See :meth:`draftwood.protocols.Host.head`."""
        return self.host.head(name)

    @property
    def target(self) -> Target:
        """The other host's target."""
        return self.host.target

    def identity(self, name: Any) -> str:
        """See :meth:`draftwood.protocols.Host.identity`."""
        return self.host.identity(name)

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """The given costs where costs are asked for, else what the other host shares."""
        if isinstance(key, CostsOf):
            return cast(T, GivenCosts(self.given))
        return self.host.share(key, make)

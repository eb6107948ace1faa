"""Plays a method over a made-up language. Knows nothing of terminals."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from draftwood.costs.curve import StepCosts
from draftwood.engine.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import LevelLog
from draftwood.lab.replay.pricing import ModelFreeHost, PricedHost
from draftwood.lab.replay.replayer import Played, Turn, Watch, play
from draftwood.lab.replay.simulated.drafter import MadeUp
from draftwood.lab.replay.simulated.language import Language
from draftwood.lab.replay.simulated.rates import Copies, Rates
from draftwood.lab.replay.simulated.target import MadeUpTarget
from draftwood.lab.replay.substitute import part_of
from draftwood.methods.recipe import Method
from draftwood.protocols import DrafterSpec, Host

_T = TypeVar("_T")


@dataclass(frozen=True)
class World:
    """What is made up.

    Attributes:
        language: the target's.
        rates: of every drafter, by source name; the empty name is for those not named.
        copies: likewise.
        real: sources whose own drafters are kept; they have no model.
    """

    language: Language
    rates: Mapping[str, Rates]
    copies: Mapping[str, Copies]
    real: frozenset[str] = frozenset()


def simulate(
    method: Method,
    world: World,
    *,
    sequence: int,
    prompt: int,
    tokens: int,
    costs: StepCosts | None = None,
    watch: Watch | None = None,
) -> Played:
    """One sequence.

    Args:
        method: of deterministic trees.
        world: what it is played over.
        sequence: its number; different ones say different things.
        prompt: tokens of its context, at least 1.
        tokens: of its answer.
        costs: for methods that weigh nodes by their cost.
        watch: told every step.

    Raises:
        DraftwoodError: the method samples its drafts, or a real drafter needs a model.
    """
    target = MadeUpTarget(world.language)
    host: Host = ModelFreeHost(target.info)
    part = part_of(method, target.info)
    logs = {source: LevelLog() for source in part.modelled}
    drafters: dict[str, DrafterSpec] = dict(method.drafters)
    for source in method.policy.sources:
        if source not in world.real:
            rates, copies = _of(world.rates, source), _of(world.copies, source)
            drafters[source] = MadeUp(world.language, source, rates, copies, logs.get(source))
        elif source in logs:
            raise DraftwoodError(f"drafter {source!r} has a model: only tables can be kept real")
    if costs is not None:
        host = PricedHost(host, costs)
    engine = Engine(target, replace(method, drafters=drafters), max_batch=1, host=host)
    return play(engine, [Turn(_context(world.language, sequence, prompt), tokens)], logs, watch)


def _context(language: Language, sequence: int, length: int) -> tuple[int, ...]:
    """The language's own words after one of its tokens."""
    said = [sequence % language.vocabulary, sequence // language.vocabulary % language.vocabulary]
    state = language.start()
    for token in said:
        state = language.after(state, token)
    while len(said) < length:
        said.append(language.taken(state))
        state = language.after(state, said[-1])
    return tuple(said)


def _of(given: Mapping[str, _T], source: str) -> _T:
    return given.get(source, given[""])

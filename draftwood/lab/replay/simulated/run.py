"""Runs a method on a synthetic language."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from draftwood.costs.curve import StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.model_free_host import ModelFreeHost
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.decoding import PromptRun, decode
from draftwood.lab.replay.forward_log import ForwardLog
from draftwood.lab.replay.replayer import ArgmaxSampler
from draftwood.lab.replay.simulated.drafter import SimulatedDrafter
from draftwood.lab.replay.simulated.language import Language
from draftwood.lab.replay.simulated.rates import CopyRates, RankRates
from draftwood.lab.replay.simulated.target import SimulatedTarget
from draftwood.lab.replay.substitute import ReplayMethod
from draftwood.protocols import DrafterSpec

_T = TypeVar("_T")


@dataclass(frozen=True)
class Simulation:
    """Parameters of a simulation.

    Attributes:
        language: the target's language.
        rates: acceptance rates by source name; the empty name is for all other sources.
        copies: rates of copied chains, by source name likewise.
        real: sources that keep their own drafters, which may not have a model.

    Raises:
        DraftwoodError: a drafter has more ranks than the language has wrong tokens.
    """

    language: Language
    rates: Mapping[str, RankRates]
    copies: Mapping[str, CopyRates]
    real: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        most = max(len(rates.ranks) for rates in self.rates.values())
        if most >= self.language.vocabulary:
            raise DraftwoodError(
                f"{most} ranks of acceptance need a vocabulary of {most + 1} tokens or more, "
                f"got {self.language.vocabulary}"
            )


def simulate(
    method: ReplayMethod,
    simulation: Simulation,
    *,
    sequence: int,
    prompt: int,
    tokens: int,
    costs: StepCosts | None = None,
) -> PromptRun:
    """Decode one sequence.

    Args:
        method: a checked method.
        simulation: language and rates.
        sequence: number of the sequence; different numbers give different texts.
        prompt: length of the prompt in tokens, at least 1.
        tokens: length of the answer in tokens.
        costs: step costs for methods that weigh nodes by cost.

    Raises:
        DraftwoodError: a real drafter needs a model.
    """
    target = SimulatedTarget(simulation.language)
    logs = {source: ForwardLog() for source in method.recorded}
    drafters: dict[str, DrafterSpec] = dict(method.method.drafters)
    for source in method.method.policy.sources:
        if source not in simulation.real:
            rates, copies = _of(simulation.rates, source), _of(simulation.copies, source)
            drafters[source] = SimulatedDrafter(
                simulation.language, source, rates, copies, logs.get(source)
            )
        elif source in logs:
            raise DraftwoodError(
                f"drafter {source!r} has a model: only drafters without one can be --real"
            )
    host = ModelFreeHost(target.info, costs)
    engine = Engine(target, replace(method.method, drafters=drafters), max_batch=1, host=host)
    context = _context(simulation.language, sequence, prompt)
    return decode(engine, [Request(context, tokens, sampler=ArgmaxSampler(0.0))], logs)


def _context(language: Language, sequence: int, length: int) -> tuple[int, ...]:
    """A text of the language that begins with two tokens for the sequence number."""
    tokens = [sequence % language.vocabulary, sequence // language.vocabulary % language.vocabulary]
    state = language.start()
    for token in tokens:
        state = language.after(state, token)
    while len(tokens) < length:
        tokens.append(language.next_token(state))
        state = language.after(state, tokens[-1])
    return tuple(tokens)


def _of(given: Mapping[str, _T], source: str) -> _T:
    return given.get(source, given[""])

"""How fast a model decodes here: what trees cost, and what ``auto`` gains on a few prompts."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from draftwood.costs.curve import StepCosts
from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.lab.doctor.finding import Advice, Finding
from draftwood.lab.loops import LOOPING, pooled, repeats

NODES = (4, 16, 60)
"""Drafted nodes of the trees whose costs are shown."""

SECONDS = 60.0
"""After these the doctor times no further prompt."""

_FIRST = 16
"""Tokens of the first answer, which is not timed."""

_CONTEXT = 128
"""Cached tokens at which they are."""

_LEVEL = 0.97
"""Speed-up below which drafts cost more than they bring, beyond what timing varies by."""

_DEAR = 2.0
"""Steps of 16 drafted nodes that take more than so many plain ones leave only small trees."""


@dataclass(frozen=True)
class Timed:
    """A request by plain decoding and by a method."""

    plain: Completion
    method: Completion

    @property
    def speed_up(self) -> float:
        """Tokens per second over those of plain decoding; NaN without a second token."""
        return self.plain.tpot / self.method.tpot

    @property
    def same(self) -> bool:
        """Whether both have the same tokens."""
        return self.plain.tokens == self.method.tokens


def timed(
    plain: Engine, method: Engine, requests: Sequence[Request], seconds: float = SECONDS
) -> list[Timed]:
    """Decode requests by both engines in turn; those with a single new token are left out.

    Args:
        plain: decodes plainly.
        method: drafts.
        requests: the first is decoded once before, so that nothing is measured or compiled later.
        seconds: no further request is begun after these.
    """
    begun = perf_counter()
    for each in (plain, method):
        each.generate([replace(requests[0], max_new_tokens=_FIRST)])
    found: list[Timed] = []
    for request in requests:
        a, b = (each.generate([request])[0].checked() for each in (plain, method))
        found.append(Timed(a, b))
        if perf_counter() - begun > seconds:
            break
    return [each for each in found if each.plain.tpot > 0 and each.method.tpot > 0]


def costs_finding(costs: StepCosts, model: str) -> Finding:
    """What trees cost over a plain step, and how many accepted tokens pay for them.

    Args:
        costs: of one sequence.
        model: its name, for commands.
    """
    plain = costs.step(1, _CONTEXT)
    ratios = {nodes: costs.step(nodes + 1, _CONTEXT) / plain for nodes in NODES}
    parts = [
        f"with {nodes} drafted nodes {one:.2f}x, which {max(0.0, one - 1):.2f} accepted ones repay"
        for nodes, one in ratios.items()
    ]
    text = f"a plain step takes {1e3 * plain:.3g} ms; {'; '.join(parts)}"
    command = f"draftwood tune --model {model}"
    if ratios[NODES[1]] > _DEAR:
        help_ = Advice("nodes are dear here, so trees stay small; the whole curve", command)
        return Finding("step costs", text, "note", (help_,))
    return Finding("step costs", text, advice=(Advice("the whole curve", command),))


def speed_finding(found: Sequence[Timed], method: str, model: str) -> Finding:
    """What a method gains over plain decoding on these requests.

    Args:
        found: results of :func:`timed`.
        method: its name.
        model: its name, for commands.
    """
    if not found:
        return Finding("speed-up", "no answer was long enough to be timed", "note")
    speed_ups = [each.speed_up for each in found]
    middle = statistics.median(speed_ups)
    rate = 1 / statistics.median(each.plain.tpot for each in found)
    steps = sum(each.method.tally.steps for each in found)
    tokens = sum(each.method.tally.committed for each in found)
    loop = pooled(repeats(each.plain.tokens) for each in found)
    text = (
        f"{method} {middle:.2f}x plain decoding's {rate:.3g} tok/s (median of {len(found)} "
        f"prompts, {min(speed_ups):.2f}-{max(speed_ups):.2f}), "
        f"{tokens / max(1, steps):.2f} tokens a step"
    )
    bench = f"draftwood bench --model {model} --prompts FILE --methods ar,auto,hf"
    help_ = [Advice("with intervals, on your own prompts", bench)]
    if loop.share >= LOOPING:
        text += f"; {loop.share:.0%} of the answers' 8-grams repeat, which flatters drafts"
    if middle < _LEVEL:
        explain = f"draftwood generate PROMPT --model {model} --explain"
        help_.insert(0, Advice("what each step drafted, and what it cost", explain))
        return Finding("speed-up", text, "warning", tuple(help_))
    good = middle >= 1 / _LEVEL and loop.share < LOOPING
    return Finding("speed-up", text, "ok" if good else "note", tuple(help_))


def tokens_finding(found: Sequence[Timed], model: str, *, exact: bool) -> Finding:
    """Whether a method gave the tokens of plain decoding.

    Args:
        found: results of :func:`timed`.
        model: its name, for commands.
        exact: whether the model's dtype is float32, where near ties are rare.
    """
    same = sum(each.same for each in found)
    text = f"{same} of {len(found)} answers are plain decoding's, token by token"
    if same == len(found):
        return Finding("lossless", text)
    help_ = Advice(
        "tells rounding from a fault", f"draftwood generate PROMPT --model {model} --compare"
    )
    if exact:
        return Finding("lossless", text, "warning", (help_,))
    text += " (near ties are common in this number format)"
    return Finding("lossless", text, "note", (help_,))

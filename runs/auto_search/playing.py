"""Prompts of a recording with one method after another, and what each comes to in modelled time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from draftwood.costs.curve import Curve, StepCosts
from draftwood.lab.loops import looping
from draftwood.lab.replay.file import write
from draftwood.lab.replay.recording import RecordedPrompt, Recording
from draftwood.lab.replay.replayer import Live, Replayer
from draftwood.methods.recipe import Method

_FORWARD = 0.0052

_LEVEL = Curve((1, 8, 64), (0.0011, 0.0013, 0.003))

COSTS = StepCosts(
    Curve((1, 9, 17, 33, 60, 96), tuple(_FORWARD * x for x in (1, 1.05, 1.19, 1.45, 1.9, 2.6))),
    {"draft": _LEVEL, "adjacency": _LEVEL},  # either source may be answered by the draft model
    fixed=0.0003,
    node=0.00001,
)
"""Like the embedded model on two cores."""

Make = Callable[[RecordedPrompt], Method]
"""The method for a prompt."""


@dataclass(frozen=True)
class Run:
    """A method on some prompts.

    Attributes:
        tokens: committed.
        steps: target calls.
        nodes: drafted.
        drafts: forwards of draft models.
        seconds: as the costs have it.
    """

    tokens: int = 0
    steps: int = 0
    nodes: int = 0
    drafts: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Run") -> "Run":
        return Run(
            self.tokens + other.tokens,
            self.steps + other.steps,
            self.nodes + other.nodes,
            self.drafts + other.drafts,
            self.seconds + other.seconds,
        )

    @property
    def tau(self) -> float:
        """Committed tokens a step."""
        return self.tokens / self.steps if self.steps else 1.0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds if self.seconds else 0.0


Runs = Mapping[str, Run]
"""By prompt."""


def total(runs: Iterable[Run]) -> Run:
    """All of them together."""
    return sum(runs, Run())


class Plays:
    """Methods over prompts.

    Args:
        recording: of the prompts; rewritten at ``path`` where a model had to be asked.
        path: of the recording.
        costs: of a step.
        live: the recorded model, if it is there.
        limit: only the first prompts of each set.
    """

    def __init__(
        self,
        recording: Recording,
        path: Path,
        costs: StepCosts,
        live: Live | None = None,
        limit: int | None = None,
    ) -> None:
        self.costs = costs
        self.info = recording.model.info()
        self.sets: dict[str, list[RecordedPrompt]] = {}
        for prompt in recording.prompts:
            members = self.sets.setdefault(prompt.set, [])
            if limit is None or len(members) < limit:
                members.append(prompt)
        self.loops = {p.id for p in self.prompts if any(looping(t.tokens) for t in p.texts)}
        self._path = path
        self._replayer = Replayer(recording, live, costs)

    @property
    def prompts(self) -> list[RecordedPrompt]:
        """Set by set."""
        return [prompt for members in self.sets.values() for prompt in members]

    def run(
        self,
        name: str,
        make: Make,
        after: Callable[[RecordedPrompt], None] | None = None,
    ) -> dict[str, Run]:
        """What a method comes to on every prompt, in order; ``after`` hears of each one's end."""
        before = self._replayer.recording.size
        found = {}
        lives = 0
        for prompt in self.prompts:
            replayed = self._replayer.replay(self._replayer.part(make(prompt)), prompt)
            lives += replayed.live
            if after is not None:
                after(prompt)
            context = len(prompt.texts[0].prompt)
            steps = replayed.played.steps
            found[prompt.id] = Run(
                tokens=sum(step.committed for step in steps),
                steps=len(steps),
                nodes=sum(step.nodes for step in steps),
                drafts=sum(len(widths) for step in steps for widths in step.levels.values()),
                seconds=sum(
                    self.costs.step(step.nodes + 1, context, 1, step.levels) for step in steps
                ),
            )
        if self._replayer.recording.size > before:
            write(self._path, self._replayer.recording)
        whole = total(found.values())
        click.echo(
            f"{name}: tau {whole.tau:.2f}, {whole.nodes / max(1, whole.steps):.1f} nodes, "
            f"{whole.rate:.0f} tok/s, {lives} prompts live",
            err=True,
        )
        return found

    def groups(self) -> dict[str, list[str]]:
        """Ids of prompts by set, of all together, and of all that do not loop."""
        found = {name: [p.id for p in members] for name, members in self.sets.items()}
        every = [p.id for p in self.prompts]
        return found | {"all": every, "no loop": [i for i in every if i not in self.loops]}

    def grouped(self, runs: Runs) -> dict[str, Run]:
        """Sums by group."""
        return {name: total(runs[i] for i in ids) for name, ids in self.groups().items()}


def best(choices: Sequence[Runs], ids: Sequence[str]) -> tuple[int, Run]:
    """Which of some methods is the fastest on all of these prompts together, and what it does."""
    sums = [total(runs[i] for i in ids) for runs in choices]
    place = max(range(len(sums)), key=lambda i: sums[i].rate)
    return place, sums[place]

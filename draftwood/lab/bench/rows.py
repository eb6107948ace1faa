"""What one (method, prompt, seed, repeat) came to: the record all figures are made of.

Pure: knows nothing of models and clocks.
"""

from dataclasses import dataclass
from statistics import median

from draftwood.costs.busy import Others
from draftwood.engine.stats import Tally
from draftwood.lab.bench import acceptance, forecast
from draftwood.lab.bench.acceptance import Acceptance
from draftwood.lab.bench.forecast import Forecasts
from draftwood.lab.bench.measure import Turn
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.loops import Repeats, pooled, repeats


@dataclass(frozen=True, eq=False)
class Run:
    """One prompt answered by one method, all turns of it.

    Attributes:
        method: the contender's name.
        prompt: what was answered.
        run_seed: which of the run's seeds it was answered with.
        seed: the request's own: the run's seed plus the prompt's number.
        repeat: 0 for the first time.
        group: number of the prompts that were decoded together; the same for every seed.
        turns: the answers.
        peak_memory_mb: most memory in use while the group was decoded; None if unknown.
        others: what other processes used meanwhile, the group's; None if unknown.
    """

    method: str
    prompt: Prompt
    run_seed: int
    seed: int
    repeat: int
    group: int
    turns: tuple[Turn, ...]
    peak_memory_mb: float | None = None
    others: Others | None = None

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """Token ids of each answer."""
        return tuple(turn.completion.tokens for turn in self.turns)


@dataclass(frozen=True, eq=False)
class Row:
    """A run in figures.

    Attributes:
        id: the prompt's, unique.
        set: the prompt's set.
        task: the prompt's.
        run_seed: which of the run's seeds it was answered with.
        seed: the request's own, what it was sampled with.
        repeat: 0 for the first time.
        group: number of the prompts that were decoded together.
        turns: answers given.
        prompt_tokens: context of the first turn.
        tokens: generated over all turns.
        seconds: from asking to the last token, over all turns.
        group_seconds: the same for the whole group.
        ttft: seconds to the first token of the first turn.
        tpot: seconds per token after each turn's first (NaN if there are none).
        tally: sums over all steps.
        acceptance: what became of the drafted nodes.
        forecasts: what was foretold of the steps, and what came of it.
        other: seconds of decoding that no phase covers.
        overhead: median seconds of a step outside the target's forward (NaN if unknown).
        repeats: how much each answer repeats itself.
        truncated: whether a context was cut to fit.
        reasons: why each answer ended.
        peak_memory_mb: most memory in use while the group was decoded; None if unknown.
        others: share of the cores that other processes used meanwhile; None if unknown.
        identical: whether the tokens are the reference's; None if they were not compared.
    """

    id: str
    set: str
    task: str
    run_seed: int
    seed: int
    repeat: int
    group: int
    turns: int
    prompt_tokens: int
    tokens: int
    seconds: float
    group_seconds: float
    ttft: float
    tpot: float
    tally: Tally
    acceptance: Acceptance
    forecasts: Forecasts
    other: float
    overhead: float
    repeats: tuple[Repeats, ...]
    truncated: bool
    reasons: tuple[str, ...]
    peak_memory_mb: float | None
    others: float | None = None
    identical: bool | None = None

    @property
    def looping(self) -> bool:
        """Whether an answer loops."""
        return any(each.loops for each in self.repeats)

    def figures(self) -> dict[str, object]:
        """The row as it is written."""
        tally, repeated = self.tally, pooled(self.repeats)
        return {
            "id": self.id,
            "set": self.set,
            "task": self.task,
            "repeat": self.repeat,
            "group": self.group,
            "run_seed": self.run_seed,
            "seed": self.seed,
            "turns": self.turns,
            "prompt_tokens": self.prompt_tokens,
            "truncated": self.truncated,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "group_seconds": self.group_seconds,
            "ttft": self.ttft,
            "tpot": self.tpot,
            "steps": tally.steps,
            "committed": tally.committed,
            "drafted": tally.drafted,
            "draft_calls": tally.draft_calls,
            "accepted": tally.accepted,
            "tau": tally.mean_acceptance_length,
            "phases": phases(self),
            "overhead_ms_per_step": self.overhead * 1e3,
            "finish_reasons": list(self.reasons),
            "looping": self.looping,
            "repeated_8grams": repeated.repeated,
            "total_8grams": repeated.total,
            "peak_memory_mb": self.peak_memory_mb,
            "other_processes": self.others,
            "identical": self.identical,
        }


def row_of(run: Run, identical: bool | None) -> Row:
    """The figures of a run."""
    completions = [turn.completion for turn in run.turns]
    tally = Tally()
    for completion in completions:
        tally.merge(completion.tally)
    later = sum(len(c.tokens) - 1 for c in completions)
    steps = [seconds for turn in run.turns for seconds in turn.overhead]
    return Row(
        id=run.prompt.id,
        set=run.prompt.set,
        task=run.prompt.task,
        run_seed=run.run_seed,
        seed=run.seed,
        repeat=run.repeat,
        group=run.group,
        turns=len(run.turns),
        prompt_tokens=completions[0].prompt_tokens,
        tokens=sum(len(c.tokens) for c in completions),
        seconds=sum(c.seconds for c in completions),
        group_seconds=sum(turn.group_seconds for turn in run.turns),
        ttft=completions[0].ttft,
        tpot=sum(c.seconds - c.ttft for c in completions) / later if later else float("nan"),
        tally=tally,
        acceptance=acceptance.merged(turn.acceptance for turn in run.turns),
        forecasts=forecast.merged(turn.forecasts for turn in run.turns),
        other=sum(turn.other for turn in run.turns),
        overhead=median(steps) if steps else float("nan"),
        repeats=tuple(repeats(c.tokens) for c in completions),
        truncated=any(turn.context.cut for turn in run.turns),
        reasons=tuple(c.reason for c in completions),
        peak_memory_mb=run.peak_memory_mb,
        others=None if run.others is None else run.others.share,
        identical=identical,
    )


def phases(*rows: Row) -> dict[str, float]:
    """Seconds of decoding by phase, summed over rows; empty if no contender told them."""
    seconds: dict[str, float] = {}
    for row in rows:
        for phase, spent in (*row.tally.seconds.items(), ("other", row.other)):
            seconds[phase] = seconds.get(phase, 0.0) + spent
    return seconds if any(row.tally.seconds for row in rows) else {}

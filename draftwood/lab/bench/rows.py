"""The outcome of one (method, prompt, seed, repeat): the row that all figures are made of.

Pure: knows nothing of models and clocks.
"""

from dataclasses import dataclass
from statistics import median

from draftwood.costs.busy import Others
from draftwood.engine.stats import Tally
from draftwood.lab.bench import acceptance, predictions
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.bench.measure import Turn
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.loops import pooled, repeats


@dataclass(frozen=True, eq=False)
class Run:
    """All turns of one prompt, answered by one method.

    Attributes:
        method: the contender's name.
        prompt: the prompt.
        run_seed: which of the run's seeds it was answered with.
        seed: the request's own: the run's seed plus the prompt's number.
        repeat: 0 for the first time.
        group: number of the prompts that were decoded together; the same for every seed.
        turns: the answers.
        peak_memory_mb: most memory in use while the group was decoded; None if unknown.
        others: use of the cores by other processes during the group; None if unknown.
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


def row_of(run: Run, identical: bool | None) -> RunRow:
    """The figures of a run."""
    completions = [turn.completion for turn in run.turns]
    tally = Tally()
    for completion in completions:
        tally.merge(completion.tally)
    later = sum(len(c.tokens) - 1 for c in completions)
    steps = [seconds for turn in run.turns for seconds in turn.overhead]
    texts = tuple(repeats(c.tokens) for c in completions)
    whole = pooled(texts)
    other = sum(turn.other for turn in run.turns)
    return RunRow(
        id=run.prompt.id,
        set=run.prompt.set,
        task=run.prompt.task,
        repeat=run.repeat,
        group=run.group,
        run_seed=run.run_seed,
        seed=run.seed,
        turns=len(run.turns),
        prompt_tokens=completions[0].prompt_tokens,
        truncated=any(turn.context.cut for turn in run.turns),
        tokens=sum(len(c.tokens) for c in completions),
        seconds=sum(c.seconds for c in completions),
        group_seconds=sum(turn.group_seconds for turn in run.turns),
        ttft=completions[0].ttft,
        tpot=sum(c.seconds - c.ttft for c in completions) / later if later else None,
        steps=tally.steps,
        committed=tally.committed,
        drafted=tally.drafted,
        draft_calls=tally.draft_calls,
        accepted=tally.accepted,
        mean_acceptance_length=tally.mean_acceptance_length if tally.steps else None,
        routes=tally.routes,
        kinds=tally.kinds,
        phases={**tally.seconds, "other": other} if tally.seconds or other else {},
        overhead_ms_per_step=median(steps) * 1e3 if steps else None,
        finish_reasons=tuple(c.reason for c in completions),
        looping=any(each.loops for each in texts),
        repeated_8grams=whole.repeated,
        total_8grams=whole.total,
        peak_memory_mb=run.peak_memory_mb,
        other_processes=None if run.others is None else run.others.share,
        identical=identical,
        repeats=texts,
        acceptance=acceptance.merged(turn.acceptance for turn in run.turns),
        forecasts=predictions.merged(turn.forecasts for turn in run.turns),
    )

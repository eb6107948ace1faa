"""What is run, and in which order: every method on a prompt before the next prompt.

Slow changes of the machine (heat, neighbours) then fall on all methods alike. Knows nothing of
what a contender does or of how its time is taken.
"""

import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from draftwood.bench.contexts import Contexts
from draftwood.bench.measure import Contender, Decoding, Item, play
from draftwood.bench.prompts import Prompt
from draftwood.bench.rows import Run
from draftwood.noise import SEED_LIMIT
from draftwood.sampling import SamplingParams
from draftwood.stats import StepStats


@dataclass(frozen=True)
class Job:
    """One group of prompts for one method."""

    method: str
    repeat: int
    group: int
    items: tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class Where:
    """Which answer some steps belong to."""

    job: Job
    prompt: Prompt
    turn: int


def items(prompts: Sequence[Prompt], sampling: SamplingParams) -> list[Item]:
    """Every prompt with a seed of its own: the run's plus the prompt's number."""
    return [
        Item(prompt, replace(sampling, seed=(sampling.seed + i) % SEED_LIMIT))
        for i, prompt in enumerate(prompts)
    ]


def grouped(members: Sequence[Item], batch: int) -> list[tuple[Item, ...]]:
    """Groups of at most ``batch`` neighbours; a group never spans two sets."""
    groups: list[tuple[Item, ...]] = []
    for item in members:
        last = groups[-1] if groups else ()
        if last and len(last) < batch and last[0].prompt.set == item.prompt.set:
            groups[-1] = (*last, item)
        else:
            groups.append((item,))
    return groups


def plan(
    groups: Sequence[tuple[Item, ...]], methods: Sequence[str], repeats: int, seed: int
) -> list[Job]:
    """All timed jobs in order: repeats, in each all groups, on each all methods, shuffled anew."""
    shuffler = random.Random(seed)
    jobs: list[Job] = []
    for repeat in range(repeats):
        for number, group in enumerate(groups):
            order = list(methods)
            shuffler.shuffle(order)
            jobs += [Job(name, repeat, number, group) for name in order]
    return jobs


def execute(
    jobs: Sequence[Job],
    contenders: Mapping[str, Contender],
    contexts: Contexts,
    decoding: Decoding,
    *,
    warm_up: Sequence[Item],
    starting: Callable[[Job, bool], None],
    watch: Callable[[Where, Sequence[StepStats]], None] | None = None,
) -> Iterator[list[Run]]:
    """Warm every contender up, uncounted, then yield the runs of each job as it ends.

    Args:
        jobs: in order.
        contenders: by the method names of the jobs.
        contexts: encodes the prompts.
        decoding: what is asked for.
        warm_up: the prompts that every contender answers first; the longest ones, so that no timed
            run is the first to need so much memory.
        starting: told each job before it begins, and whether it is timed (False: the warm-up).
        watch: told the steps of every timed answer.
    """
    try:
        _settle()
        for name, contender in contenders.items():
            first = Job(name, 0, 0, tuple(warm_up))
            starting(first, False)
            play(contender, first.items, contexts, decoding)
        _settle()
        for job in jobs:
            starting(job, True)
            told = None if watch is None else partial(_tell, watch, job)
            turns = play(contenders[job.method], job.items, contexts, decoding, told)
            yield [
                Run(job.method, item.prompt, item.sampling.seed, job.repeat, job.group, of_one)
                for item, of_one in zip(job.items, turns, strict=True)
            ]
    finally:
        gc.unfreeze()


def _settle() -> None:
    """Keep what has been loaded, which will not become garbage, out of later collections."""
    gc.collect()
    gc.freeze()


def _tell(
    watch: Callable[[Where, Sequence[StepStats]], None],
    job: Job,
    prompt: Prompt,
    turn: int,
    steps: Sequence[StepStats],
) -> None:
    watch(Where(job, prompt, turn), steps)

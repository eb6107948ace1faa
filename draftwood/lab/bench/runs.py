"""What is run, and in which order: every method on a prompt before the next prompt.

Slow changes of the machine (heat, neighbours) then fall on all methods alike. Knows nothing of
what a contender does or of how its time is taken.
"""

import gc
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from draftwood.costs.busy import watched
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.excerpts import Quote
from draftwood.lab.bench.measure import Contender, Decoding, Item, play
from draftwood.lab.bench.memory import peak_memory
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.rows import Run
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.sampler import SamplingParams


@dataclass(frozen=True)
class Job:
    """One group of prompts for one method, with one of the run's seeds."""

    method: str
    run_seed: int
    repeat: int
    group: int
    items: tuple[Item, ...]

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What tells it from all other jobs of the run."""
        return self.method, self.run_seed, self.repeat, self.group


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
    groups: Mapping[int, Sequence[tuple[Item, ...]]], methods: Sequence[str], repeats: int
) -> list[Job]:
    """All timed jobs in order: repeats, in each all seeds, in each all groups, on each all methods.

    Args:
        groups: of every seed, in order; the first seed also shuffles the methods, anew for each
            group.
        methods: by name.
        repeats: how often each (method, group, seed) is run.
    """
    shuffler = random.Random(next(iter(groups)))
    jobs: list[Job] = []
    for repeat in range(repeats):
        for seed, of_seed in groups.items():
            for number, group in enumerate(of_seed):
                order = list(methods)
                shuffler.shuffle(order)
                jobs += [Job(name, seed, repeat, number, group) for name in order]
    return jobs


@contextmanager
def settled() -> Iterator[None]:
    """Keep what has been loaded, which will not become garbage, out of collections meanwhile."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _named(method: str) -> Iterator[None]:
    """Say in an error which method it is of."""
    try:
        yield
    except DraftwoodError as error:
        raise DraftwoodError(f"{method}: {error}") from error


def warm_up(
    contenders: Mapping[str, Contender],
    group: Sequence[Item],
    contexts: Contexts,
    decoding: Decoding,
    starting: Callable[[Job, bool], None],
) -> None:
    """Let every contender answer a group, uncounted.

    Args:
        contenders: by name.
        group: the longest one, so that no timed run is the first to need so much memory.
        contexts: encodes the prompts.
        decoding: what is asked for.
        starting: told each job before it begins, and that it is not timed.
    """
    with settled():
        for name, contender in contenders.items():
            job = Job(name, group[0].sampling.seed, 0, 0, tuple(group))
            starting(job, False)
            with _named(name):
                play(contender, job.items, contexts, decoding)


def execute(
    jobs: Sequence[Job],
    contenders: Mapping[str, Contender],
    contexts: Contexts,
    decoding: Decoding,
    *,
    device: torch.device,
    starting: Callable[[Job, bool], None],
    watch: Callable[[Where, Sequence[StepStats]], None] | None = None,
    quoting: Callable[[Job], Quote | None] = lambda job: None,  # noqa: ARG005
) -> Iterator[list[Run]]:
    """Yield the runs of each job as it ends.

    Args:
        jobs: in order.
        contenders: by the method names of the jobs.
        contexts: encodes the prompts.
        decoding: what is asked for.
        device: whose memory is looked at.
        starting: told each job before it begins, and that it is timed.
        watch: told the steps of every answer.
        quoting: what makes a job's excerpts, if it is to have any.
    """
    with settled():
        for job in jobs:
            starting(job, True)
            told = None if watch is None else partial(_tell, watch, job)
            with _named(job.method), peak_memory(device) as peak, watched() as neighbours:
                turns = play(
                    contenders[job.method], job.items, contexts, decoding, told, quoting(job)
                )
            yield [
                Run(
                    method=job.method,
                    prompt=item.prompt,
                    run_seed=job.run_seed,
                    seed=item.sampling.seed,
                    repeat=job.repeat,
                    group=job.group,
                    turns=of_one,
                    peak_memory_mb=peak.mb,
                    others=neighbours.others,
                )
                for item, of_one in zip(job.items, turns, strict=True)
            ]


def _tell(
    watch: Callable[[Where, Sequence[StepStats]], None],
    job: Job,
    prompt: Prompt,
    turn: int,
    steps: Sequence[StepStats],
) -> None:
    watch(Where(job, prompt, turn), steps)


CODE = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM ended, as shells have it."""

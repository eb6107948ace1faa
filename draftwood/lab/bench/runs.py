"""Jobs of a run and their order: every method on a prompt before the next prompt.

So slow changes of the machine (heat, other processes) affect all methods alike. In a dialogue all
methods continue plain decoding's answers, so that each turn has one context for all of them.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import torch

from draftwood.costs.busy import watched
from draftwood.engine.request import Request
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.heap import frozen_heap
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.document import REFERENCE, Excerpt
from draftwood.lab.bench.measure import (
    Contender,
    Decoding,
    Item,
    decode_group,
    refuse_failed,
    timed,
)
from draftwood.lab.bench.memory import peak_memory
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.rows import Run
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.sampler import SamplingParams

WARM_UP_TOKENS = 32
"""Most new tokens of a warm-up's answers: enough steps to load all that a run on a CPU uses."""


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
        """Identity of the job in its run."""
        return self.method, self.run_seed, self.repeat, self.group


Watch: TypeAlias = Callable[[Job, Prompt, int, Sequence[StepStats]], None]
"""Called with job, prompt, turn and steps of each answer, outside the clock."""

Quote: TypeAlias = Callable[
    [Job, Prompt, Sequence[int], Sequence[int], Sequence[StepStats]], Excerpt | None
]
"""Asked for an excerpt of (job, prompt, ids of its first context, ids of the answer, its steps)."""


def items(prompts: Sequence[Prompt], sampling: SamplingParams) -> list[Item]:
    """Every prompt with its own seed: the run's seed plus the prompt's number."""
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
    """All timed jobs, ordered by repeat, seed, group and method.

    The order of methods is shuffled. With dialogues plain decoding comes first the first time.

    Args:
        groups: groups by seed, in order; the first seed also shuffles the methods of each group.
        methods: names.
        repeats: runs per (method, group, seed).
    """
    shuffler = random.Random(next(iter(groups)))
    jobs: list[Job] = []
    for repeat in range(repeats):
        for seed, of_seed in groups.items():
            for number, group in enumerate(of_seed):
                order = list(methods)
                shuffler.shuffle(order)
                if not repeat and any(len(item.prompt.turns) > 1 for item in group):
                    order.sort(key=lambda name: name != REFERENCE)
                jobs += [Job(name, seed, repeat, number, group) for name in order]
    return jobs


@contextmanager
def _named(method: str) -> Iterator[None]:
    """Prefix errors with the method's name."""
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
    most: int = WARM_UP_TOKENS,
) -> None:
    """Let every contender decode the beginning of answers to a group, untimed.

    The contexts are longer by what the answers are shorter, so that no timed run is the first to
    need its memory.

    Args:
        contenders: by name.
        group: the longest group.
        contexts: encodes the prompts.
        decoding: length and end of answers.
        starting: called before each job, with False for untimed.
        most: new tokens after which answers end.
    """
    tokens = min(decoding.max_new_tokens, most)
    requests = [
        Request(
            prompt=contexts.longest(item.prompt, decoding.max_new_tokens - tokens),
            max_new_tokens=tokens,
            sampling=item.sampling,
            eos=decoding.eos,
        )
        for item in group
    ]
    with frozen_heap():
        for name, contender in contenders.items():
            starting(Job(name, group[0].sampling.seed, 0, 0, tuple(group)), False)
            with _named(name):
                answers, _ = timed(contender.begin(len(group)), requests)
                for item, answer in zip(group, answers, strict=True):
                    refuse_failed(item.prompt, 0, answer.completion)


def execute(
    jobs: Sequence[Job],
    contenders: Mapping[str, Contender],
    contexts: Contexts,
    decoding: Decoding,
    *,
    device: torch.device,
    starting: Callable[[Job, bool], None],
    watch: Watch | None = None,
    quote: Quote | None = None,
    ended: Sequence[Run] = (),
) -> Iterator[list[Run]]:
    """Yield the runs of each job as it ends.

    Args:
        jobs: in order.
        contenders: by method name.
        contexts: encodes the prompts.
        decoding: length and end of answers.
        device: device whose peak memory is measured.
        starting: called before each job, with True for timed.
        watch: called with the steps of every answer.
        quote: makes the excerpts.
        ended: runs of earlier processes; dialogues continue plain decoding's answers.
    """
    histories: dict[int, dict[str, tuple[tuple[int, ...], ...]]] = {}
    _remember(histories, ended)
    with frozen_heap():
        for job in jobs:
            starting(job, True)
            with _named(job.method), peak_memory(device) as peak, watched() as other:
                turns = decode_group(
                    contenders[job.method],
                    job.items,
                    contexts,
                    decoding,
                    watch and partial(watch, job),
                    quote and partial(quote, job),
                    histories.get(job.run_seed),
                )
            runs = [
                Run(
                    method=job.method,
                    prompt=item.prompt,
                    run_seed=job.run_seed,
                    seed=item.sampling.seed,
                    repeat=job.repeat,
                    group=job.group,
                    turns=answered,
                    peak_memory_mb=peak.mb,
                    others=other.others,
                )
                for item, answered in zip(job.items, turns, strict=True)
            ]
            _remember(histories, runs)
            yield runs


def _remember(
    histories: dict[int, dict[str, tuple[tuple[int, ...], ...]]], runs: Sequence[Run]
) -> None:
    """Keep the first answers of plain decoding, by the run's seed and the prompt's id."""
    for run in runs:
        if run.method == REFERENCE:
            histories.setdefault(run.run_seed, {}).setdefault(run.prompt.id, run.tokens)

"""Decoding prompts alone and in batches, and the size of each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from draftwood.engine.engine import Engine
from draftwood.engine.request import Finished, Request, Stepped, checked
from draftwood.engine.stats import Tally
from draftwood.lab.replay.forward_log import ForwardLog


@dataclass(frozen=True)
class StepWork:
    """Size of a step, from which its cost is estimated.

    Attributes:
        nodes: drafted nodes.
        committed: committed tokens, after any cut.
        levels: by source, the number of nodes scored in each forward of a drafter with a model.
    """

    nodes: int
    committed: int
    levels: Mapping[str, tuple[int, ...]]


@dataclass(eq=False)
class PromptRun:
    """All turns of a prompt, decoded.

    Attributes:
        tokens: token ids of each turn's answer.
        tally: statistics over all turns.
        steps: steps of all turns, in order.
        seconds: wall time of decoding and prefills.
        used_model: whether the model was needed.
    """

    tokens: list[tuple[int, ...]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    steps: list[StepWork] = field(default_factory=list)
    seconds: float = 0.0
    used_model: bool = False


def decode(engine: Engine, turns: Sequence[Request], logs: Mapping[str, ForwardLog]) -> PromptRun:
    """Decode turns one after another; drafters keep their state between turns.

    Args:
        engine: a new engine.
        turns: in order.
        logs: forward counts of the drafters with a model, by source.
    """
    run = PromptRun()
    start = perf_counter()
    for turn in turns:
        for event in checked(engine.stream([turn])):
            if isinstance(event, Stepped):
                stats = event.stats
                levels = {source: log.take() for source, log in logs.items()}
                run.steps.append(StepWork(stats.tree.drafted, stats.committed, levels))
            elif isinstance(event, Finished):
                run.tokens.append(event.completion.tokens)
                run.tally.merge(event.completion.tally)
    run.seconds = perf_counter() - start
    return run


@dataclass(frozen=True)
class BatchStep(StepWork):
    """Size of a step of a batch, in all its sequences.

    Attributes:
        batch: sequences.
        context: cached tokens.
    """

    batch: int
    context: int


@dataclass(eq=False)
class BatchRun:
    """Prompts that were decoded in batches.

    Attributes:
        tokens: token ids of each turn's answer, by prompt.
        steps: of the batches, in order.
    """

    tokens: list[list[tuple[int, ...]]]
    steps: list[BatchStep] = field(default_factory=list)


def decode_together(
    engine: Engine, prompts: Sequence[Sequence[Request]], logs: Mapping[str, ForwardLog]
) -> BatchRun:
    """Decode prompts in batches; a turn begins when the one before it has ended.

    Args:
        engine: a new engine.
        prompts: turns of each, with token ids, in order.
        logs: forward counts of the drafters with a model, by source.
    """
    run = BatchRun([[] for _ in prompts])
    waiting = [list(turns) for turns in prompts]
    owners, cached = dict[int, int](), dict[int, int]()

    def begin(prompt: int) -> None:
        if waiting[prompt]:
            turn = waiting[prompt].pop(0)
            number = engine.add(turn)
            owners[number], cached[number] = prompt, len(turn.prompt)

    for prompt in range(len(prompts)):
        begin(prompt)
    while engine.busy:
        events = list(checked(engine.step()))
        stepped = [event for event in events if isinstance(event, Stepped)]
        levels = {source: log.take() for source, log in logs.items()}
        if stepped:
            stats = [event.stats for event in stepped]
            run.steps.append(
                BatchStep(
                    sum(each.tree.drafted for each in stats),
                    sum(each.committed for each in stats),
                    levels,
                    batch=len(stepped),
                    context=sum(cached[event.request_id] for event in stepped),
                )
            )
        for step in stepped:
            cached[step.request_id] += step.stats.committed
        for event in events:
            if isinstance(event, Finished):
                prompt = owners[event.request_id]
                run.tokens[prompt].append(event.completion.tokens)
                begin(prompt)
    return run

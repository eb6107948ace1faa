"""Decoding prompts in batches, and the size of each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from draftwood.engine.engine import Engine
from draftwood.engine.request import Finished, Request, Stepped, checked
from draftwood.lab.replay.forward_log import ForwardLog


@dataclass(frozen=True)
class BatchStep:
    """Size of a step of a batch.

    Attributes:
        batch: sequences.
        context: cached tokens of all of them.
        nodes: drafted nodes of all of them.
        committed: committed tokens, after any cut.
        levels: by source, the number of nodes scored in each forward of a drafter with a model.
    """

    batch: int
    context: int
    nodes: int
    committed: int
    levels: Mapping[str, tuple[int, ...]]


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
    places, cached = dict[int, int](), dict[int, int]()

    def begin(place: int) -> None:
        if waiting[place]:
            turn = waiting[place].pop(0)
            number = engine.add(turn)
            places[number], cached[number] = place, len(turn.prompt)

    for place in range(len(prompts)):
        begin(place)
    while engine.busy:
        events = list(checked(engine.step()))
        stepped = [event for event in events if isinstance(event, Stepped)]
        levels = {source: log.take() for source, log in logs.items()}
        if stepped:
            stats = [event.stats for event in stepped]
            run.steps.append(
                BatchStep(
                    len(stepped),
                    sum(cached[event.request_id] for event in stepped),
                    sum(each.tree.drafted for each in stats),
                    sum(each.committed for each in stats),
                    levels,
                )
            )
        for step in stepped:
            cached[step.request_id] += step.stats.committed
        for event in events:
            if isinstance(event, Finished):
                place = places[event.request_id]
                run.tokens[place].append(event.completion.tokens)
                begin(place)
    return run

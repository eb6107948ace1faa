"""What an engine decodes, and how often its steps wait for the simulated CUDA device."""

from collections.abc import Iterable, Sequence

from draftwood import Engine, Request, SamplingParams
from draftwood.engine.request import Finished
from tests.simulated_cuda import SimulatedCuda

PROMPTS = ((5, 6, 7, 5, 6, 7, 5, 6), (9, 3, 9, 3, 1))
SAMPLINGS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=0.8, top_p=0.9, top_k=30, seed=3),
}


def tokens_of(
    engine: Engine, sampling: SamplingParams, prompts: Iterable[Sequence[int]] = PROMPTS
) -> list[tuple[int, ...]]:
    """Tokens of each prompt, all decoded at once."""
    for prompt in prompts:
        engine.add(Request(prompt, max_new_tokens=12, sampling=sampling))
    found: dict[int, tuple[int, ...]] = {}
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Finished):
                assert event.completion.error is None
                found[event.request_id] = event.completion.tokens
    return [found[i] for i in sorted(found)]


def waits_of(
    engine: Engine, device: SimulatedCuda, sampling: SamplingParams, most: int
) -> tuple[int, int, int]:
    """Waits of an engine's steps, their number, and that of the draft forwards in them.

    The first two of at most ``most`` steps are left out.
    """
    steps, before, forwards = 0, 2, 0
    engine.add(Request(PROMPTS[0], max_new_tokens=40, sampling=sampling))
    while engine.busy and steps < most:
        engine.step()
        steps += 1
        if steps == before:
            device.work.clear()
            forwards = engine._phases.draft_forwards
    assert steps > before
    drafted = engine._phases.draft_forwards - forwards
    return device.work.waits.total(), steps - before, drafted

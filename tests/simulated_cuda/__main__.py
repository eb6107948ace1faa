"""What a step asks of a GPU, counted on the simulated one.

Prints a table::

    python -m tests.simulated_cuda
"""

import click
from torch import nn

from draftwood import Request
from tests.engine.test_on_cuda import SAMPLINGS, drafts, engine
from tests.factories.eagle3_heads import tiny_head
from tests.factories.on_cuda import PROMPTS
from tests.simulated_cuda import SimulatedCuda

METHODS = ("ar", "goose", "auto", "traversal", "talon", "talon:drafter=eagle3")
COUNTS = ("launches", "uploads", "downloads", "waits")
BEFORE, STEPS = 3, 8


def options(name: str) -> dict[str, nn.Module]:
    """What a method drafts with."""
    method, *settings = name.split(":")
    return {"head": tiny_head()} if settings else drafts(method)


def counted(name: str, sampling: str) -> dict[str, float]:
    """Counts of a step, and its draft forwards."""
    with SimulatedCuda() as device:
        decoding = engine(name, options(name), on_device=True, self_test=False)
        decoding.add(Request(PROMPTS[0], max_new_tokens=120, sampling=SAMPLINGS[sampling]))
        for _ in range(BEFORE):
            decoding.step()
        device.work.clear()
        forwards = decoding._phases.draft_forwards
        for _ in range(STEPS):
            assert decoding.busy
            decoding.step()
        forwards = decoding._phases.draft_forwards - forwards
        return {**device.work.per(STEPS), "draft forwards": forwards / STEPS}


def main() -> None:
    """Print the table."""
    columns = (*COUNTS, "draft forwards")
    click.echo("  ".join([f"{'method':24}{'sampling':>10}", *columns]))
    for name in METHODS:
        for sampling in ("greedy", "sampled"):
            found = counted(name, sampling)
            figures = (f"{found[each]:{len(each)}.1f}" for each in columns)
            click.echo("  ".join([f"{name:24}{sampling:>10}", *figures]))


if __name__ == "__main__":
    main()

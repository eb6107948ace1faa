"""Drafters with modules of their own on the simulated CUDA device: a CPU's tokens, and no waits."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from draftwood import Engine, Request, SamplingParams, method
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.protocols import TargetInfo
from draftwood.runner.attach import attach
from tests.factories.dflash_drafters import made_network
from tests.factories.drafted import ENDLESS, target
from tests.factories.eagle3_heads import V, tiny_head
from tests.factories.gemma4_assistants import saved_assistant, target_model
from tests.factories.hydra_heads import made_hydra
from tests.factories.medusa_heads import made_heads
from tests.factories.on_cuda import PROMPTS, SAMPLINGS, tokens_of, waits_of
from tests.factories.tiny_llama import tiny_llama
from tests.simulated_cuda import SimulatedCuda, to_simulated

MODULES: dict[str, Callable[[TargetInfo], nn.Module]] = {
    "medusa": lambda info: made_heads(3, info),
    "hydra": made_hydra,
    "dflash": made_network,
    "pard": lambda _: tiny_llama(seed=1, layers=1, vocab_size=V, pard_token=3, **ENDLESS),
    "peagle": lambda _: tiny_head(mask_token=1),
}
"""What each method drafts with, for a target."""


def moved(module: nn.Module) -> nn.Module:
    """A module on the simulated device, with what it borrows of a target."""
    borrowed: Any = getattr(module, "_shared", ())
    for each in borrowed.values() if isinstance(borrowed, dict) else borrowed:
        to_simulated(each)
    if isinstance(module, Eagle3Head):
        to_simulated(module.get_input_embeddings())
    return to_simulated(module)


def engine(name: str, *, on_device: bool, budget: int = 6) -> Engine:
    """An engine whose method drafts with a module of :data:`MODULES`."""
    model = to_simulated(target()) if on_device else target()
    runner = attach(model, packing=False, self_test=False)
    module = MODULES[name](attach(target(), packing=False, self_test=False).info)
    if on_device:
        moved(module)
    given = {"draft" if name == "pard" else "head": module}
    return Engine(runner, method(f"{name}:budget={budget}", **given))


def drafted_by(
    decoding: Engine, sampling: SamplingParams
) -> list[tuple[tuple[int, ...], int, int]]:
    """Tokens of each prompt, and how many of its drafted tokens there were and were accepted."""
    requests = [Request(prompt, max_new_tokens=12, sampling=sampling) for prompt in PROMPTS]
    done = [each.checked() for each in decoding.generate(requests)]
    return [(each.tokens, each.tally.drafted, each.tally.accepted) for each in done]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", MODULES)
def test_a_drafter_has_the_drafts_and_tokens_of_a_cpu(name: str, sampling: str) -> None:
    asked = SAMPLINGS[sampling]
    with SimulatedCuda() as device:
        decoding = engine(name, on_device=True)
        device.work.clear()  # a target's own attention is probed as it is attached
        found = drafted_by(decoding, asked)
    assert found == drafted_by(engine(name, on_device=False), asked)
    assert all(drafted > 0 for _, drafted, _ in found)
    assert not device.work.faults


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", MODULES)
def test_a_step_waits_once_for_the_target_and_once_a_draft_forward(
    name: str, sampling: str
) -> None:
    with SimulatedCuda() as device:
        decoding = engine(name, on_device=True)
        waits, steps, forwards = waits_of(decoding, device, SAMPLINGS[sampling], most=8)
    assert forwards > 0
    assert waits <= steps + forwards, device.work.waits


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_an_assistant_reads_keys_and_values_on_the_device(sampling: str, tmp_path: Path) -> None:
    found = []
    for device in (SimulatedCuda(), None):
        with device or nullcontext():
            model = target_model()
            runner = attach(
                model if device is None else to_simulated(model), packing=False, self_test=False
            )
            head = saved_assistant(tmp_path / str(device is None))
            decoding = Engine(runner, method("talon:drafter=gemma4:budget=6", head=head))
            if device is not None:
                device.work.clear()
            found.append(tokens_of(decoding, SAMPLINGS[sampling]))
        assert device is None or not device.work.faults
    assert found[0] == found[1]

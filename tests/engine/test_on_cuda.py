"""Every method on the simulated CUDA device: the tokens of a CPU, and what a step asks for."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from draftwood import Engine, Request, SamplingParams, method
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.engine.request import Finished
from draftwood.methods import recipes
from draftwood.runner.attach import attach
from draftwood.verifiers.traversal import Traversal
from tests.factories.drafted import drafts as drafts_of
from tests.factories.drafted import target
from tests.factories.eagle3_heads import embedding
from tests.factories.given_costs import drafting_pays
from tests.factories.on_cuda import PROMPTS, waits_of
from tests.factories.on_cuda import SAMPLINGS as USUAL
from tests.simulated_cuda import SimulatedCuda, to_simulated

SAMPLINGS = {
    **USUAL,
    "penalties": SamplingParams(
        temperature=0.7, min_p=0.02, repetition_penalty=1.1, presence_penalty=0.3, seed=4
    ),
}


def drafts(name: str) -> dict[str, nn.Module]:
    """What a method drafts with, as its options."""
    name, _, drafter = name.partition(":drafter=")
    return drafts_of([drafter] if drafter else recipes()[name].drafters.values())


def engine(
    name: str,
    options: dict[str, nn.Module],
    *,
    on_device: bool,
    chunk: int = 512,
    self_test: bool = True,
) -> Engine:
    """An engine on a new target; on the simulated device within its context only."""
    model = target()
    for each in (model, *options.values()) if on_device else ():
        to_simulated(each)
        if isinstance(each, Eagle3Head):  # which borrows the target's
            each.set_input_embeddings(to_simulated(embedding()))
    runner = attach(model, packing=False, chunk=chunk, self_test=self_test)
    return Engine(runner, method(name, **options))


@dataclass(frozen=True)
class Decoded:
    """Tokens of each prompt, and how many were drafted and accepted for both."""

    tokens: list[tuple[int, ...]]
    drafted: int
    accepted: int


def decoded(
    name: str, sampling: SamplingParams, device: SimulatedCuda | None = None, **asked: Any
) -> Decoded:
    """Both prompts decoded at once."""
    with device or nullcontext():
        decoding = engine(name, drafts(name), on_device=device is not None, **asked)
        if device is not None:  # the self-test runs the model's own attention
            device.work.clear()
        done = decoding.generate([Request(prompt, 12, sampling) for prompt in PROMPTS])
    tallies = [each.checked().tally for each in done]
    return Decoded(
        [each.tokens for each in done],
        sum(tally.drafted for tally in tallies),
        sum(tally.accepted for tally in tallies),
    )


TIMED = {"adaptive-chain", "throughput-chain"}
"""Methods that draft by what their steps take."""

SILENT = {"ar", "pld"}
"""Methods that draft nothing here: no end of these texts stands in them twice."""


def check_as_on_a_cpu(
    name: str, sampling: str, device: SimulatedCuda, chunk: int = 512, **asked: Any
) -> None:
    """On the device the tokens are a CPU's, and so are the drafts unless time decides on them."""
    found = decoded(name, SAMPLINGS[sampling], device, chunk=chunk, **asked)
    expected = decoded(name, SAMPLINGS[sampling], **asked)
    assert found.tokens == expected.tokens
    assert not device.work.faults
    if name not in TIMED:
        assert found == expected
        assert (found.drafted > 0) == (name not in SILENT)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    "name",
    [name for name in recipes() if not method(name).missing and not method(name).in_target],
)
def test_a_method_has_the_tokens_of_a_cpu(
    name: str, sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting_pays(monkeypatch)
    check_as_on_a_cpu(name, sampling, SimulatedCuda())


@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")
@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("goose", "sampled"),
        ("eagle3", "penalties"),
        *(
            pytest.param(name, sampling, marks=pytest.mark.slow)
            for sampling, names in {
                "greedy": ("auto", "dynatree"),
                "sampled": ("ar", "traversal", "talon"),
                "penalties": ("auto", "goose"),
            }.items()
            for name in names
        ),
    ],
)
def test_recorded_steps_have_the_tokens_of_a_cpu(
    name: str,
    sampling: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the attention kernel, in Triton's interpreter, which takes most of the time."""
    drafting_pays(monkeypatch)
    check_as_on_a_cpu(name, sampling, SimulatedCuda(kernels=True), self_test=False)
    assert not caplog.records, "the kernel and graphs are used"


def test_a_recorded_step_is_launched_at_once() -> None:
    """Beside the recorded forward there are the copies and the reading of its output."""
    launches = []
    for kernels in (False, True):
        with SimulatedCuda(kernels=kernels) as device:
            decoding = engine("ar", {}, on_device=True, self_test=False)
            decoding.add(Request(PROMPTS[0], max_new_tokens=40))
            for _ in range(3):
                decoding.step()
            device.work.clear()
            for _ in range(4):
                decoding.step()
            launches.append(device.work.per(4)["launches"])
            assert device.work.per(4)["waits"] == 1
    as_it_is, recorded = launches
    assert recorded < 15
    assert as_it_is > 200


def test_prompts_in_chunks_have_the_tokens_of_a_cpu() -> None:
    check_as_on_a_cpu("goose", "greedy", SimulatedCuda(), chunk=2)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ["ar", "pld", "tr", "iso3", "iso5", "goose", "auto"])
def test_a_step_waits_once(name: str, sampling: str) -> None:
    """One upload before the forward, one to commit a path that is no chain, and one download."""
    steps, before = 0, 3
    with SimulatedCuda() as device:
        decoding = engine(name, {}, on_device=True)
        decoding.add(Request(PROMPTS[0], max_new_tokens=40, sampling=SAMPLINGS[sampling]))
        while decoding.busy:
            decoding.step()
            steps += 1
            if steps == before:
                device.work.clear()
    assert steps > before
    work = device.work.per(steps - before)
    assert work["uploads"] <= 2
    assert work["downloads"] == work["waits"] == 1


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        *((name, "greedy") for name in ("traversal", "talon", "dynatree", "sd")),
        *((name, "sampled") for name in ("talon", "dynatree", "sd")),
        *((name, "sampled") for name in ("traversal", "rrsw", "block")),
        *((f"{name}:drafter=eagle3", "greedy") for name in ("talon", "traversal")),
        ("eagle3", "sampled"),
        ("traversal:drafter=eagle3", "sampled"),
    ],
)
def test_a_step_with_a_draft_model_waits_once_a_forward(name: str, sampling: str) -> None:
    check_waits(name, drafts(name), sampling)


@pytest.mark.parametrize(
    ("name", "drafter", "sampling"),
    [
        ("auto", "model", "greedy"),
        ("auto", "eagle3", "greedy"),
        ("auto", "eagle3", "sampled"),
        ("auto:layout=drawn", "model", "sampled"),
        ("auto:layout=drawn", "eagle3", "sampled"),
    ],
)
def test_a_step_of_auto_waits_for_its_forwards(
    name: str, drafter: str, sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At costs of which levels are worth asking for.

    A level that is drawn waits twice: so few tokens are drawn on the host.
    """
    drafting_pays(monkeypatch)
    a_forward = 2 if "drawn" in name else 1
    check_waits(name, drafts_of([drafter]), sampling, a_forward)


def test_a_verification_that_does_not_begin_early_waits_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(Traversal, "begin", fails)
    check_as_on_a_cpu("traversal", "sampled", SimulatedCuda())
    waits, steps, forwards = counted_waits("traversal", drafts("traversal"), "sampled")
    assert waits > steps + forwards


def counted_waits(name: str, given: dict[str, nn.Module], sampling: str) -> tuple[int, int, int]:
    """Waits of some steps, the steps, and the draft forwards in them."""
    with SimulatedCuda() as device:
        decoding = engine(name, given, on_device=True, self_test=False)
        found = waits_of(decoding, device, SAMPLINGS[sampling], most=10)
    assert found[2] > 0, "there are draft forwards"
    return found


def check_waits(name: str, given: dict[str, nn.Module], sampling: str, a_forward: int = 1) -> None:
    """A step waits once for the target, and so often for a draft forward."""
    waits, steps, forwards = counted_waits(name, given, sampling)
    assert waits <= steps + forwards * a_forward


def test_steps_may_be_inside_and_outside_of_inference_mode() -> None:
    """What a step allocates, the next one writes, whichever mode the caller is in."""
    with SimulatedCuda():
        decoding = engine("goose", {}, on_device=True)
        decoding.add(Request(PROMPTS[0], max_new_tokens=12))
        events = []
        with torch.inference_mode():
            events += decoding.step()
            events += decoding.step()
        while decoding.busy:
            events += decoding.step()
    (found,) = [event.completion for event in events if isinstance(event, Finished)]
    assert found.tokens == decoded("ar", SAMPLINGS["greedy"]).tokens[0]

"""The model of several runs in one process: loaded or inflated once, as two instances."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from draftwood.lab.bench.contenders import Stage
from draftwood.lab.inflate.head import inflate_head
from draftwood.lab.inflate.model import as_llama, inflate
from draftwood.lab.inflate.plan import planned
from draftwood.lab.inflate.room import check_memory
from draftwood.lab.inflate.shapes import preset
from draftwood.models import DTYPES, Loaded, device_named, fingerprint_of, load_quietly


def loaded_stage(model: str, dtype: str, device: str) -> Stage:
    """A model by name, directory or hub id."""
    load = partial(load_quietly, model, dtype, device, None, trust_remote_code=False)
    return Stage(partial(next, instances(load)))


def inflated_name(source: str, size: str) -> str:
    """The name of an inflated model or head in results."""
    return f"{Path(source).name} inflated to {size}"


def inflated_stage(source: str, size: str, head: str | None, dtype: str, device: str) -> Stage:
    """A small model in a named shape, made on the device and never written to a disk.

    Methods take the table and the calibration that are shipped for the small model, and find its
    head, inflated, by its :func:`inflated_name`.

    Raises:
        DraftwoodError: the model or the head cannot be loaded or inflated, or there is no such
            shape or device.
    """
    large, place = preset(size), device_named(device)
    small = load_quietly(source, "float32", "cpu", None, trust_remote_code=False)
    plan = planned(small.model, source, large, head)
    weights = plan.parameters + plan.head_parameters
    check_memory(weights, DTYPES[dtype].itemsize, "choose a smaller shape", place)

    def load() -> Loaded:
        made = inflate(plan.source, large, dtype=DTYPES[dtype], seed=0, device=place)
        return replace(small, name=inflated_name(source, size), model=made)

    stage = Stage(partial(next, instances(load)), computes_as=fingerprint_of(plan.source))
    if head is not None and plan.head is not None:
        made_head = inflate_head(plan.head, as_llama(stage.loaded.model, source), seed=0)
        stage.host.lend_head(inflated_name(head, size), made_head)
    return stage


def instances(load: Callable[[], Loaded]) -> Iterator[Loaded]:
    """Instances of a model, without end; on a GPU they share their weights.

    There, attaching an instance may move its weights, for others too, but leaves their layout. On a
    CPU it changes that, so that others have weights of their own.
    """
    first = load()
    if first.model.device.type == "cpu":
        yield first
        while True:
            yield load()
    # Before it is attached, which changes its modules.
    second = sharing_weights(first)
    yield first
    while True:
        yield second


def sharing_weights(loaded: Loaded) -> Loaded:
    """Another instance, whose parameters and buffers are the same tensors."""
    model = loaded.model
    same = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return replace(loaded, model=copy.deepcopy(model, same))

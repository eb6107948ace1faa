"""The model of several runs in one process: loaded or inflated once, as two instances."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from draftwood.lab.bench.contenders import Stage
from draftwood.lab.inflate.model import as_llama, check_rotary, inflate, shape_of
from draftwood.lab.inflate.shapes import check_fits, preset
from draftwood.models import DTYPES, Loaded, device_named, fingerprint_of, load_quietly


def loaded_stage(model: str, dtype: str, device: str) -> Stage:
    """A model by name, directory or hub id."""
    load = partial(load_quietly, model, dtype, device, None, trust_remote_code=False)
    return Stage(partial(next, instances(load)))


def inflated_name(source: str, size: str) -> str:
    """The name of an inflated model in results."""
    return f"{Path(source).name} inflated to {size}"


def inflated_stage(source: str, size: str, dtype: str, device: str) -> Stage:
    """A small model in a named shape, never written to a disk.

    Methods take the table and the calibration that are shipped for the small model.

    Raises:
        DraftwoodError: the model cannot be loaded or inflated, or there is no such shape or device.
    """
    large, place = preset(size), device_named(device)
    small = load_quietly(source, "float32", "cpu", None, trust_remote_code=False)
    llama = as_llama(small.model, source)
    check_fits(shape_of(llama.config), large)
    check_rotary(llama.config, large)

    def load() -> Loaded:
        made = inflate(llama, large, dtype=DTYPES[dtype], seed=0)
        torch.nn.Module.to(made, place)
        return replace(small, name=inflated_name(source, size), model=made)

    return Stage(partial(next, instances(load)), computes_as=fingerprint_of(llama))


def instances(load: Callable[[], Loaded]) -> Iterator[Loaded]:
    """Instances of a model, without end; on a GPU they share their weights.

    On a CPU, attaching an instance changes the layout of its weights, so that others have their
    own.
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

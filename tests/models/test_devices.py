"""Devices that Draftwood does not run on are refused by name, before anything is loaded."""

import pytest
import torch
from torch import nn

import draftwood
from draftwood import Engine
from draftwood.errors import DraftwoodError
from draftwood.models.devices import refuse_device
from tests.factories.command_line import refused
from tests.factories.tiny_llama import tiny_llama

OTHERS = ("mps", "mps:0", "xpu", "xpu:1", "meta", "hpu", "")


@pytest.mark.parametrize("name", OTHERS)
def test_a_device_of_another_kind_is_refused_by_name(name: str) -> None:
    complaint = (
        f"device '{name}' cannot be used here: Draftwood runs on CPUs and CUDA GPUs only; give cpu"
    )
    with pytest.raises(DraftwoodError, match=complaint):
        refuse_device(name)
    with pytest.raises(DraftwoodError, match=complaint):
        draftwood.load("no/such/model", device=name)
    with pytest.raises(DraftwoodError, match=complaint):
        Engine.load("no/such/model", device=name)
    assert complaint in refused("generate", "x", "--model", "no/such/model", "--device", name)


@pytest.mark.parametrize("name", ["auto", "cpu", "cpu:0", "cuda", "cuda:1", torch.device("cpu")])
def test_devices_of_the_known_kinds_are_not(name: object) -> None:
    refuse_device(name)


def test_a_model_on_another_device_is_refused() -> None:
    model = nn.Module.to(tiny_llama(), "meta")
    complaint = "LlamaForCausalLM is on the device 'meta', and Draftwood runs on CPUs and CUDA"
    with pytest.raises(DraftwoodError, match=complaint):
        draftwood.attach(model)
    with pytest.raises(DraftwoodError, match=complaint):
        Engine(model, "ar")

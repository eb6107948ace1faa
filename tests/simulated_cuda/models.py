"""Moves modules to the simulated device."""

from torch import nn

from tests.simulated_cuda.tensors import SimulatedTensor


def to_simulated(module: nn.Module) -> nn.Module:
    """Move the parameters and buffers in place, as ``module.to("cuda")`` does; ties are kept."""
    moved: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is None or isinstance(parameter, SimulatedTensor):
                continue
            if id(parameter) not in moved:
                there = SimulatedTensor(parameter.detach())
                moved[id(parameter)] = nn.Parameter(there, requires_grad=False)
            part._parameters[name] = moved[id(parameter)]
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, SimulatedTensor):
                part._buffers[name] = SimulatedTensor(buffer)
    return module

"""The recurrent rules, one token after another along one path: the definitions."""

from collections.abc import Callable, Sequence

import torch

Step = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
"""State before a node, and the node: state behind it, and its output."""


def over_tree(
    parents: Sequence[int], state: torch.Tensor, step: Step
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """States and outputs of all nodes, each from the state of its parent."""
    states: list[torch.Tensor] = []
    outputs: list[torch.Tensor] = []
    for node, parent in enumerate(parents):
        after, output = step(state if parent < 0 else states[parent], node)
        states.append(after)
        outputs.append(output)
    return states, outputs


def delta_step(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    logs: torch.Tensor,
    beta: torch.Tensor,
) -> Step:
    """Of one tree, ``[heads, nodes, ..]``; the state is ``[heads, dk, dv]``."""

    def step(state: torch.Tensor, node: int) -> tuple[torch.Tensor, torch.Tensor]:
        decay = logs[:, node].exp()
        state = state * (decay[:, None, None] if decay.ndim == 1 else decay[..., None])
        predicted = torch.einsum("hkv,hk->hv", state, keys[:, node])
        added = beta[:, node, None] * (values[:, node] - predicted)
        state = state + keys[:, node, :, None] * added[:, None]
        return state, torch.einsum("hkv,hk->hv", state, queries[:, node])

    return step


def mamba2_step(
    x: torch.Tensor, dt: torch.Tensor, logs: torch.Tensor, b_in: torch.Tensor, c_out: torch.Tensor
) -> Step:
    """Of one tree, ``[heads, nodes, ..]``; the state is ``[heads, p, N]``."""

    def step(state: torch.Tensor, node: int) -> tuple[torch.Tensor, torch.Tensor]:
        added = (dt[:, node, None] * x[:, node])[..., None] * b_in[:, node, None]
        state = state * logs[:, node].exp()[:, None, None] + added
        return state, torch.einsum("hpn,hn->hp", state, c_out[:, node])

    return step


def mamba1_step(
    x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b_in: torch.Tensor, c_out: torch.Tensor
) -> Step:
    """Of one tree, ``[d, nodes]`` and ``[N, nodes]``; the state is ``[d, N]``."""

    def step(state: torch.Tensor, node: int) -> tuple[torch.Tensor, torch.Tensor]:
        decay = (dt[:, node, None] * a).exp()
        state = state * decay + (dt[:, node] * x[:, node])[:, None] * b_in[:, node]
        return state, state @ c_out[:, node]

    return step


def convolution_step(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> Step:
    """Of one tree, ``[nodes, channels]``; the state is the last ``[taps - 1, channels]``."""

    def step(state: torch.Tensor, node: int) -> tuple[torch.Tensor, torch.Tensor]:
        line = torch.cat([state, inputs[node : node + 1]])
        output = (line * weight.T).sum(0)
        return line[1:], output if bias is None else output + bias

    return step

"""Chosen hidden states of a forward, with every supported version of transformers.

State i enters layer i, and state L, of a model of L layers, is the normed output of the last one.
From transformers 5.23 on, a list of states is numbered so. Earlier versions number the outputs of
layers: state i has number i - 1, and state 0 comes with all states only.
"""

from collections.abc import Sequence

import torch
from transformers.utils import output_capturing

_BY_STATE = hasattr(output_capturing, "resolve_hidden_states_indices")


def wanted(states: Sequence[int]) -> list[int] | bool:
    """The argument ``output_hidden_states`` that makes a model return these states."""
    if _BY_STATE:
        return list(states)
    return [state - 1 for state in states] if all(states) else True


def returned(found: Sequence[torch.Tensor], states: Sequence[int]) -> list[torch.Tensor]:
    """These states, of the ``hidden_states`` that the model returned for :func:`wanted`."""
    before = 0 if _BY_STATE or not all(states) else 1
    return [found[state - before] for state in states]

"""The output of a forward, on the device."""

from typing import Any, NamedTuple

import torch

from draftwood.models.hidden_states import returned


class Scored(NamedTuple):
    """What a forward computes for its tokens.

    Attributes:
        logits: ``[n, V]`` in the model's dtype.
        features: hidden states that enter the tapped layers, ``[n, taps * H]``. Without taps, a
            model that takes a vector beside each token gives its own, ``[n, H]``; else None.
        packed: :func:`draftwood.runner.to_host.packed_rows` of the logits, int32, if they were
            computed too.
    """

    logits: torch.Tensor
    features: torch.Tensor | None
    packed: torch.Tensor | None = None

    def picked(self, places: torch.Tensor, read: torch.Tensor | None = None) -> "Scored":
        """A copy of some tokens' output, int64 ``[m]``; of their logits, those of ``read`` only."""
        features, packed = self.features, self.packed
        read = places if read is None else read
        return Scored(
            self.logits.index_select(0, read),
            None if features is None else features.index_select(0, places),
            None if packed is None else packed.index_select(0, read),
        )


def scored(output: Any, taps: tuple[int, ...]) -> Scored:
    """The output of a model of transformers for one row of tokens."""
    features: torch.Tensor | None
    if taps:
        features = torch.cat(returned(output.hidden_states, taps), dim=-1)
    else:
        features = getattr(output, "hidden", None)
    return Scored(output.logits[0], None if features is None else features[0])

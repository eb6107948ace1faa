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

    def first(self, count: int, read: torch.Tensor | None = None) -> "Scored":
        """A copy of the first tokens' output; of their logits, those of ``read`` only.

        Args:
            count: of the tokens.
            read: int64 ``[m]``, of these.
        """

        def own(rows: torch.Tensor) -> torch.Tensor:
            return rows[:count].clone() if read is None else rows.index_select(0, read)

        return Scored(
            own(self.logits),
            None if self.features is None else self.features[:count].clone(),
            None if self.packed is None else own(self.packed),
        )


def scored(output: Any, taps: tuple[int, ...], states: list[torch.Tensor] | None = None) -> Scored:
    """The output of a model of transformers for one row of tokens.

    Args:
        output: of the model.
        taps: layers whose input is returned.
        states: these inputs, if the output does not have them.
    """
    features: torch.Tensor | None
    if taps:
        found = returned(output.hidden_states, taps) if states is None else states
        features = torch.cat(found, dim=-1)
    else:
        features = getattr(output, "hidden", None)
    return Scored(output.logits[0], None if features is None else features[0])

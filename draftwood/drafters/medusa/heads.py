"""Medusa's heads: residual blocks on the target's last hidden state, and an output each."""

import torch
from torch import nn
from torch.nn import functional

from draftwood.errors import DraftwoodError


class MedusaHeads(nn.Module):
    """Heads of residual blocks; without outputs of their own they share the target's ``lm_head``.

    Source: Cai et al., *Medusa* (2024), section 2.1: ``r + silu(W r + b)``, then a linear map to
    the vocabulary.

    Args:
        heads: number of heads, ``m``.
        layers: residual blocks of each.
        hidden_size: width H of the target's hidden states.
        outputs: tokens ``Vd`` of each head's output; None: that of the target is shared
            (:meth:`share_output`).
        common: one output for all heads.

    Attributes:
        token_ids: int64 ``[Vd]``, the target's id of each output.
    """

    token_ids: torch.Tensor

    def __init__(
        self,
        heads: int,
        layers: int,
        hidden_size: int,
        outputs: int | None = None,
        *,
        common: bool = False,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(layers))
            for _ in range(heads)
        )
        self.lm_heads = nn.ModuleList()
        if outputs is not None:
            for _ in range(1 if common else heads):
                self.lm_heads.append(nn.Linear(hidden_size, outputs, bias=False))
        self.register_buffer("token_ids", torch.arange(outputs or 0))
        self._shared: tuple[nn.Module, ...] = ()

    def share_output(self, module: nn.Module) -> None:
        """Share ``module``, the target's ``lm_head``, ``[V, H]``.

        Raises:
            DraftwoodError: the heads have outputs of their own, or it has another width.
        """
        if len(self.lm_heads):
            raise DraftwoodError("the Medusa heads bring lm_heads themselves; give no lm_head")
        width = self.blocks[0][0].in_features if len(self.blocks[0]) else None  # type: ignore[index,arg-type]
        rows, found = (getattr(module, name, None) for name in ("out_features", "in_features"))
        if not isinstance(rows, int) or width not in (None, found):
            raise DraftwoodError(
                f"the target's lm_head is [{rows}, {found}], but the Medusa heads have width "
                f"{width}; give heads made for this target"
            )
        self.token_ids = torch.arange(rows, device=self.token_ids.device)
        # In a tuple, where nn.Module does not see it.
        self._shared = (module,)

    def hidden(self, states: torch.Tensor) -> torch.Tensor:
        """The heads' last hidden states ``[b, m, H]`` for states ``[b, H]``."""
        found = []
        for blocks in self.blocks:
            rows = states
            for linear in blocks:  # type: ignore[attr-defined]
                rows = rows + functional.silu(linear(rows))
            found.append(rows)
        return torch.stack(found, dim=1)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Logits ``[b, m, Vd]``.

        Args:
            states: ``[b, H]``, the target's last hidden states, after its final norm.
        """
        weight = next(self.parameters()).dtype
        hidden = self.hidden(states.to(weight))
        if self._shared:
            output = self._shared[0]
            flat = hidden.flatten(0, 1).to(next(output.parameters()).dtype)
            logits: torch.Tensor = output(flat)
            return logits.view(*hidden.shape[:2], -1)
        if len(self.lm_heads) == 1:
            common: torch.Tensor = self.lm_heads[0](hidden)
            return common
        rows = [head(hidden[:, i]) for i, head in enumerate(self.lm_heads)]
        return torch.stack(rows, dim=1)

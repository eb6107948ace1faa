"""Execution settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from draftwood.protocols import setting
from draftwood.protocols.settings import Part

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RunOptions(Part):
    """Execution settings; they change the result by rounding only."""

    micro_tokens: int = setting(1024, "Tokens per forward.", least=1)
    precision: Literal["float32", "bfloat16"] | None = setting(
        None,
        "Number format of matrix products.  [default: bfloat16 on a GPU, else float32]",
    )
    checkpoint_every: int = setting(100, "Updates per checkpoint.", least=1)
    stop_after: int | None = setting(None, "Stop after N updates; the run can be resumed.", least=1)
    export: Path | None = setting(
        None, "Also write the model to this directory, once it is finished."
    )

    def mixed(self, device: torch.device) -> bool:
        """Whether matrix products run in bfloat16."""
        default = "bfloat16" if device.type == "cuda" else "float32"
        return (self.precision or default) == "bfloat16"

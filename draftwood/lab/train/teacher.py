"""A finished language model as a head's teacher: frozen, read at its layers and at its end.

Knows transformers' calling convention; refuses to know what learns from it.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from draftwood.errors import DraftwoodError

_SAMPLED = 1024
_PROBE = 4
_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class Reading:
    """What the target makes of text.

    Attributes:
        features: [rows, length, taps * Ht], the hidden states entering the tapped layers.
        last: [rows, length, Ht], its last hidden states, of which its logits are made.
    """

    features: Tensor
    last: Tensor


class Teacher:
    """See the module.

    Args:
        model: a causal language model of transformers; its parameters are frozen here.
        name: what to call it in errors.

    Raises:
        DraftwoodError: its logits are something else than its output matrix makes of its last
            hidden states (some models scale or cap them).
    """

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self.model = model.requires_grad_(False).train(False)
        self.name = name
        self.config = model.config.get_text_config()
        output: nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        if output is None:
            raise DraftwoodError(
                f"{name} has no output matrix, so it is no causal language model; give another "
                "--target."
            )
        self._output = output
        self._examine()

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return int(self.config.num_hidden_layers)

    @property
    def vocab_size(self) -> int:
        """How wide its logits are."""
        return len(self.head)

    @property
    def head(self) -> Tensor:
        """Its output matrix [V, Ht]."""
        weight: Tensor = self._output.weight  # type: ignore[assignment]
        return weight

    @torch.no_grad()
    def read(self, tokens: Tensor, taps: tuple[int, ...], mixed: bool = False) -> Reading:
        """Run it over ``tokens`` int64 [rows, length].

        Args:
            tokens: on its device.
            taps: layers, 0 to ``layers - 1``.
            mixed: whether matrix products run in bfloat16.
        """
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
            states = self.model(
                input_ids=tokens,
                use_cache=False,
                output_hidden_states=[*taps, self.layers],
                logits_to_keep=1,
            ).hidden_states
        features = torch.cat([states[tap] for tap in taps], dim=-1)
        last: Tensor = states[self.layers]
        return Reading(features, last.bfloat16() if mixed else last)

    @torch.no_grad()
    def log_probs(self, last: Tensor) -> Tensor:
        """Its distributions [n, V] in float32 of last hidden states [n, Ht], bfloat16 or its own.

        Products of bfloat16 states run in bfloat16.
        """
        mixed = last.dtype != self.head.dtype
        with torch.autocast(last.device.type, dtype=torch.bfloat16, enabled=mixed):
            logits: Tensor = self._output(last).float()
        return logits.sub_(logits.logsumexp(-1, keepdim=True))

    def fingerprint(self) -> str:
        """A SHA-256 over up to 1,024 values of every parameter: another target has another."""
        digest = hashlib.sha256()
        for name, parameter in sorted(self.model.named_parameters()):
            values = parameter.detach().flatten()
            sample = values[:: max(1, len(values) // _SAMPLED)][:_SAMPLED].float().cpu()
            digest.update(f"{name} {list(parameter.shape)}".encode())
            digest.update(sample.numpy().tobytes())
        return digest.hexdigest()

    @torch.no_grad()
    def _examine(self) -> None:
        probe = torch.arange(_PROBE, device=self.head.device)[None]
        logits = self.model(input_ids=probe, use_cache=False).logits[0].float()
        found = self.log_probs(self.read(probe, (0,)).last[0])
        wanted = logits.log_softmax(-1)
        if found.shape != wanted.shape or (found - wanted).abs().max() > _TOLERANCE:
            raise DraftwoodError(
                f"{self.name} changes its logits after its output matrix (it scales or caps them), "
                "which cannot be followed in training; give another --target."
            )

"""A frozen target that teaches a head: its hidden states and its distributions."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from draftwood.errors import DraftwoodError
from draftwood.models.hidden_states import returned, wanted

_SAMPLED = 1024
_PROBE = 4
_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class TargetStates:
    """Hidden states of the target for a text.

    Attributes:
        features: inputs of the tapped layers, [rows, length, taps * Ht].
        last: last hidden states, from which the logits are computed, [rows, length, Ht].
    """

    features: Tensor
    last: Tensor


class Teacher:
    """A target whose features and distributions train a head.

    Args:
        model: a causal language model of transformers; its parameters are frozen.
        name: its name in messages.

    Attributes:
        config: configuration of its text model.
        head: output matrix [V, Ht].
        layers: number of layers.
        vocab_size: number of logits.

    Raises:
        DraftwoodError: its logits are not the product of output matrix and last hidden states (some
            models scale or cap them).
    """

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self.model = model.requires_grad_(False).train(False)
        self.name = name
        self.config = model.config.get_text_config()
        output: nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        if output is None:
            raise DraftwoodError(
                f"{name} has no output matrix, so it is not a causal language model; give "
                "another --target."
            )
        self._output = output
        self.head: Tensor = output.weight  # type: ignore[assignment]
        self.layers = int(self.config.num_hidden_layers)
        self.vocab_size = len(self.head)
        self._check_logits()

    @torch.no_grad()
    def read(self, tokens: Tensor, taps: tuple[int, ...], mixed: bool = False) -> TargetStates:
        """Run the target on ``tokens``, int64 [rows, length].

        Args:
            tokens: token ids on the target's device.
            taps: layers from 0 to ``layers - 1``.
            mixed: whether matrix products run in bfloat16.
        """
        states = (*taps, self.layers)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
            found = self.model(
                input_ids=tokens,
                use_cache=False,
                output_hidden_states=wanted(states),
                logits_to_keep=1,
            ).hidden_states
        *tapped, last = returned(found, states)
        features = torch.cat(tapped, dim=-1) if tapped else last[..., :0]
        return TargetStates(features, last.bfloat16() if mixed else last)

    @torch.no_grad()
    def log_probs(self, last: Tensor) -> Tensor:
        """Log-probabilities, float32 [n, V], for last hidden states [n, Ht].

        Products with bfloat16 states run in bfloat16.
        """
        mixed = last.dtype != self.head.dtype
        with torch.autocast(last.device.type, dtype=torch.bfloat16, enabled=mixed):
            logits: Tensor = self._output(last).float()
        return logits.sub_(logits.logsumexp(-1, keepdim=True))

    def fingerprint(self) -> str:
        """The digest of its weights; see :func:`weights_digest`."""
        return weights_digest(self.model)

    @torch.no_grad()
    def _check_logits(self) -> None:
        probe = torch.arange(_PROBE, device=self.head.device)[None]
        logits = self.model(input_ids=probe, use_cache=False).logits[0].float()
        found = self.log_probs(self.read(probe, (0,)).last[0])
        wanted = logits.log_softmax(-1)
        if found.shape != wanted.shape or (found - wanted).abs().max() > _TOLERANCE:
            raise DraftwoodError(
                f"{self.name} changes its logits after its output matrix (it scales or caps them), "
                "which training cannot reproduce; give another --target."
            )


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of up to 1,024 values of every parameter, in bfloat16 whatever its dtype."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        values = parameter.detach().flatten()
        sample = values[:: max(1, len(values) // _SAMPLED)][:_SAMPLED].bfloat16().float().cpu()
        digest.update(f"{name} {list(parameter.shape)}".encode())
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()

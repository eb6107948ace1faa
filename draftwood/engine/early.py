"""Verification that begins before the target's output has reached the host.

Sampled trees are tested with p and q, which are on the device. Queued behind the forward, the
results of the tests come to the host in the same copy as the output, so that a step waits once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from draftwood.protocols import (
    BegunVerification,
    EarlyVerifier,
    Verdict,
    Verification,
    Verifier,
)


@dataclass
class EarlyVerdicts:
    """The verification of those trees of a step that can begin early.

    Attributes:
        begun: what the device is doing; None if there is nothing.
        numbers: of the requests whose trees these are.
        found: the tensors of ``begun`` on the host, once they have arrived.
    """

    begun: BegunVerification | None = None
    numbers: Sequence[int] = ()
    found: Sequence[NDArray[Any]] = ()

    @property
    def tensors(self) -> Sequence[torch.Tensor]:
        """What is to come to the host with the output."""
        return () if self.begun is None else self.begun.tensors

    def verdicts(self, cases: Mapping[int, Verification]) -> dict[int, Verdict]:
        """The verdicts by request; none if something failed, or a request has failed since.

        All cases are then verified as if nothing had begun, which tells whose the failure is.
        """
        if self.begun is None or not all(number in cases for number in self.numbers):
            return {}
        own = [cases[number] for number in self.numbers]
        try:
            verdicts = self.begun.verdicts(own, self.found)
        except Exception:  # noqa: BLE001 - foreign code
            return {}
        return dict(zip(self.numbers, verdicts, strict=True))


def begin(verifier: Verifier, cases: Iterable[tuple[int, Verification]]) -> EarlyVerdicts:
    """Begin to verify the trees that allow it.

    Args:
        verifier: of the method.
        cases: by request; their p has logits on a device and nothing on the host.
    """
    if not isinstance(verifier, EarlyVerifier):
        return EarlyVerdicts()
    early = {n: case for n, case in cases if case.p.everywhere and verifier.early(case.tree)}
    if not early:
        return EarlyVerdicts()
    try:
        return EarlyVerdicts(verifier.begin([*early.values()]), [*early])
    except Exception:  # noqa: BLE001 - foreign code; it fails again where it is told apart
        return EarlyVerdicts()

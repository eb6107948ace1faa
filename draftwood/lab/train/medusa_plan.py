"""Settings of Medusa heads that are trained."""

from dataclasses import dataclass

from draftwood.protocols import setting
from draftwood.protocols.settings import Part


@dataclass(frozen=True)
class MedusaPlan(Part):
    """Settings of Medusa heads; their outputs are the target's own."""

    heads: int = setting(4, "Number of heads: the length of draft chains.", least=1)
    layers: int = setting(1, "Residual blocks of a head.", least=1)
    draft_vocab: int | None = setting(
        None,
        "Size of the draft vocabulary, the most frequent tokens.  [default: all, up to 32,000]",
        least=1,
    )

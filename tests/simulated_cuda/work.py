"""What a device was asked to do, by the function of Draftwood that asked."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import draftwood

_PACKAGE = f"{Path(draftwood.__file__).parent}/"
_MODELS = "site-packages/transformers/"


def caller() -> str:
    """The function of Draftwood that is running, as ``runner/cache.py:move``.

    ``"model"`` if a module of transformers runs below it, ``"elsewhere"`` outside of Draftwood.
    """
    frame: FrameType | None = sys._getframe(1)
    model = False
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE):
            place = f"{name.removeprefix(_PACKAGE)}:{frame.f_code.co_name}"
            return "model" if model else place
        model = model or _MODELS in name
        frame = frame.f_back
    return "elsewhere"


@dataclass(frozen=True)
class Work:
    """Counts by caller.

    Attributes:
        launches: kernels.
        uploads: copies from the host.
        downloads: copies to the host.
        waits: times that the host waited for all that had been launched.
        faults: what is wrong, or slow in a way that a CPU does not show, in words.
    """

    launches: Counter[str] = field(default_factory=Counter)
    uploads: Counter[str] = field(default_factory=Counter)
    downloads: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """Begin to count anew."""
        for each in (self.launches, self.uploads, self.downloads, self.waits, self.faults):
            each.clear()

    def per(self, steps: int) -> dict[str, float]:
        """Mean launches, uploads, downloads and waits of so many steps."""
        kinds = ("launches", "uploads", "downloads", "waits")
        return {kind: getattr(self, kind).total() / steps for kind in kinds}

"""The decode loop: draft trees in lockstep, score them in one forward, verify, commit."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftwood.engine.engine import Engine as Engine


def __getattr__(name: str) -> object:
    """Resolve ``Engine`` when it is first used: it imports torch, and its neighbours do not."""
    if name != "Engine":
        raise AttributeError(f"module 'draftwood.engine' has no attribute {name!r}")
    from draftwood.engine.engine import Engine

    return Engine

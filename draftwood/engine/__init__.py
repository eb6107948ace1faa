"""The decode loop: draft trees in lockstep, score them in one forward, verify, commit."""

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Delta, Finished, Request, Stepped

__all__ = ["Completion", "Delta", "Engine", "Finished", "Request", "Stepped"]

"""Finds the runner of an attached model.

The runner is stored *on* the model. It refers to the model, so a separate table would keep every
model alive. A wrapper (PEFT, ``torch.compile``) and the wrapped model count as one model.
"""

from dataclasses import dataclass
from typing import Any

from draftwood.runner.place import base_of
from draftwood.runner.runner import Runner

_KEY = "_draftwood_runner"


@dataclass(frozen=True, eq=False)
class AttachedModel:
    """The record of an attached model.

    Attributes:
        runner: its runner.
        settings: of the attachment, as text.
        tested: whether it passed the self-test.
    """

    runner: Runner
    settings: str
    tested: bool

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        # A copy of the model is not attached.
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def mark_attached(model: Any, runner: Runner, settings: str, *, tested: bool) -> None:
    """Store the model's runner on it."""
    vars(base_of(model))[_KEY] = AttachedModel(runner, settings, tested)


def unmark_attached(model: Any) -> None:
    """Remove the model's runner, if there is one."""
    vars(base_of(model)).pop(_KEY, None)


def attached_runner(model: Any) -> Runner | None:
    """The model's runner, even if the model has changed since; None if it is not attached."""
    known = vars(base_of(model)).get(_KEY)
    return None if known is None else known.runner


def find_attached(model: Any) -> AttachedModel | None:
    """The model's record; None if it is not attached.

    Raises:
        DraftwoodError: its device or dtype has changed since it was attached.
    """
    known: AttachedModel | None = vars(base_of(model)).get(_KEY)
    if known is not None:
        known.runner.refuse_moved()
    return known

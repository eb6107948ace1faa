"""Finds the runner of an attached model.

The runner is stored *on* the model. It refers to the model, so a separate table would keep every
model alive. A wrapper (PEFT, ``torch.compile``) and the wrapped model count as one model.
"""

from dataclasses import dataclass
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.runner.runner import Runner

_KEY = "_draftwood_runner"


@dataclass(frozen=True, eq=False)
class AttachedModel:
    """The record of an attached model.

    Attributes:
        runner: its runner.
        settings: of the attachment, as text.
        tested: whether it passed the self-test.
        place: its dtype and device when it was attached.
    """

    runner: Runner
    settings: str
    tested: bool
    place: str

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        # A copy of the model is not attached.
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def mark_attached(model: Any, runner: Runner, settings: str, *, tested: bool) -> None:
    """Store the model's runner on it."""
    vars(_base(model))[_KEY] = AttachedModel(runner, settings, tested, _place(model))


def unmark_attached(model: Any) -> None:
    """Remove the model's runner, if there is one."""
    vars(_base(model)).pop(_KEY, None)


def attached_runner(model: Any) -> Runner | None:
    """The model's runner, even if the model was moved since; None if it is not attached."""
    known = vars(_base(model)).get(_KEY)
    return None if known is None else known.runner


def find_attached(model: Any) -> AttachedModel | None:
    """The model's record; None if it is not attached.

    Raises:
        DraftwoodError: its device or dtype has changed since it was attached.
    """
    known: AttachedModel | None = vars(_base(model)).get(_KEY)
    if known is not None and known.place != _place(model):
        raise DraftwoodError(
            f"the model was {known.place} when Draftwood attached it and is {_place(model)} now: "
            "call draftwood.detach(model) once, then generate"
        )
    return known


def _base(model: Any) -> Any:
    model = getattr(model, "_orig_mod", model)
    base = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def _place(model: Any) -> str:
    parameter = next(p for p in _base(model).parameters() if p.is_floating_point())
    return f"{parameter.dtype} on {parameter.device}"

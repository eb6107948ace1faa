"""Remembers which models are attached, so that whoever asks for one gets the runner it has.

The runner refers to the model and is therefore kept *on* it: a table on the side would keep every
model alive. A wrapper (PEFT, ``torch.compile``) and what it wraps are one model here. Knows nothing
of how a model is attached.
"""

from dataclasses import dataclass
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.runner.runner import Runner

_KEY = "_draftwood_runner"


@dataclass(frozen=True, eq=False)
class Attached:
    """What is known of an attached model.

    Attributes:
        runner: scores trees with it.
        ways: the settings it was attached with, as they are spelt.
        tested: whether it passed the self-test.
        place: its dtype and device at that time.
    """

    runner: Runner
    ways: str
    tested: bool
    place: str

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        # A copy of the model is not attached.
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def keep(model: Any, runner: Runner, ways: str, *, tested: bool) -> None:
    """Remember that the model has a runner."""
    vars(_base(model))[_KEY] = Attached(runner, ways, tested, _place(model))


def forget(model: Any) -> Runner | None:
    """The model's runner, which is its own no longer; None if it has none."""
    known = vars(_base(model)).pop(_KEY, None)
    return known.runner if isinstance(known, Attached) else None


def found(model: Any) -> Attached | None:
    """What is known of the model; None if it is not attached.

    Raises:
        DraftwoodError: it is on another device or of another dtype by now.
    """
    known = vars(_base(model)).get(_KEY) if hasattr(model, "__dict__") else None
    if not isinstance(known, Attached):
        return None
    place = _place(model)
    if place != known.place:
        raise DraftwoodError(
            f"the model was {known.place} when Draftwood attached it and is {place} now: call "
            "draftwood.detach(model) once, then generate"
        )
    return known


def _base(model: Any) -> Any:
    model = getattr(model, "_orig_mod", model)
    base = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def _place(model: Any) -> str:
    parameter = next(p for p in _base(model).parameters() if p.is_floating_point())
    return f"{parameter.dtype} on {parameter.device}"

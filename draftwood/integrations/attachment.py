"""The runner that a transformers model keeps between calls, and how it is undone.

Attaching a model is costly (its weights are packed, its tree attention is tried out), so it is done
once a model. The runner refers to the model and is therefore kept *on* it: a table on the side
would keep every model alive. Knows nothing of ``generate``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock

from transformers import PreTrainedModel

from draftwood.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.hosting import TargetHost
from draftwood.recipes import Method
from draftwood.target.attach import attach
from draftwood.target.runner import Runner

_KEY = "_draftwood_attachment"
_making = Lock()


class Attachment:
    """A model's runner, with one engine for each method that was asked for.

    One call at a time may use it; calls from other threads wait their turn.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._runner: Runner = attach(model)
        self._host = TargetHost(self._runner)
        self._place = _place(model)
        self._turn = RLock()
        self._engines: dict[str, Engine] = {}

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        # A copy of the model is not attached.
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def check(self, model: PreTrainedModel) -> None:
        """Compare the model with what was attached.

        Raises:
            DraftwoodError: it is on another device or of another dtype by now.
        """
        if _place(model) != self._place:
            raise DraftwoodError(
                f"the model was {self._place} when Draftwood attached it and is {_place(model)} "
                "now: call draftwood.detach(model) once, then generate"
            )

    @contextmanager
    def engine(self, spelling: str, method: Method) -> Iterator[Engine]:
        """The engine of ``method``, which ``spelling`` names, for the length of a call.

        Raises:
            DraftwoodError: this thread is inside a call of the same engine, such as in a callback.
        """
        with self._turn:
            if spelling not in self._engines:
                self._engines[spelling] = Engine(self._runner, method, host=self._host)
            engine = self._engines[spelling]
            if engine.busy:
                raise DraftwoodError(
                    f"this model is already generating with {spelling!r} in the same thread: "
                    "let that call return first, or call another copy of the model"
                )
            yield engine

    def detach(self) -> None:
        """Wait for a call in progress, then give the model back as it was."""
        with self._turn:
            self._engines.clear()
            self._runner.detach()


def attachment_of(model: PreTrainedModel) -> Attachment:
    """The model's attachment; it is attached if it is not yet.

    Raises:
        DraftwoodError: trees cannot be run on this model, or it was moved while attached.
    """
    with _making:
        found = vars(model).get(_KEY)
        if not isinstance(found, Attachment):
            found = vars(model)[_KEY] = Attachment(model)
    found.check(model)
    return found


def _place(model: PreTrainedModel) -> str:
    return f"{model.dtype} on {model.device}"


def detach(model: PreTrainedModel) -> None:
    """Undo what the first ``generate`` with a Draftwood method did to ``model``.

    Nothing happens if there was none. Must not be called from a callback of such a call.
    """
    with _making:
        found = vars(model).pop(_KEY, None)
    if isinstance(found, Attachment):
        found.detach()

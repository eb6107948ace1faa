"""The engines that a transformers model keeps between calls of ``generate``.

Attaching a model is costly (weights are packed, the self-test runs), so :func:`draftwood.attach`
and ``generate`` share one runner per model. The engines accompany the runner.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.runner.attach import runner_of
from draftwood.runner.attached_models import AttachedModel, find_attached
from draftwood.runner.runner import Runner

_attaching = Lock()


class Attachment:
    """A model's engines, one per method and prefix cache.

    One call at a time may use them; calls from other threads wait.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._host = ModelHost(runner)
        self._turn = RLock()
        self._engines: dict[Hashable, tuple[Engine, list[AttachedModel | None]]] = {}

    @contextmanager
    def engine(
        self,
        key: Hashable,
        spelling: str,
        method: Method,
        tokenizer: PreTrainedTokenizerBase | None = None,
        prefix_cache: int | str | None = None,
    ) -> Iterator[Engine]:
        """The engine of ``method``, for the duration of a call.

        Args:
            key: equal for methods with equal settings only; stored until :meth:`close`.
            spelling: the method in messages.
            method: for a new engine.
            tokenizer: the model's, if known; those of draft models are compared with it.
            prefix_cache: as :class:`draftwood.Engine` takes it.

        Raises:
            DraftwoodError: this thread is inside a call of the same engine, e.g. in a callback.
        """
        key = (key, prefix_cache)
        with self._turn:
            engine, drafts = self._engines.get(key, (None, []))
            self._host.tokenizer = tokenizer or self._host.tokenizer
            if engine is None or drafts != _drafts(method):
                engine = Engine(self.runner, method, host=self._host, prefix_cache=prefix_cache)
                # A draft model may be detached before the next call.
                self._engines[key] = engine, _drafts(method)
            if engine.busy:
                raise DraftwoodError(
                    f"this model is already generating with {spelling!r} in the same thread: "
                    "let that call return first, or call another copy of the model"
                )
            yield engine

    def close(self) -> None:
        """Wait for a call in progress and drop the engines."""
        with self._turn:
            self._engines.clear()


def _drafts(method: Method) -> list[AttachedModel | None]:
    """The records of the method's draft models that were given as objects."""
    models = [spec.model for spec in method.drafters.values()]
    return [find_attached(model) for model in models if not isinstance(model, str | None)]


def attachment_of(model: PreTrainedModel) -> Attachment:
    """The model's attachment; the model is attached if it is not yet.

    Raises:
        DraftwoodError: the model cannot run trees, or its device or dtype has changed.
    """
    with _attaching:
        return runner_of(model).companion(Attachment)

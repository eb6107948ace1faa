"""The error of a failed row, raised as ``generate`` would raise it."""

from draftwood.engine.request import Completion
from draftwood.errors import DraftwoodError


def raise_failed(completion: Completion, row: int, rows: int) -> None:
    """Raise the error that ended a row, if there was one.

    Raises:
        Exception: the error of the caller's logits processor or stopping criterion, unchanged.
        DraftwoodError: Draftwood's own error, with the row's number if there are several rows.
    """
    if completion.error is None:
        return
    cause = completion.error.__cause__ or completion.error
    if rows == 1:
        raise cause
    if isinstance(cause, DraftwoodError):
        raise DraftwoodError(f"row {row}: {cause}") from cause
    cause.add_note(f"raised while Draftwood decoded row {row}")
    raise cause

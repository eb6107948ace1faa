"""The error of one row, raised as a caller of ``generate`` expects it."""

from draftwood.engine.request import Completion
from draftwood.errors import DraftwoodError


def raise_failed(completion: Completion, row: int, rows: int) -> None:
    """Raise what ended a row, if that was an error.

    Raises:
        Exception: what a logits processor or a stopping criterion of the caller raised, as it is.
        DraftwoodError: what is Draftwood's own, with the row where there are several.
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

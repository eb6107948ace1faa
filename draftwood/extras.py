"""Optional dependencies: imported where they are used, or refused with the way to get them.

Knows nothing of what they are used for.
"""

import importlib

from draftwood.errors import DraftwoodError


def need(module: str, extra: str) -> None:
    """Import ``module``, which Draftwood's extra ``extra`` installs.

    Raises:
        DraftwoodError: it cannot be imported.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise DraftwoodError(
            f"this needs {module} ({error}): pip install 'draftwood[{extra}]'"
        ) from error

"""The one exception that Draftwood raises for input it cannot honour."""


class DraftwoodError(ValueError):
    """Says in one sentence what was wrong and what to do about it.

    The command line prints it as a single line and exits with code 2.
    """

"""The exceptions that Draftwood raises for what it cannot honour."""


class DraftwoodError(ValueError):
    """Says in one sentence what was wrong and what to do about it.

    The command line prints it as a single line and exits with code 2.
    """


class RequestFailed(DraftwoodError):  # noqa: N818 - a kind of DraftwoodError
    """A request failed while it was decoded; what was raised is its cause.

    The command line prints ``reason`` as a single line and exits with code 1.

    Attributes:
        reason: what was raised, in words.
    """

    reason: str = ""

"""What a run will ask at most."""

from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.checks import CHECKS
from draftwood.lab.endpoint.checks._common import Cost, Size
from draftwood.lab.endpoint.server import PROBES


def plan(size: Size) -> Cost:
    """The cost of all checks, and of finding out what the servers can do."""
    probes = Cost(PROBES * size.sides, PROBES * size.sides)
    return sum((check.cost(size) for check in CHECKS), probes)


def checked_plan(size: Size, most: int) -> Cost:
    """The plan, if it keeps to a limit.

    Raises:
        DraftwoodError: it has more requests than are allowed.
    """
    found = plan(size)
    if found.requests > most:
        raise DraftwoodError(
            f"this takes up to {found.requests} requests, and --max-requests is {most}: raise it, "
            f"or lower --samples ({size.samples})"
        )
    return found

"""Step costs in a file."""

from pathlib import Path

from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.files import read_json


def read_costs(path: Path) -> StepCosts:
    """The step costs in a file: what ``draftwood tune --json`` writes, or bare step costs.

    Raises:
        DraftwoodError: the file cannot be read, or has another content.
    """
    found = read_json(path)
    if isinstance(found, dict) and "costs" in found:
        found = found["costs"]
    try:
        return StepCosts.from_json(found)
    except DraftwoodError as error:
        raise DraftwoodError(f"{path}: {error}") from error

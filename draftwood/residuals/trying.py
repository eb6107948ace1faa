"""Which of the two ways siblings are tried in."""

from collections.abc import Sequence
from enum import Enum

from draftwood.residuals.in_turn import try_in_turn
from draftwood.residuals.spots import Spot, Tried, rows_of
from draftwood.residuals.together import try_together


class Way(Enum):
    """How siblings are tried; the results are the same but for rounding."""

    TOGETHER = "together"
    IN_TURN = "in turn"


def try_children(spots: Sequence[Spot], way: Way | None = None) -> Sequence[Tried]:
    """Try the children of all spots, at least one.

    Args:
        spots: nodes of any trees.
        way: in which; None leaves it to where p is. On the host a call costs next to nothing and
            arithmetic counts, so that less of it wins; on a device the calls count.
    """
    p = rows_of([(spot.case.p, spot.node) for spot in spots])
    if way is None:
        way = Way.IN_TURN if p[0].device.type == "cpu" else Way.TOGETHER
    return try_in_turn(spots, p) if way is Way.IN_TURN else try_together(spots, p)

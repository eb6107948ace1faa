"""Requests with one prompt cache it once: the first one leads, and the others follow.

They get a copy of its slot when its prompt is cached, before anything else is in it. So nothing has
to be kept for it, and recurrent layers have the states that are needed.
"""

import logging
from collections.abc import Iterable, Sequence

from draftwood.engine.joining import JoiningRequest
from draftwood.engine.sequence import RunningRequest
from draftwood.protocols import ResumableTarget

logger = logging.getLogger(__name__)


def leader_of(
    sequence: RunningRequest, joining: Iterable[JoiningRequest], target: ResumableTarget
) -> JoiningRequest | None:
    """The request that one without a slot can follow; None: there is none.

    Args:
        sequence: the one without a slot.
        joining: those whose prompts are being cached.
        target: in whose slots these are.
    """
    own = sequence.request
    for each in joining:
        other = each.sequence.request
        alike = other.namespace == own.namespace and each.leader is None
        # Tuples of unlike lengths are compared up to their first difference.
        same = alike and len(other.ids) == len(own.ids) and other.ids == own.ids
        if same and copies(target, each.sequence.slot):
            return each
    return None


def leaders(joining: Sequence[JoiningRequest]) -> list[JoiningRequest]:
    """Those that follow nobody; whose leader has ended meanwhile does not."""
    return [each for each in joining if each.leader not in joining]


def fork(joining: Sequence[JoiningRequest], target: ResumableTarget) -> None:
    """Copy prompts that are cached now to the slots of the requests that follow.

    A request whose copy fails follows nobody from then on.
    """
    for leader in leaders(joining):
        followers = [each for each in joining if each.leader is leader]
        if not followers or leader.left:
            continue
        slot, length = leader.sequence.slot, leader.done
        whole = target.savable(slot, length) == length
        for each in followers:
            each.leader = None
            if not whole:
                continue
            try:
                target.lend(slot, each.sequence.slot, length)
            except Exception as error:  # noqa: BLE001 - what a device raises without memory
                number = each.sequence.number
                logger.warning("request %d computes its whole prompt: %s", number, error)
            else:
                each.follow(leader)


def copies(target: ResumableTarget, slot: int) -> bool:
    """Whether tokens of a slot can be copied to another one at any time."""
    return target.info.slot_bytes > 0 or target.savable(slot, 1) == 1

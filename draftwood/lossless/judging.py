"""Every verdict that a verifier can come to on given trees, with its probability."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from draftwood.errors import DraftwoodError
from draftwood.lossless.chance import Chance
from draftwood.lossless.tape import MOST, Tape, explore
from draftwood.lossless.tiny import Prefix
from draftwood.protocols import Case, Distributions, Proposals, Verdict, Verifier
from draftwood.tree import ROOT, TokenTree


@dataclass(frozen=True, eq=False)
class Drafted:
    """A tree to be judged, and what is known of it; a :class:`draftwood.protocols.Case` without
    its chance."""

    tree: TokenTree
    p: Distributions
    q: Proposals


def verdicts(
    verifier: Verifier, drafted: Sequence[Drafted], most: int = MOST
) -> list[list[tuple[Verdict, float]]]:
    """For every tree the verdicts on it; one comes as often as there are ways to come to it.

    Raises:
        TooManyOutcomesError: there are more than ``most`` of them in all.
        DraftwoodError: a verdict is not a path of its tree, or chance was used in a way that the
            real numbers do not bear.
    """
    return explore(partial(_judge, verifier), drafted, most)


def committed(tree: TokenTree, verdict: Verdict) -> Prefix:
    """The tokens that a verdict commits, the bonus last."""
    return (*(int(tree.tokens[node]) for node in verdict.path), verdict.bonus)


def _judge(verifier: Verifier, drafted: Sequence[Drafted], tapes: Sequence[Tape]) -> list[Verdict]:
    chances = [Chance(tape) for tape in tapes]
    cases = [
        Case(one.tree, one.p, one.q, chance) for one, chance in zip(drafted, chances, strict=True)
    ]
    found = verifier.verify(cases)
    for one, verdict, chance in zip(drafted, found, chances, strict=True):
        above = ROOT
        for node in verdict.path:
            if one.tree.parents[node] != above:
                raise DraftwoodError(f"the verdict {verdict.path} is not a path from the root")
            above = node
        chance.settle(verdict)
    return found

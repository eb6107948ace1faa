"""Checks the registered verifiers against a file of worked verifications.

What a rule does to a tree is enumerated, never looked up: end probabilities, the law of the bonus
and of the output, the expected number of accepted tokens, the acceptance of each node once it is
reached (what ends there, of all that has not ended at a node visited before), and single runs with
given random numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import without
from draftwood.lab.lossless.entries import spelt
from draftwood.lab.lossless.enumeration import Drafted, committed, verdicts
from draftwood.lab.lossless.exact import EXACT, ROUNDED
from draftwood.lab.lossless.golden_file import (
    RULES,
    Expected,
    GoldenCase,
    GoldenEnsemble,
    read_golden,
)
from draftwood.lab.lossless.planting import SOURCE, Proposed, planted
from draftwood.lab.lossless.shapes import grow
from draftwood.lab.lossless.tape import Tape, explore
from draftwood.lab.lossless.tiny import Prefix, Row, completed, joint
from draftwood.methods import registry
from draftwood.protocols import Verification, Verifier
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder

REACHED = 1e-9
"""Chance below which a node counts as never reached."""

SAME = 1e-9
"""Rows closer than this are one, written with fewer digits."""

TOLERANCES = {torch.float64: EXACT, torch.float32: ROUNDED}


@dataclass(frozen=True)
class GoldenCheck:
    """A case or an ensemble of the file.

    Attributes:
        subject: its name.
        passed: whether every number came out as the file has it.
        compared: how many numbers were compared.
        complaints: those that came out otherwise, a sentence each.
    """

    kind: ClassVar = "golden"

    subject: str
    passed: bool
    compared: int
    complaints: tuple[str, ...]

    def __str__(self) -> str:
        if self.passed:
            return f"golden: {self.compared} numbers reproduced"
        more = f" (and {len(self.complaints) - 1} more)" if len(self.complaints) > 1 else ""
        return f"golden: {self.complaints[0]}{more}"


def check_golden(path: str | Path) -> list[GoldenCheck]:
    """Compare everything in the file, in float64 and in float32.

    Raises:
        DraftwoodError: the file cannot be read, or is not of the format that
            :mod:`draftwood.lab.lossless.golden_file` describes.
    """
    cases, ensembles = read_golden(path)
    found = []
    for case in cases:
        found.append(_check(case.name, [_case(case, dtype) for dtype in TOLERANCES]))
    for ensemble in ensembles:
        found.append(_check(ensemble.name, [_ensemble(ensemble, dtype) for dtype in TOLERANCES]))
    return found


@dataclass(frozen=True)
class _Number:
    """Something computed, what the file has instead, and what share of all chance it concerns:
    rounding weighs the more in a ratio, the rarer its denominator."""

    what: str
    found: float
    expected: float
    share: float = 1.0


def _check(name: str, numbers: Sequence[Iterator[_Number]]) -> GoldenCheck:
    compared = 0
    complaints: list[str] = []
    for (dtype, tolerance), of_dtype in zip(TOLERANCES.items(), numbers, strict=True):
        for number in of_dtype:
            compared += 1
            if not abs(number.found - number.expected) * number.share <= tolerance:
                complaints.append(
                    f"{number.what} is {number.found!r}, the file has {number.expected!r} "
                    f"({str(dtype).removeprefix('torch.')})"
                )
    return GoldenCheck(name, not complaints, compared, tuple(complaints))


def _verifier(rule: str) -> Verifier:
    return cast(Verifier, registry.load("verifiers", RULES[rule])())


def _case(case: GoldenCase, dtype: torch.dtype) -> Iterator[_Number]:
    drafted, numbers = plant(case, dtype, Draw.ONE_HOT)
    for rule, expected in case.rules.items():
        (found,) = verdicts(_verifier(rule), [drafted])
        ends = np.zeros(len(numbers))
        bonus = np.zeros((len(numbers), len(case.p(()))))
        output: dict[Prefix, float] = {}
        for verdict, weight in found:
            node = numbers[(ROOT, *verdict.path)[-1]]
            ends[node] += weight
            bonus[node, verdict.bonus] += weight
            tokens = committed(drafted.tree, verdict)
            output[tokens] = output.get(tokens, 0.0) + weight
        yield from _of_rule(rule, expected, ends, bonus, output)
        if rule == "traversal":
            yield from _when_reached(case, ends)
    yield from _runs(case, dtype)


def _of_rule(
    rule: str, expected: Expected, ends: Row, bonus: Row, output: Mapping[Prefix, float]
) -> Iterator[_Number]:
    for node, end in enumerate(ends.tolist()):
        yield _Number(f"{rule}: end_prob of node {node}", end, expected.end_prob[node])
        wanted = expected.bonus[node]
        if wanted is not None and end > 0:
            for token, share in enumerate((bonus[node] / end).tolist()):
                what = f"{rule}: bonus {token} after node {node}"
                yield _Number(what, share, float(wanted[token]), end)
    for tokens in sorted({*output, *expected.output}):
        what = f'{rule}: output_given_tree of "{spelt(tokens)}"'
        yield _Number(what, output.get(tokens, 0.0), expected.output.get(tokens, 0.0))
    accepted = sum((len(tokens) - 1) * share for tokens, share in output.items())
    yield _Number(f"{rule}: expected_accepted", accepted, expected.expected_accepted)


def _when_reached(case: GoldenCase, ends: Row) -> Iterator[_Number]:
    reached = 1.0
    for node in case.visits:
        if reached <= REACHED:
            return
        what = f"traversal: acceptance of node {node} when reached"
        yield _Number(what, float(ends[node]) / reached, case.when_reached[node], reached)
        reached -= float(ends[node])


@dataclass(frozen=True)
class _Given:
    """Chance with given uniforms, by node; the bonus is whatever is likeliest."""

    uniforms: Sequence[float]

    def accepts(self, node: int, probability: float) -> bool:
        return self.uniforms[node] < probability

    def choose(self, depth: int, weights: torch.Tensor) -> int:  # noqa: ARG002
        return int(weights.argmax())


def _runs(case: GoldenCase, dtype: torch.dtype) -> Iterator[_Number]:
    if not case.runs:
        return
    # A tree of which nothing was drawn goes to the target walk, which asks for no uniforms.
    drafted, numbers = plant(case, dtype, Draw.IID)
    given = [_Given([run.uniforms[number] for number in numbers]) for run in case.runs]
    cases = [Verification(drafted.tree, drafted.p, drafted.q, noise) for noise in given]
    for i, (run, verdict) in enumerate(
        zip(case.runs, _verifier("traversal").verify(cases), strict=True)
    ):
        end = (ROOT, *verdict.path)[-1]
        yield _Number(f"run {i}: accepted_node", numbers[end], run.node)
        for depth, (found, wanted) in enumerate(
            zip_longest(drafted.tree.path_tokens(end), run.tokens, fillvalue=-1)
        ):
            yield _Number(f"run {i}: token {depth} of accepted_tokens", found, wanted)


def _ensemble(ensemble: GoldenEnsemble, dtype: torch.dtype) -> Iterator[_Number]:
    proposed = Proposed(dtype)

    def draw(starts: Sequence[None], tapes: Sequence[Tape]) -> list[TokenTree]:
        return [
            grow(ensemble.shape, ensemble.q, proposed, tape)
            for _, tape in zip(starts, tapes, strict=True)
        ]

    (trees,) = explore(draw, [None])
    yield _Number("n_trees", len(trees), ensemble.trees)
    drafted = [planted(tree, ensemble.p, proposed, dtype) for tree, _ in trees]
    target = joint(ensemble.p, (), ensemble.length)
    for rule, expected in ensemble.accepted.items():
        ends = [
            (committed(tree, verdict), probability * weight)
            for (tree, probability), found in zip(
                trees, verdicts(_verifier(rule), drafted), strict=True
            )
            for verdict, weight in found
        ]
        accepted = sum((len(tokens) - 1) * share for tokens, share in ends)
        yield _Number(f"{rule}: expected_accepted", accepted, expected)
        law = completed(ensemble.p, ends, ensemble.length)
        cells = product(range(ensemble.vocab), repeat=ensemble.length)
        for tokens, share, wanted in zip(cells, law.tolist(), target.tolist(), strict=True):
            what = f'{rule}: probability of "{spelt(tokens)}"'
            yield _Number(f"{what} in output_joint", share, ensemble.output.get(tokens, 0.0))
            yield _Number(f"{what} under Mb", share, wanted)


def plant(case: GoldenCase, dtype: torch.dtype, certain: Draw) -> tuple[Drafted, list[int]]:
    """A case's tree as ours, siblings in the order of verification, and the file's numbers of our
    nodes.

    A child counts as drawn without replacement if its Q is what its siblings of that kind leave,
    else as drawn from its Q with replacement.

    Args:
        case: as read.
        dtype: of p and q.
        certain: how a child counts whose Q is one-hot; ``IID`` if one-hot is what it is drawn from.

    Raises:
        DraftwoodError: a child that was not drawn repeats a sibling's token.
    """
    proposed = Proposed(dtype)
    builder = TreeBuilder(0)
    numbers = [ROOT]
    for node, number in enumerate(numbers):  # which grows meanwhile
        group: Row | None = None
        handle, gone = -1, set[int]()
        for child in case.children[number]:
            q, token = case.proposals[child], case.tokens[child]
            assert q is not None
            draw, row = Draw.IID, -1
            if group is not None and np.allclose(q, without(group, gone), rtol=0, atol=SAME):
                draw, row = Draw.WITHOUT_REPLACEMENT, handle
            elif q[token] == 1:
                draw = certain
                row = -1 if certain is Draw.ONE_HOT else proposed.handle(q)
            elif group is None:
                group, handle = q, proposed.handle(q)
                draw, row = Draw.WITHOUT_REPLACEMENT, handle
            else:
                row = proposed.handle(q)
            if draw is Draw.WITHOUT_REPLACEMENT:
                gone.add(token)
            if builder.add(node, token, SOURCE, draw=draw, q_row=row) != len(numbers):
                raise DraftwoodError(
                    f"case {case.name}: node {child} was not drawn and repeats a sibling's token"
                )
            numbers.append(child)
    return planted(builder.build(), case.p, proposed, dtype), numbers

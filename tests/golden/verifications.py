"""Checks the registered verifiers against worked verifications.

Every outcome of an accept rule on a tree is enumerated: end probabilities, the laws of the bonus
and of the output, the expected number of accepted tokens, the acceptance probability of each node
once it is reached, and single runs with given uniforms. The checks run in float64 and in float32.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import cast

import numpy as np
import torch

from draftwood.lab.lossless.enumeration import committed, verdicts
from draftwood.lab.lossless.exact import EXACT, ROUNDED
from draftwood.lab.lossless.tape import Tape, explore
from draftwood.lab.lossless.tiny import Prefix, Row, completed, joint
from draftwood.methods import registry
from draftwood.protocols import Verification, Verifier
from draftwood.tree import ROOT, Draw, TokenTree
from tests.golden.cases import RULES, Expected, File, GoldenCase, GoldenEnsemble, read_verifications
from tests.golden.entries import Check, as_key
from tests.golden.proposed import ProposedRows, with_distributions
from tests.golden.shapes import grow
from tests.golden.trees import tree_from_golden

REACHED = 1e-9
"""Probability below which a node counts as never reached."""

TOLERANCES = {torch.float64: EXACT, torch.float32: ROUNDED}


def check_verifications(file: File) -> list[Check]:
    """Recompute every case and ensemble of a file.

    Raises:
        DraftwoodError: the file is not of the format that :mod:`tests.golden.cases` describes.
    """
    cases, ensembles = read_verifications(file)
    found = [
        _check(each.record.name, [_case(each, dtype) for dtype in TOLERANCES]) for each in cases
    ]
    return found + [
        _check(each.record.name, [_ensemble(each, dtype) for dtype in TOLERANCES])
        for each in ensembles
    ]


@dataclass(frozen=True)
class _Number:
    """A computed value beside the file's.

    ``share`` is the probability of the event that a ratio is conditioned on: a ratio's tolerance
    grows as its denominator shrinks.
    """

    what: str
    found: float
    expected: float
    share: float = 1.0


def _check(name: str, numbers: Sequence[Iterator[_Number]]) -> Check:
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
    return Check(name, compared, tuple(complaints))


def _verifier(rule: str) -> Verifier:
    return cast(Verifier, registry.load("verifiers", RULES[rule])())


def _case(case: GoldenCase, dtype: torch.dtype) -> Iterator[_Number]:
    drafted, numbers = tree_from_golden(case, dtype, Draw.ONE_HOT)
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
        what = f'{rule}: output_given_tree of "{as_key(tokens)}"'
        yield _Number(what, output.get(tokens, 0.0), expected.output.get(tokens, 0.0))
    accepted = sum((len(tokens) - 1) * share for tokens, share in output.items())
    yield _Number(f"{rule}: expected_accepted", accepted, expected.expected_accepted)


def _when_reached(case: GoldenCase, ends: Row) -> Iterator[_Number]:
    reached = 1.0
    for node in case.record.traversal_visit_order:
        if reached <= REACHED:
            return
        what = f"traversal: acceptance of node {node} when reached"
        yield _Number(
            what,
            float(ends[node]) / reached,
            case.record.traversal_accept_prob_when_reached[node],
            reached,
        )
        reached -= float(ends[node])


@dataclass(frozen=True)
class _Given:
    """Noise with given uniforms by node; the bonus is the most probable token."""

    uniforms: Sequence[float]

    def accepts(self, node: int, probability: float) -> bool:
        return self.uniforms[node] < probability

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        return int(weights.argmax())


def _runs(case: GoldenCase, dtype: torch.dtype) -> Iterator[_Number]:
    runs = case.record.runs_with_given_uniforms_by_node_id
    if not runs:
        return
    # IID, because a tree of one-hot nodes goes to the target walk, which takes no uniforms.
    drafted, numbers = tree_from_golden(case, dtype, Draw.IID)
    given = [_Given([run.u[number] for number in numbers]) for run in runs]
    cases = [Verification(drafted.tree, drafted.p, drafted.q, noise) for noise in given]
    found = _verifier("traversal").verify(cases)
    for i, (run, verdict) in enumerate(zip(runs, found, strict=True)):
        end = (ROOT, *verdict.path)[-1]
        yield _Number(f"run {i}: accepted_node", numbers[end], run.accepted_node)
        tokens = zip_longest(drafted.tree.path_tokens(end), run.accepted_tokens, fillvalue=-1)
        for depth, (token, wanted) in enumerate(tokens):
            yield _Number(f"run {i}: token {depth} of accepted_tokens", token, wanted)


def _ensemble(ensemble: GoldenEnsemble, dtype: torch.dtype) -> Iterator[_Number]:
    proposed = ProposedRows(dtype)

    def draw(starts: Sequence[None], tapes: Sequence[Tape]) -> list[TokenTree]:
        return [
            grow(ensemble.shape, ensemble.q, proposed, tape)
            for _, tape in zip(starts, tapes, strict=True)
        ]

    (trees,) = explore(draw, [None])
    yield _Number("n_trees", len(trees), ensemble.record.n_trees)
    drafted = [with_distributions(tree, ensemble.p, proposed) for tree, _ in trees]
    target = joint(ensemble.p, (), ensemble.record.length)
    for rule in filter(ensemble.record.expected_accepted.__contains__, RULES):
        ends = [
            (committed(tree, verdict), probability * weight)
            for (tree, probability), found in zip(
                trees, verdicts(_verifier(rule), drafted), strict=True
            )
            for verdict, weight in found
        ]
        accepted = sum((len(tokens) - 1) * share for tokens, share in ends)
        expected = ensemble.record.expected_accepted[rule]
        yield _Number(f"{rule}: expected_accepted", accepted, expected)
        law = completed(ensemble.p, ends, ensemble.record.length)
        cells = product(range(ensemble.record.vocab), repeat=ensemble.record.length)
        for tokens, share, wanted in zip(cells, law.tolist(), target.tolist(), strict=True):
            what = f'{rule}: probability of "{as_key(tokens)}"'
            yield _Number(f"{what} in output_joint", share, ensemble.output.get(tokens, 0.0))
            yield _Number(f"{what} under Mb", share, wanted)

"""Checks the registered verifiers against worked verifications.

Every outcome of an accept rule on a tree is enumerated: end probabilities, the laws of the bonus
and of the output, the expected number of accepted tokens, the acceptance probability of each node
once it is reached, and single runs with given uniforms. The checks run in float64 and in float32.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Any, TypeVar, cast

import numpy as np
import torch

from draftwood.lab.lossless.enumeration import committed, verdicts
from draftwood.lab.lossless.exact import EXACT, ROUNDED
from draftwood.lab.lossless.tape import Tape, explore
from draftwood.lab.lossless.tiny import Prefix, Row, completed, joint
from draftwood.methods import registry
from draftwood.protocols import Verification, Verifier
from draftwood.tree import ROOT, Draw, TokenTree
from tests.golden.comparison import Check, Number, compare
from tests.golden.explicit_trees import ProposedRows, explicit_tree
from tests.golden.shapes import grow, parse_shape
from tests.golden.verification_records import (
    RULES,
    RuleOutcome,
    WorkedCase,
    WorkedEnsemble,
    as_key,
    law_of,
    read_cases,
    read_ensembles,
)

T = TypeVar("T", WorkedCase, WorkedEnsemble)

REACHED = 1e-9
"""Probability below which a node counts as never reached."""

TOLERANCES = {torch.float64: EXACT, torch.float32: ROUNDED}


def check_verifications(file: Mapping[str, Any]) -> list[Check]:
    """Recompute every case and ensemble of a file.

    Raises:
        DraftwoodError: the file is not of the form of :mod:`tests.golden.verification_records`.
    """
    cases, ensembles = read_cases(file), read_ensembles(file)
    return [_check(_case, each) for each in cases] + [_check(_ensemble, each) for each in ensembles]


def _check(numbers: Callable[[T, torch.dtype], Iterator[Number]], worked: T) -> Check:
    parts = ((tolerance, numbers(worked, dtype)) for dtype, tolerance in TOLERANCES.items())
    return compare(worked.name, *parts)


def _verifier(rule: str) -> Verifier:
    return cast(Verifier, registry.load("verifiers", RULES[rule])())


def _case(case: WorkedCase, dtype: torch.dtype) -> Iterator[Number]:
    drafted, numbers = explicit_tree(case, dtype, Draw.ONE_HOT)
    for rule, expected in case.rules.items():
        (found,) = verdicts(_verifier(rule), [drafted])
        ends = np.zeros(len(numbers))
        bonus = np.zeros((len(numbers), case.vocab))
        output: dict[str, float] = {}
        for verdict, weight in found:
            node = numbers[(ROOT, *verdict.path)[-1]]
            ends[node] += weight
            bonus[node, verdict.bonus] += weight
            tokens = as_key(committed(drafted.tree, verdict))
            output[tokens] = output.get(tokens, 0.0) + weight
        yield from _of_rule(rule, expected, ends, bonus)
        for tokens in sorted({*output, *expected.output_given_tree}):
            wanted = expected.output_given_tree.get(tokens, 0.0)
            yield Number(f'{rule}: output of "{tokens}"', output.get(tokens, 0.0), wanted)
        accepted = sum(tokens.count(",") * share for tokens, share in output.items())
        yield Number(f"{rule}: expected_accepted", accepted, expected.expected_accepted)
        if rule == "traversal":
            yield from _when_reached(case, ends)
    yield from _runs(case, dtype)


def _of_rule(rule: str, expected: RuleOutcome, ends: Row, bonus: Row) -> Iterator[Number]:
    for node, (end, row, wanted) in enumerate(zip(ends, bonus, expected.bonus, strict=True)):
        yield Number(f"{rule}: end_prob of node {node}", float(end), expected.end_prob[node])
        if wanted is not None and end > 0:
            for token, (share, other) in enumerate(zip(row / end, wanted, strict=True)):
                what = f"{rule}: bonus {token} after node {node}"
                yield Number(what, float(share), other, float(end))


def _when_reached(case: WorkedCase, ends: Row) -> Iterator[Number]:
    reached = 1.0
    for node in case.traversal_visit_order:
        if reached <= REACHED:
            return
        what = f"traversal: acceptance of node {node} when reached"
        expected = case.traversal_accept_prob_when_reached[node]
        yield Number(what, float(ends[node]) / reached, expected, reached)
        reached -= float(ends[node])


@dataclass(frozen=True)
class _GivenNoise:
    """Noise with given uniforms by node; the bonus is the most probable token."""

    uniforms: Sequence[float]

    def accepts(self, node: int, probability: float) -> bool:
        return self.uniforms[node] < probability

    def choose(self, depth: int, weights: torch.Tensor) -> int:
        return int(weights.argmax())


def _runs(case: WorkedCase, dtype: torch.dtype) -> Iterator[Number]:
    # IID, because a tree of one-hot nodes goes to the target walk, which takes no uniforms.
    drafted, numbers = explicit_tree(case, dtype, Draw.IID)
    runs = case.runs_with_given_uniforms_by_node_id
    given = [_GivenNoise([run.u[number] for number in numbers]) for run in runs]
    cases = [Verification(drafted.tree, drafted.p, drafted.q, noise) for noise in given]
    found = _verifier("traversal").verify(cases)
    for i, (run, verdict) in enumerate(zip(runs, found, strict=True)):
        end = (ROOT, *verdict.path)[-1]
        yield Number(f"run {i}: accepted_node", numbers[end], run.accepted_node)
        tokens = zip_longest(drafted.tree.path_tokens(end), run.accepted_tokens, fillvalue=-1)
        for depth, (token, wanted) in enumerate(tokens):
            yield Number(f"run {i}: token {depth} of accepted_tokens", token, wanted)


def _ensemble(ensemble: WorkedEnsemble, dtype: torch.dtype) -> Iterator[Number]:
    p, q, shape = law_of(ensemble.Mb), law_of(ensemble.Ms), parse_shape(ensemble.shape)
    proposed = ProposedRows()

    def draw(starts: Sequence[None], tapes: Sequence[Tape]) -> list[TokenTree]:
        return [grow(shape, q, proposed, tape) for tape in tapes]

    (trees,) = explore(draw, [None])
    yield Number("n_trees", len(trees), ensemble.n_trees)
    drafted = [proposed.drafted(tree, p, dtype) for tree, _ in trees]
    target = joint(p, (), ensemble.length)
    for rule in filter(ensemble.expected_accepted.__contains__, RULES):
        judged = zip(trees, verdicts(_verifier(rule), drafted), strict=True)
        ends: list[tuple[Prefix, float]] = [
            (committed(tree, verdict), probability * weight)
            for (tree, probability), found in judged
            for verdict, weight in found
        ]
        accepted = sum((len(tokens) - 1) * share for tokens, share in ends)
        expected = ensemble.expected_accepted[rule]
        yield Number(f"{rule}: expected_accepted", accepted, expected)
        law = completed(p, ends, ensemble.length)
        sequences = map(as_key, product(range(ensemble.vocab), repeat=ensemble.length))
        for tokens, share, wanted in zip(sequences, law.tolist(), target.tolist(), strict=True):
            what = f'{rule}: probability of "{tokens}"'
            yield Number(f"{what} in output_joint", share, ensemble.output_joint.get(tokens, 0.0))
            yield Number(f"{what} under Mb", share, wanted)

"""Worked verifications as JSON holds them: trees, distributions, and outcomes of accept rules.

``Mb`` and ``Ms`` are the target's and the drafter's rows by comma-separated token prefix below the
root, ``""`` the root's own. Other keys are ignored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.files import Count, decode
from draftwood.lab.lossless.tiny import Law, Prefix

RULES = {
    "traversal": "traversal",
    "rrsw": "rejection",
    "topdown": "rejection",
    "block": "block",
    "naive": "walk",
}
"""Registered verifier of each accept rule, by the file's name of the rule."""

SUM = 1e-6
"""Largest difference of a distribution's sum from 1."""

Values: TypeAlias = tuple[float, ...]
RowsByPrefix: TypeAlias = Mapping[str, Values]


def as_key(prefix: Prefix) -> str:
    """A prefix as a key of the file: tokens joined by commas."""
    return ",".join(map(str, prefix))


def law_of(rows: RowsByPrefix) -> Law:
    """The rows as a function of the prefix."""
    return lambda prefix: np.array(rows[as_key(prefix)])


def check_rows(rows: Iterable[Values], vocab: int) -> None:
    """Make sure that rows are distributions.

    Raises:
        DraftwoodError: a row is not.
    """
    for row in rows:
        if len(row) != vocab or min(row) < 0 or abs(sum(row) - 1) > SUM:
            raise DraftwoodError(f"expected distributions over {vocab} tokens, found {row}")


@dataclass(frozen=True)
class WorkedTree:
    """A tree.

    Attributes:
        token: token by node, -1 for the root.
        parent: parent by node, -1 for the root.
        proposal_Q: law of each node's token given its earlier siblings; null for the root, one-hot
            for a node that was not drawn.
        children_in_verification_order: children by node.
    """

    token: tuple[int, ...]
    parent: tuple[int, ...]
    proposal_Q: tuple[Values | None, ...]  # noqa: N815 - the file's key
    children_in_verification_order: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        children = enumerate(self.children_in_verification_order)
        listed = sorted((child, parent) for parent, own in children for child in own)
        # Parents are earlier nodes, so that every node is below the root.
        known = list(enumerate(self.parent))
        if known[:1] != [(0, -1)] or listed != known[1:] or any(p >= v for v, p in listed):
            raise DraftwoodError("expected every node but the first once, below an earlier parent")
        for token, q in zip(self.token[1:], self.proposal_Q[1:], strict=True):
            if q is None or token < 0 or not q[token] > 0:
                raise DraftwoodError("proposal_Q: expected the distribution of each node's token")


@dataclass(frozen=True)
class RuleOutcome:
    """Outcome of an accept rule on a tree.

    Attributes:
        end_prob: probability that a node is the deepest accepted one, by node.
        bonus: law of the token that follows, by node; null where that cannot be.
        expected_accepted: expected number of accepted tokens.
        output_given_tree: probabilities of the committed tokens.
    """

    end_prob: Values
    bonus: tuple[Values | None, ...]
    expected_accepted: float
    output_given_tree: Mapping[str, float]


@dataclass(frozen=True)
class GivenRun:
    """A verification with a given u by node; a node is accepted iff u is below its probability."""

    u: Values
    accepted_node: Count
    accepted_tokens: Prefix


@dataclass(frozen=True)
class WorkedCase:
    """One tree, and the outcomes of those accept rules that the file has."""

    name: str
    vocab: Count
    Mb: RowsByPrefix
    tree: WorkedTree
    traversal_visit_order: tuple[int, ...]
    traversal_accept_prob_when_reached: Values
    runs_with_given_uniforms_by_node_id: tuple[GivenRun, ...]
    rules: Mapping[str, RuleOutcome]

    def __post_init__(self) -> None:
        check_rows([*self.Mb.values(), *filter(None, self.tree.proposal_Q)], self.vocab)
        n = len(self.tree.token)
        if sorted(self.traversal_visit_order) != list(range(n)):
            raise DraftwoodError("traversal_visit_order: expected every node once")
        by_node = [self.traversal_accept_prob_when_reached]
        by_node += [run.u for run in self.runs_with_given_uniforms_by_node_id]
        by_node += [rule.end_prob for rule in self.rules.values()]
        if any(len(values) != n for values in by_node):
            raise DraftwoodError(f"expected {n} values, one for each node")


@dataclass(frozen=True)
class WorkedEnsemble:
    """All trees of a described shape, drawn from ``Ms``.

    Attributes:
        name: of the ensemble.
        vocab: size of the vocabulary.
        Mb: the target's rows.
        Ms: the drafter's rows.
        shape: description of the trees, as in :mod:`tests.golden.shapes`.
        length: number of tokens of the output law.
        n_trees: number of trees.
        expected_accepted: expected number of accepted tokens, by rule.
        output_joint: law of the next ``length`` tokens.
    """

    name: str
    vocab: Count
    Mb: RowsByPrefix
    Ms: RowsByPrefix
    shape: str
    length: Count
    n_trees: Count
    expected_accepted: Mapping[str, float]
    output_joint: Mapping[str, float]

    def __post_init__(self) -> None:
        check_rows([*self.Mb.values(), *self.Ms.values()], self.vocab)


def read_cases(file: Mapping[str, Any]) -> tuple[WorkedCase, ...]:
    """The cases of a file.

    Raises:
        DraftwoodError: one is malformed.
    """
    whole = [
        {
            "runs_with_given_uniforms_by_node_id": [],
            **entry,
            "rules": {rule: entry[rule] for rule in RULES if rule in entry},
        }
        for entry in file.get("cases", [])
    ]
    return decode(tuple[WorkedCase, ...], whole, "cases")


def read_ensembles(file: Mapping[str, Any]) -> tuple[WorkedEnsemble, ...]:
    """The ensembles of a file.

    Raises:
        DraftwoodError: one is malformed.
    """
    return decode(tuple[WorkedEnsemble, ...], file.get("ensembles", []), "ensembles")

"""Reads worked verifications: trees, distributions, and the exact outcome of each accept rule.

The file is JSON, ``{"cases": [...], "ensembles": [...]}``; unknown keys are ignored. ``Mb`` and
``Ms`` are the target's and the drafter's rows by comma-separated token prefix below the root,
``""`` the root's own.

A case is one tree: ``name``, ``vocab``, ``Mb``, ``tree`` with ``token`` (-1 for the root),
``parent``, ``proposal_Q`` (per node, what its token was drawn from given its earlier siblings: null
for the root, one-hot if it was not drawn) and ``children_in_verification_order``; then for each of
the rules ``traversal``, ``rrsw``, ``block`` and ``naive`` that it knows ``end_prob`` (probability
that a node is the deepest accepted one), ``bonus`` (law of the token that follows, null where that
cannot be), ``expected_accepted`` and ``output_given_tree`` (probabilities of the tokens committed);
``traversal_visit_order`` and ``traversal_accept_prob_when_reached`` (by node); and, optionally,
``runs_with_given_uniforms_by_node_id``: ``u``, ``accepted_node`` and ``accepted_tokens`` (a node is
accepted iff its u is less than its probability).

An ensemble is all trees of a ``shape`` (:mod:`tests.golden.shapes`) drawn from ``Ms``:
``name``, ``vocab``, ``Mb``, ``length``, ``n_trees``, ``expected_accepted`` by rule (``traversal``,
``topdown``, ``naive``), and ``output_joint``, the law of the next ``length`` tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.files import Count, decode
from draftwood.lab.lossless.tape import MOST
from draftwood.lab.lossless.tiny import Prefix, Row
from tests.golden.entries import Table, Values, law, rows, table
from tests.golden.shapes import Place, parse_shape

RULES = {
    "traversal": "traversal",
    "rrsw": "rejection",
    "topdown": "rejection",
    "block": "block",
    "naive": "walk",
}
"""Registered verifier of each accept rule, by the file's name of the rule."""

LONGEST = 32


@dataclass(frozen=True)
class RuleRecord:
    """One rule on one tree, as in the file."""

    end_prob: Values
    bonus: tuple[Values | None, ...]
    expected_accepted: float
    output_given_tree: Mapping[str, float]


@dataclass(frozen=True)
class TreeRecord:
    """The tree of a case, as in the file."""

    token: tuple[int, ...]
    parent: tuple[int, ...]
    proposal_Q: tuple[Values | None, ...]  # noqa: N815 - the file's key
    children_in_verification_order: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RunRecord:
    """One verification with given uniforms by node, as in the file."""

    u: Values
    accepted_node: Count
    accepted_tokens: Prefix


@dataclass(frozen=True)
class CaseRecord:
    """A case, as in the file; its rules are read apart."""

    name: str
    vocab: Count
    Mb: Mapping[str, Values]
    tree: TreeRecord
    traversal_visit_order: tuple[int, ...]
    traversal_accept_prob_when_reached: Values
    runs_with_given_uniforms_by_node_id: tuple[RunRecord, ...]


@dataclass(frozen=True)
class EnsembleRecord:
    """An ensemble, as in the file."""

    name: str
    vocab: Count
    Mb: Mapping[str, Values]
    Ms: Mapping[str, Values]
    shape: str
    length: Count
    n_trees: Count
    expected_accepted: Mapping[str, float]
    output_joint: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Expected:
    """Expected outcome of one rule on one tree."""

    end_prob: Values
    bonus: tuple[Row | None, ...]
    expected_accepted: float
    output: Mapping[Prefix, float]


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """A case with its distributions: p by prefix, q of each node, and outcomes by rule."""

    record: CaseRecord
    p: Table
    proposals: tuple[Row | None, ...]
    rules: Mapping[str, Expected]


@dataclass(frozen=True, eq=False)
class GoldenEnsemble:
    """An ensemble with its distributions by prefix and its parsed shape."""

    record: EnsembleRecord
    p: Table
    q: Table
    shape: tuple[Place, ...]
    output: Mapping[Prefix, float]


@dataclass(frozen=True)
class File:
    """The entries of a file of either form."""

    cases: tuple[Mapping[str, Any], ...]
    ensembles: tuple[Mapping[str, Any], ...]


def read_verifications(file: File) -> tuple[list[GoldenCase], list[GoldenEnsemble]]:
    """The cases and ensembles of a file.

    Raises:
        DraftwoodError: the file is not of the format above.
    """
    cases = [_case(raw, f"cases[{i}]") for i, raw in enumerate(file.cases)]
    ensembles = [_ensemble(raw, f"ensembles[{i}]") for i, raw in enumerate(file.ensembles)]
    if not cases and not ensembles:
        raise DraftwoodError("there are neither cases nor ensembles")
    return cases, ensembles


def _case(raw: Mapping[str, Any], place: str) -> GoldenCase:
    found = decode(CaseRecord, {"runs_with_given_uniforms_by_node_id": [], **raw}, place)
    tree, vocab, n = found.tree, found.vocab, len(found.tree.token)
    proposals = rows(tree.proposal_Q, vocab, f"{place}.tree.proposal_Q")
    if len(proposals) != n or any(
        q is None or not 0 <= token < vocab or not q[token] > 0
        for token, q in zip(tree.token[1:], proposals[1:], strict=True)
    ):
        raise DraftwoodError(
            f"{place}.tree.proposal_Q: expected null for the root, and for each other node the "
            "distribution of its token"
        )
    _check_children(tree, n, f"{place}.tree")
    if sorted(found.traversal_visit_order) != list(range(n)):
        raise DraftwoodError(f"{place}.traversal_visit_order: expected every node once")
    _check_length(found.traversal_accept_prob_when_reached, n, f"{place}.traversal_accept_prob")
    for i, run in enumerate(found.runs_with_given_uniforms_by_node_id):
        _check_length(run.u, n, f"{place}.runs_with_given_uniforms_by_node_id[{i}].u")
    return GoldenCase(
        found,
        table(found.Mb, vocab, f"{place}.Mb"),
        proposals,
        {rule: _expected(raw[rule], n, vocab, f"{place}.{rule}") for rule in RULES if rule in raw},
    )


def _check_length(values: Sequence[object], n: int, place: str) -> None:
    if len(values) != n:
        raise DraftwoodError(f"{place}: expected {n} values, one for each node")


def _check_children(tree: TreeRecord, n: int, place: str) -> None:
    _check_length(tree.parent, n, f"{place}.parent")
    listed = sorted(
        (child, parent)
        for parent, own in enumerate(tree.children_in_verification_order)
        for child in own
    )
    # Parents are earlier nodes, so that every node is below the root.
    if (
        not n
        or tree.parent[0] != -1
        or len(tree.children_in_verification_order) != n
        or listed != list(enumerate(tree.parent))[1:]
        or any(parent >= child for child, parent in enumerate(tree.parent))
    ):
        raise DraftwoodError(
            f"{place}.parent: expected -1 for node 0, and every other node once, below its earlier "
            "parent"
        )


def _expected(raw: object, n: int, vocab: int, place: str) -> Expected:
    found = decode(RuleRecord, raw, place)
    _check_length(found.end_prob, n, f"{place}.end_prob")
    _check_length(found.bonus, n, f"{place}.bonus")
    return Expected(
        found.end_prob,
        rows(found.bonus, vocab, f"{place}.bonus"),
        found.expected_accepted,
        law(found.output_given_tree, f"{place}.output_given_tree"),
    )


def _ensemble(raw: Mapping[str, Any], place: str) -> GoldenEnsemble:
    found = decode(EnsembleRecord, raw, place)
    vocab, length = found.vocab, found.length
    if length > LONGEST or not 1 <= vocab**length <= MOST:
        raise DraftwoodError(
            f"{place}.length: expected at most {MOST} outcomes of {vocab} tokens each"
        )
    try:
        shape = parse_shape(found.shape)
    except DraftwoodError as error:
        raise DraftwoodError(f"{place}.shape: {error}") from error
    return GoldenEnsemble(
        found,
        table(found.Mb, vocab, f"{place}.Mb"),
        table(found.Ms, vocab, f"{place}.Ms"),
        shape,
        law(found.output_joint, f"{place}.output_joint"),
    )

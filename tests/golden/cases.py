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

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.tape import MOST
from draftwood.lab.lossless.tiny import Prefix, Row
from tests.golden.entries import Entry, Table
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


@dataclass(frozen=True, eq=False)
class Expected:
    """Expected outcome of one rule on one tree; keys as in the module's docstring."""

    end_prob: tuple[float, ...]
    bonus: tuple[Row | None, ...]
    expected_accepted: float
    output: Mapping[Prefix, float]


@dataclass(frozen=True)
class GivenRun:
    """One verification with given uniforms (by node): its last accepted node and its tokens."""

    uniforms: tuple[float, ...]
    node: int
    tokens: Prefix


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """One tree; nodes are numbered as in the file.

    Attributes:
        name: name of the case.
        p: the target's rows.
        tokens: token of each node, -1 for the root.
        parents: parent of each node, -1 for the root.
        proposals: row of q that each node was drawn from; None for the root.
        children: children of each node, in order of verification.
        rules: expected outcomes by rule, under the file's names.
        visits: nodes in the order in which traversal verification tests them.
        when_reached: acceptance probability of each node once traversal verification reaches it.
        runs: verifications with given uniforms.
    """

    name: str
    p: Table
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    proposals: tuple[Row | None, ...]
    children: tuple[tuple[int, ...], ...]
    rules: Mapping[str, Expected]
    visits: tuple[int, ...]
    when_reached: tuple[float, ...]
    runs: tuple[GivenRun, ...]


@dataclass(frozen=True, eq=False)
class GoldenEnsemble:
    """All trees of a shape; see the module."""

    name: str
    p: Table
    q: Table
    shape: tuple[Place, ...]
    vocab: int
    length: int
    trees: int
    accepted: Mapping[str, float]
    output: Mapping[Prefix, float]


def read_verifications(whole: Entry) -> tuple[list[GoldenCase], list[GoldenEnsemble]]:
    """The cases and ensembles of a file.

    Raises:
        DraftwoodError: the file is not of the format above.
    """
    cases = [_case(entry) for entry in whole.entries("cases")]
    ensembles = [_ensemble(entry) for entry in whole.entries("ensembles")]
    if not cases and not ensembles:
        raise DraftwoodError(f"{whole.where}: there are neither cases nor ensembles")
    return cases, ensembles


def _case(entry: Entry) -> GoldenCase:
    entry.where = f"{entry.where} ({entry.text('name')})"
    vocab = entry.count("vocab")
    tree = entry.entry("tree")
    tokens = tree.integers("token")
    n = len(tokens)
    parents = tree.integers("parent")
    children = _children(tree, parents, n)
    proposals = tree.rows("proposal_Q", vocab)
    if len(proposals) != n or any(
        row is None or not 0 <= token < vocab or not row[token] > 0
        for token, row in zip(tokens[1:], proposals[1:], strict=True)
    ):
        raise tree.wrong(
            "proposal_Q", "null for the root, and for each other node the distribution of its token"
        )
    visits = entry.integers("traversal_visit_order")
    if sorted(visits) != list(range(n)):
        raise entry.wrong("traversal_visit_order", "every node once")
    return GoldenCase(
        entry.text("name"),
        entry.table("Mb", vocab),
        tokens,
        parents,
        proposals,
        children,
        {rule: _expected(entry.entry(rule), n, vocab) for rule in RULES if rule in entry},
        visits,
        entry.numbers("traversal_accept_prob_when_reached", n),
        tuple(_run(run, n) for run in entry.entries("runs_with_given_uniforms_by_node_id")),
    )


def _children(tree: Entry, parents: Sequence[int], n: int) -> tuple[tuple[int, ...], ...]:
    key = "children_in_verification_order"
    raw = tree.of(key, list, "a list of lists of nodes")
    if len(parents) != n or not n or parents[0] != -1 or len(raw) != n:
        raise tree.wrong("parent", "as long as the others, -1 for node 0")
    if not all(isinstance(own, list) and all(type(v) is int for v in own) for own in raw):
        raise tree.wrong(key, "a list of lists of nodes")
    found = tuple(tuple(own) for own in raw)
    listed = sorted((child, parent) for parent, own in enumerate(found) for child in own)
    # Earlier nodes first, so that every node hangs from the root.
    if listed != list(enumerate(parents))[1:] or any(p >= c for c, p in enumerate(parents)):
        raise tree.wrong(key, "every node but the root, once, below its earlier parent")
    return found


def _expected(entry: Entry, n: int, vocab: int) -> Expected:
    bonus = entry.rows("bonus", vocab)
    if len(bonus) != n:
        raise entry.wrong("bonus", f"a list of {n} distributions or nulls")
    return Expected(
        entry.numbers("end_prob", n),
        bonus,
        entry.number("expected_accepted"),
        entry.law("output_given_tree"),
    )


def _run(entry: Entry, n: int) -> GivenRun:
    return GivenRun(
        entry.numbers("u", n), entry.count("accepted_node"), entry.integers("accepted_tokens")
    )


def _ensemble(entry: Entry) -> GoldenEnsemble:
    entry.where = f"{entry.where} ({entry.text('name')})"
    vocab, length = entry.count("vocab"), entry.count("length")
    if length > LONGEST or not 1 <= vocab**length <= MOST:
        raise entry.wrong("length", f"small enough for {MOST} outcomes of {vocab} tokens each")
    accepted = entry.entry("expected_accepted")
    try:
        shape = parse_shape(entry.text("shape"))
    except DraftwoodError as error:
        raise DraftwoodError(f"{entry.where}: {error}") from error
    return GoldenEnsemble(
        entry.text("name"),
        entry.table("Mb", vocab),
        entry.table("Ms", vocab),
        shape,
        vocab,
        length,
        entry.count("n_trees"),
        {rule: accepted.number(rule) for rule in RULES if rule in accepted},
        entry.law("output_joint"),
    )

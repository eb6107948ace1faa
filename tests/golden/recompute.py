"""Recomputes tests/data/verifications.json with the accept rules in exact fractions."""

import itertools
import random
from fractions import Fraction
from typing import Any

from tests.golden.fraction_rules import (
    RULES,
    SHAPES,
    Dist,
    Tree,
    V,
    accepted,
    draw,
    output,
    table,
    trees,
)


def floats(row: Dist | None) -> list[float] | None:
    return None if row is None else [float(x) for x in row]


def as_key(prefix: tuple[int, ...]) -> str:
    return ",".join(map(str, prefix))


def rows(law: dict[tuple[int, ...], Dist]) -> dict[str, Any]:
    return {as_key(prefix): floats(row) for prefix, row in law.items()}


def case(name: str, tree: Tree, p: dict[tuple[int, ...], Dist]) -> dict[str, Any]:
    law = p.__getitem__
    n = len(tree.token)
    chain = all(len(tree.children(node)) < 2 for node in range(n))
    found = {rule: f(tree, law) for rule, f in RULES.items() if rule != "block" or chain}
    walked = found["traversal"]
    rng = random.Random(n)
    runs = []
    for _ in range(6):
        u = [round(rng.random(), 3) for _ in range(n)]
        end = next(v for v in walked.visits if v == 0 or u[v] < walked.asked[v])
        runs.append({"u": u, "accepted_node": end, "accepted_tokens": list(tree.path(end))})
    return {
        "name": name,
        "vocab": V,
        "Mb": rows(p),
        "tree": {
            "token": tree.token,
            "parent": tree.parent,
            "proposal_Q": [None, *(floats(q) for q in tree.q[1:])],
            "children_in_verification_order": [tree.children(v) for v in range(n)],
        },
        "traversal_visit_order": walked.visits,
        "traversal_accept_prob_when_reached": [float(x) for x in walked.asked],
        "runs_with_given_uniforms_by_node_id": runs,
        **{
            rule: {
                "end_prob": [float(x) for x in result.end],
                "bonus": [floats(row) for row in result.bonus],
                "expected_accepted": float(accepted(tree, result)),
                "output_given_tree": {
                    as_key(k): float(x) for k, x in sorted(output(tree, result).items())
                },
            }
            for rule, result in found.items()
        },
    }


def ensemble(
    name: str, p: dict[tuple[int, ...], Dist], q: dict[tuple[int, ...], Dist]
) -> dict[str, Any]:
    text, shape, depth = SHAPES[name]
    drawn = list(draw(shape, q.__getitem__))
    assert sum(weight for _, weight in drawn) == 1
    names = {"traversal": "traversal", "topdown": "rrsw", "naive": "naive"}
    joint = {prefix: Fraction(1) for prefix in itertools.product(range(V), repeat=depth + 1)}
    for prefix in joint:
        for i, token in enumerate(prefix):
            joint[prefix] *= p[prefix[:i]][token]
    return {
        "name": name,
        "shape": text,
        "vocab": V,
        "length": depth + 1,
        "n_trees": len(drawn),
        "expected_accepted": {
            column: float(sum(w * accepted(t, RULES[rule](t, p.__getitem__)) for t, w in drawn))
            for column, rule in names.items()
        },
        "Mb": rows(p),
        "Ms": rows(q),
        "output_joint": {as_key(k): float(x) for k, x in joint.items()},
    }


def document() -> dict[str, Any]:
    """The whole file."""
    p, q = table(seed=33, depth=3), table(seed=7, depth=2)
    return {
        "format": "see draftwood.lossless.golden_file",
        "cases": [case(name, tree, p) for name, tree in trees(q.__getitem__).items()],
        "ensembles": [
            ensemble(name, {k: r for k, r in p.items() if len(k) < 3}, q) for name in SHAPES
        ],
    }

"""Recomputes tests/data/verifications.json with the literal accept rules in exact fractions."""

import itertools
import math
import random
from typing import Any

from tests.factories.literal_rules import RULES, Dist, Path, Tree
from tests.golden.fraction_trees import SHAPES, V, draw, table, trees


def floats(row: Dist | None) -> list[float] | None:
    return None if row is None else [float(x) for x in row]


def as_key(prefix: Path) -> str:
    return ",".join(map(str, prefix))


def rows(law: dict[Path, Dist]) -> dict[str, Any]:
    return {as_key(prefix): floats(row) for prefix, row in law.items()}


def case(name: str, tree: Tree, p: dict[Path, Dist]) -> dict[str, Any]:
    n = len(tree.token)
    children = [tree.children(node) for node in range(n)]
    chain = all(len(own) < 2 for own in children)
    found = {
        rule: judge(tree, p.__getitem__)
        for rule, judge in RULES.items()
        if rule != "block" or chain
    }
    asked = found["traversal"].asked
    rng = random.Random(n)
    runs = []
    for _ in range(6):
        u = [round(rng.random(), 3) for _ in range(n)]
        end = next(node for node in asked if node == 0 or u[node] < asked[node])
        runs.append({"u": u, "accepted_node": end, "accepted_tokens": list(tree.path(end))})
    return {
        "name": name,
        "vocab": V,
        "Mb": rows(p),
        "tree": {
            "token": tree.token,
            "parent": tree.parent,
            "proposal_Q": [None, *(floats(q) for q in tree.q[1:])],
            "children_in_verification_order": children,
        },
        "traversal_visit_order": list(asked),
        "traversal_accept_prob_when_reached": [float(asked[node]) for node in range(n)],
        "runs_with_given_uniforms_by_node_id": runs,
        **{
            rule: {
                "end_prob": floats(result.end),
                "bonus": [floats(row) for row in result.bonus],
                "expected_accepted": float(result.accepted()),
                "output_given_tree": {
                    as_key(tokens): float(x) for tokens, x in sorted(result.output().items())
                },
            }
            for rule, result in found.items()
        },
    }


def ensemble(name: str, p: dict[Path, Dist], q: dict[Path, Dist]) -> dict[str, Any]:
    text, shape, depth = SHAPES[name]
    drawn = list(draw(shape, q.__getitem__))
    assert sum(weight for _, weight in drawn) == 1
    names = {"traversal": "traversal", "topdown": "rrsw", "naive": "naive"}
    return {
        "name": name,
        "shape": text,
        "vocab": V,
        "length": depth + 1,
        "n_trees": len(drawn),
        "expected_accepted": {
            column: float(sum(w * RULES[rule](t, p.__getitem__).accepted() for t, w in drawn))
            for column, rule in names.items()
        },
        "Mb": rows(p),
        "Ms": rows(q),
        "output_joint": {
            as_key(tokens): float(math.prod(p[tokens[:i]][t] for i, t in enumerate(tokens)))
            for tokens in itertools.product(range(V), repeat=depth + 1)
        },
    }


def document() -> dict[str, Any]:
    """The whole file."""
    p, q = table(seed=33, depth=3), table(seed=7, depth=2)
    return {
        "format": (
            "end_prob[v]: probability that node v is the last accepted one; the keys are those of "
            "tests/golden/verification_records.py"
        ),
        "cases": [case(name, tree, p) for name, tree in trees(q.__getitem__).items()],
        "ensembles": [
            ensemble(name, {k: r for k, r in p.items() if len(k) < 3}, q) for name in SHAPES
        ],
    }

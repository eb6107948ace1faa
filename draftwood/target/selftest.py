"""Proof, at attach time, that the model scores a tree as it scores the tree's paths one by one.

The reference is the untouched model's own forward, taken before anything is attached. This
replaces a list of supported models: whatever counts distances in cache slots, lets nodes see their
siblings, or computes a row from other rows fails here. Knows nothing of model families.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs
from draftwood.target.runner import Runner
from draftwood.tree import TokenTree, tree_of

PARENTS = (-1, 0, 0, 1, 1, 3, 3, 2)
LEAVES = (4, 5, 6, 7)
_OTHER_PARENTS = (-1, 0, 1)
_PREFIXES = (9, 3)
_KEPT = 7

# Largest difference allowed, as a share of the largest logit.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_REDUCED = 1e-2


@dataclass(frozen=True)
class Exam:
    """Trees behind prefixes, and the untouched model's logits for every node.

    Attributes:
        prefixes: cached tokens of two sequences of different lengths.
        trees: eight nodes with siblings three deep, and a chain.
        expected: float ``[n, V]`` per tree.
        follow_up: a token behind node 7 of the first tree.
        expected_follow_up: float ``[V]``, the logits after it.
    """

    prefixes: tuple[tuple[int, ...], ...]
    trees: tuple[TokenTree, ...]
    expected: tuple[torch.Tensor, ...]
    follow_up: int
    expected_follow_up: torch.Tensor


def prepare(model: Any, vocab_size: int, device: torch.device) -> Exam:
    """Ask the untouched model for every path, each in a forward of its own."""
    tokens = [(7919 * i + 13) % vocab_size for i in range(64)]
    prefixes = tuple(tuple(tokens[8 * i : 8 * i + n]) for i, n in enumerate(_PREFIXES))
    trees = (
        tree_of(tokens[24 : 24 + len(PARENTS)], PARENTS),
        tree_of(tokens[40:43], _OTHER_PARENTS),
    )
    follow_up = tokens[50]
    expected = []
    last: torch.Tensor | None = None
    for prefix, tree, leaves in zip(prefixes, trees, (LEAVES, (2,)), strict=True):
        rows: dict[int, torch.Tensor] = {}
        for leaf in leaves:
            kept = tree is trees[0] and leaf == _KEPT
            path = (0, *tree.path(leaf))
            ids = [*prefix, *(int(tree.tokens[node]) for node in path)]
            if kept:
                ids.append(follow_up)
            with torch.inference_mode():
                logits = model(
                    input_ids=torch.tensor([ids], device=device), use_cache=False
                ).logits[0]
            if kept:
                last = logits[-1]
            for depth, node in enumerate(path):
                rows[node] = logits[len(prefix) + depth]
        expected.append(torch.stack([rows[node] for node in range(len(tree))]))
    assert last is not None
    return Exam(prefixes, trees, tuple(expected), follow_up, last)


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """Allowed difference between two ways to compute a logit, relative to the largest one."""
    if device.type == "cuda" and torch.get_float32_matmul_precision() != "highest":
        return max(_TOLERANCE[dtype], _REDUCED)
    return _TOLERANCE[dtype]


def examine(runner: Runner, exam: Exam) -> None:
    """Compare trees, ragged batches, single steps and a committed path with the reference.

    Raises:
        DraftwoodError: names the first check that failed, and by how much.
    """
    bound = tolerance(runner.info.dtype, runner.info.device)
    tree, expected = exam.trees[0], exam.expected[0]
    scale = float(expected.abs().max()) or 1.0

    def check(name: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
        error = float((found.float() - wanted.float()).abs().max()) / scale
        if not error <= bound:
            raise DraftwoodError(
                f"self-test failed: {name} (relative error {error:.1e}, allowed {bound:.0e}); "
                f"this model cannot decode trees losslessly, decode it without draftwood"
            )

    slots = [runner.open(len(prefix) + len(tree)) for prefix in exam.prefixes]
    try:
        runner.prefill(slots, exam.prefixes, Needs())
        logits = runner.forward(slots[:1], [tree], Needs())[0].logits
        check("a tree's nodes do not get the logits of their paths", logits, expected)
        batch = runner.forward(slots, exam.trees, Needs())
        for rows, wanted in zip(batch, exam.expected, strict=True):
            check("trees of different sizes disturb one another in a batch", rows.logits, wanted)
        changed = list(tree.tokens)
        changed[5] = exam.follow_up
        moved = runner.forward(slots[:1], [tree_of(changed, PARENTS)], Needs())[0].logits
        others = [node for node in range(len(tree)) if node != 5]
        check("a node's logits depend on nodes beside it", moved[others], logits[others])
        _walk(runner, slots[0], tree, (0, *tree.path(6)), check, expected)
        runner.forward(slots[:1], [tree], Needs())
        runner.commit(slots[:1], [tree.path(_KEPT)])
        after = runner.forward(slots[:1], [tree_of([exam.follow_up], [-1])], Needs())[0]
        check(
            "the step after an accepted path is not that of its text",
            after.logits[0],
            exam.expected_follow_up,
        )
    finally:
        for slot in slots:
            runner.release(slot)


def _walk(
    runner: Runner,
    slot: int,
    tree: TokenTree,
    path: Sequence[int],
    check: Any,
    expected: torch.Tensor,
) -> None:
    start = runner.length(slot)
    for node in path:
        step = runner.forward([slot], [tree_of([int(tree.tokens[node])], [-1])], Needs())[0]
        check(
            "plain one-token steps do not give the model's own logits",
            step.logits[0],
            expected[node],
        )
        runner.commit([slot], [()])
    runner.roll_back(slot, start)

"""Proof, at attach time, that the model scores a tree as it scores the tree's paths one by one.

The reference is the untouched model's own forward, taken before anything is attached. This
replaces a list of supported models: whatever counts distances in cache slots, lets nodes see their
siblings, or computes a row from other rows fails here. It is done near the start of a text and at
the model's own boundaries: where a short window ends, and where positions get other rotary factors.
Knows nothing of model families.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs
from draftwood.runner.masks import Kind
from draftwood.runner.recompute import recomputed_at
from draftwood.runner.runner import Runner
from draftwood.tree import TokenTree, tree_of

PARENTS = (-1, 0, 0, 1, 1, 3, 3, 2)
LEAVES = (4, 5, 6, 7)
_OTHER_PARENTS = (-1, 0, 1)
_PREFIXES = (9, 3)
_KEPT = 7
_CHUNK = 4
_WINDOW = 160
"""Longest window whose end is tested: a longer text costs too much at every start."""

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
        shift: position of the prefixes' first token.
        chunk: prompt tokens per prefill forward; None: as the runner has it.
    """

    prefixes: tuple[tuple[int, ...], ...]
    trees: tuple[TokenTree, ...]
    expected: tuple[torch.Tensor, ...]
    follow_up: int
    expected_follow_up: torch.Tensor
    shift: int = 0
    chunk: int | None = None


def prepare(
    model: Any,
    vocab_size: int,
    device: torch.device,
    kinds: Sequence[Kind] = (),
    lengths: Sequence[int] = (),
) -> list[Exam]:
    """Ask the untouched model for every path, each in forwards of its own.

    Args:
        model: the untouched model.
        vocab_size: of the token ids it may be asked about.
        device: where it is.
        kinds: of its layers; windows that are not long are tested at their ends.
        lengths: where its rotary factors may change (:mod:`draftwood.runner.rotary`).
    """
    exams = [_exam(vocab_size, _PREFIXES, partial(_at_once, model, device))]
    for end in sorted({int(kind.reach) for kind in kinds if _PREFIXES[0] < kind.reach <= _WINDOW}):
        prefixes = (end - 2, _PREFIXES[1])
        exams.append(_exam(vocab_size, prefixes, partial(_at_once, model, device)))
    changes = turning_points(model, vocab_size, lengths, device)
    anew = recomputed_at(model, changes, device)
    for length in changes:
        # The first prompt crosses, in chunks, and the tree behind the second one does.
        shift = max(0, length - _PREFIXES[1] - 2)
        ask = partial(_as_generate, model, device, shift, anew)
        exams.append(_exam(vocab_size, _PREFIXES, ask, shift, _CHUNK))
    return exams


Ask: TypeAlias = Callable[[Sequence[int], Sequence[int]], torch.Tensor]
"""Float ``[n, V]``: the logits after each of n tokens that follow a prefix."""


def _at_once(
    model: Any, device: torch.device, prefix: Sequence[int], path: Sequence[int]
) -> torch.Tensor:
    ids = torch.tensor([[*prefix, *path]], device=device)
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0]
    return logits[len(prefix) :]


def _as_generate(
    model: Any,
    device: torch.device,
    shift: int,
    anew: int | None,
    prefix: Sequence[int],
    path: Sequence[int],
) -> torch.Tensor:
    """The prefix in one forward, then token by token, on a cache that may be computed anew."""
    ids = torch.tensor([[*prefix, *path]], device=device)
    places = torch.arange(ids.shape[1], device=device)[None] + shift
    rows: list[torch.Tensor] = []
    with torch.inference_mode():
        # A forward at position 0 makes a model forget the longest text that it saw.
        model(input_ids=ids[:, :1], position_ids=places[:, :1] * 0, use_cache=False)
        cache, held = None, 0
        for end in range(len(prefix), ids.shape[1] + 1):
            if anew is not None and held + shift <= anew < end + shift:
                cache, held = None, 0
            output = model(
                input_ids=ids[:, held:end],
                position_ids=places[:, held:end],
                past_key_values=cache,
                use_cache=True,
            )
            cache, held = output.past_key_values, end
            rows.append(output.logits[0, -1])
        model(input_ids=ids[:, :1], position_ids=places[:, :1] * 0, use_cache=False)
    return torch.stack(rows[1:])


def _tokens(vocab_size: int, n: int) -> list[int]:
    return [(7919 * i + 13) % vocab_size for i in range(n)]


def turning_points(
    model: Any, vocab_size: int, lengths: Sequence[int], device: torch.device
) -> list[int]:
    """Those of ``lengths`` beyond which a later token changes the logits of an earlier one."""
    if not lengths:
        return []
    n = _PREFIXES[0]
    ids = torch.tensor([_tokens(vocab_size, n + 1)], device=device)
    # Without a mask, a leap in the positions would pass for the start of another text.
    ask = partial(model, input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    place = min(lengths) - 1
    before = [place * i // (n - 1) for i in range(n)]

    def earlier(later: int) -> torch.Tensor:
        places = torch.tensor([[*before, later]], device=device)
        with torch.inference_mode():
            logits = ask(position_ids=places).logits
            ask(position_ids=places * 0)
        return logits[0, n - 1].float()  # type: ignore[no-any-return]

    def same(one: torch.Tensor, other: torch.Tensor) -> bool:
        # Up to rounding: what a mixture of experts computes with differs with the last token.
        bound = tolerance(model.dtype, device) / 10 * float(one.abs().max())
        return float((one - other).abs().max()) <= bound

    try:
        near = earlier(place)
        if same(near, earlier(4 * max(lengths))):
            return []
        return [length for length in lengths if same(near, earlier(length - 1))]
    except (TypeError, ValueError, IndexError, RuntimeError):
        return []  # it takes no positions, for which it is refused elsewhere


def _exam(
    vocab_size: int,
    lengths: Sequence[int],
    ask: Ask,
    shift: int = 0,
    chunk: int | None = None,
) -> Exam:
    tokens = _tokens(vocab_size, 64 + max(lengths))
    prefixes = tuple(tuple(tokens[8 * i : 8 * i + n]) for i, n in enumerate(lengths))
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
            ids = [int(tree.tokens[node]) for node in path]
            logits = ask(prefix, [*ids, follow_up] if kept else ids)
            if kept:
                last = logits[-1]
            for depth, node in enumerate(path):
                rows[node] = logits[depth]
        expected.append(torch.stack([rows[node] for node in range(len(tree))]))
    assert last is not None
    return Exam(prefixes, trees, tuple(expected), follow_up, last, shift, chunk)


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
    with runner.examined(exam.shift, exam.chunk):
        _examine(runner, exam)


def _examine(runner: Runner, exam: Exam) -> None:
    bound = tolerance(runner.info.dtype, runner.info.device)
    tree, expected = exam.trees[0], exam.expected[0]
    scale = float(expected.abs().max()) or 1.0

    where = f" from position {exam.shift} on" if exam.shift else ""

    def check(name: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
        error = float((found.float() - wanted.float()).abs().max()) / scale
        if not error <= bound:
            raise DraftwoodError(
                f"self-test failed{where}: {name} (relative error {error:.1e}, allowed "
                f"{bound:.0e}); this model cannot decode trees losslessly, decode it without "
                "draftwood"
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

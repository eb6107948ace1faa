"""Self-test at attach time: the logits of a tree's nodes must equal those of its paths.

The reference is the unmodified model's own forward, computed before it is attached, over a path at
once, or token by token where a model with recurrent layers computes something else then. The test
replaces a list of supported models. It fails if the model measures distances in cache entries, lets
nodes see their siblings, or computes a row from other rows. It runs near the start of a text and at
the model's own boundaries: where a short window ends, and where rotary factors change.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs
from draftwood.runner.masks import LayerKind
from draftwood.runner.recompute import recompute_limit
from draftwood.runner.recurrent.exact_products import EXACT
from draftwood.runner.runner import Runner
from draftwood.tree import TokenTree, tree_of

PARENTS = (-1, 0, 0, 1, 1, 3, 3, 2)
LEAVES = (4, 5, 6, 7)
_OTHER_PARENTS = (-1, 0, 1)
_PREFIXES = (9, 3)
_COMMITTED = 7
_CHUNK = 4
_WINDOW = 160
"""Longest window whose end is tested: longer texts would make attaching slow."""

# Largest allowed difference, relative to the largest logit.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_REDUCED = 1e-2

# Of a deep model in 16 bits, two computations of its own may differ by more. Then trees may differ
# by so many times their difference, of which more than the second number does not count.
_TIMES, _NOISIEST = 3.0, 0.1

# A node's logits stay what they are if another node's token changes, as the shapes stay the same.
# The bound for them, relative to the tolerance, is less than a rounding of the largest logit.
_EQUAL = 1e-2


@dataclass(frozen=True)
class Reference:
    """Trees after prefixes, and the unmodified model's logits at every node.

    Attributes:
        prefixes: cached tokens of two sequences of different lengths.
        trees: eight nodes with siblings on three levels, and a chain.
        after_prefixes: float ``[V]`` per prefix, the logits after it.
        expected: float ``[n, V]`` per tree.
        follow_up: a token after node 7 of the first tree.
        expected_follow_up: float ``[V]``, the logits after it.
        shift: position of the prefixes' first token.
        chunk: prompt tokens per prefill forward; None: the runner's.
        noise: largest difference of two computations of the unmodified model, relative to the
            largest logit; 0 if unknown.
    """

    prefixes: tuple[tuple[int, ...], ...]
    trees: tuple[TokenTree, ...]
    after_prefixes: tuple[torch.Tensor, ...]
    expected: tuple[torch.Tensor, ...]
    follow_up: int
    expected_follow_up: torch.Tensor
    shift: int = 0
    chunk: int | None = None
    noise: float = 0.0


def make_references(
    model: Any,
    vocab_size: int,
    device: torch.device,
    kinds: Sequence[LayerKind] = (),
    lengths: Sequence[int] = (),
    *,
    recurrent: bool = False,
) -> list[Reference]:
    """Compute the unmodified model's logits along every path, each in forwards of its own.

    Args:
        model: the unmodified model.
        vocab_size: number of its tokens.
        device: the model's.
        kinds: of its layers; short windows are tested at their ends.
        lengths: where its rotary factors may change (:mod:`draftwood.runner.rotary`).
        recurrent: whether it has recurrent layers. Some of them compute several tokens at once by
            another formula than one token (Zamba 2 raises small time steps); then the logits are
            those of one token after the other, as ``generate`` computes them. In 16 bits, such a
            difference counts as noise instead.
    """
    score: Scorer = partial(_at_once, model, device)
    references = [_reference(vocab_size, _PREFIXES, score)]
    narrow, noise = model.dtype.itemsize == 2, 0.0
    if narrow or recurrent:
        noise = _noise(model, references[0], device)
    if not narrow and noise > tolerance(model.dtype, device):
        score = partial(_as_generate, model, device, 0, None)
        references = [_reference(vocab_size, _PREFIXES, score)]
    for end in sorted({int(kind.reach) for kind in kinds if _PREFIXES[0] < kind.reach <= _WINDOW}):
        prefixes = (end - 2, _PREFIXES[1])
        references.append(_reference(vocab_size, prefixes, score))
    changes = critical_lengths(model, vocab_size, lengths, device)
    recompute_after = recompute_limit(model, changes, device)
    for length in changes:
        # The first prompt crosses the length, in chunks; so does the tree after the second one.
        shift = max(0, length - _PREFIXES[1] - 2)
        decoded = partial(_as_generate, model, device, shift, recompute_after)
        references.append(_reference(vocab_size, _PREFIXES, decoded, shift, _CHUNK))
    return [replace(reference, noise=noise if narrow else 0.0) for reference in references]


def _noise(model: Any, reference: Reference, device: torch.device) -> float:
    """How much the model's logits differ at once and token by token, relative to the largest.

    At every node: one path alone may happen to show a third of it.
    """
    prefix, tree, expected = reference.prefixes[0], reference.trees[0], reference.expected[0]
    paths = [(0, *tree.path(leaf)) for leaf in LEAVES]
    longest = max(map(len, paths))
    # Shorter ones go on with their last token; those logits are not looked at.
    texts = [[int(tree.tokens[node]) for node in path] for path in paths]
    texts = [text + text[-1:] * (longest - len(text)) for text in texts]
    try:
        found = _batch_as_generate(model, device, 0, None, prefix, texts).float()
    except (TypeError, ValueError, IndexError, RuntimeError, AttributeError):
        return 0.0  # a model that takes no cache or no positions is refused elsewhere
    largest = float(expected.abs().max()) or 1.0
    difference = max(
        float((rows[1 : len(path) + 1] - expected[[*path]].float()).abs().max()) / largest
        for rows, path in zip(found, paths, strict=True)
    )
    return difference if difference < math.inf else 0.0


Scorer: TypeAlias = Callable[[Sequence[int], Sequence[int]], torch.Tensor]
"""Float ``[1 + n, V]``: the logits after a prefix, and after each of n tokens that follow it."""


def _at_once(
    model: Any, device: torch.device, prefix: Sequence[int], path: Sequence[int]
) -> torch.Tensor:
    ids = torch.tensor([[*prefix, *path]], device=device)
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0]
    return logits[len(prefix) - 1 :]


def _as_generate(
    model: Any,
    device: torch.device,
    shift: int,
    recompute_after: int | None,
    prefix: Sequence[int],
    path: Sequence[int],
) -> torch.Tensor:
    """Score as ``generate`` does: the prefix in one forward, then token by token.

    The cache is recomputed where ``generate`` would recompute it.
    """
    return _batch_as_generate(model, device, shift, recompute_after, prefix, [path])[0]


def _batch_as_generate(
    model: Any,
    device: torch.device,
    shift: int,
    recompute_after: int | None,
    prefix: Sequence[int],
    paths: Sequence[Sequence[int]],
) -> torch.Tensor:
    """Score paths of one length after a prefix, ``[B, 1 + n, V]``; see :func:`_as_generate`."""
    ids = torch.tensor([[*prefix, *path] for path in paths], device=device)
    places = torch.arange(ids.shape[1], device=device)[None] + shift
    rows: list[torch.Tensor] = []
    with torch.inference_mode():
        # A forward at position 0 resets the longest text that the model has seen.
        model(input_ids=ids[:, :1], position_ids=places[:, :1] * 0, use_cache=False)
        cache, held = None, 0
        for end in range(len(prefix), ids.shape[1] + 1):
            if recompute_after is not None and held + shift <= recompute_after < end + shift:
                cache, held = None, 0
            output = model(
                input_ids=ids[:, held:end],
                position_ids=places[:, held:end],
                past_key_values=cache,
                use_cache=True,
            )
            cache, held = output.past_key_values, end
            rows.append(output.logits[:, -1])
        model(input_ids=ids[:, :1], position_ids=places[:, :1] * 0, use_cache=False)
    return torch.stack(rows, dim=1)


def _tokens(vocab_size: int, n: int) -> list[int]:
    return [(7919 * i + 13) % vocab_size for i in range(n)]


def critical_lengths(
    model: Any, vocab_size: int, lengths: Sequence[int], device: torch.device
) -> list[int]:
    """The ``lengths`` beyond which a later token changes the logits of an earlier one."""
    if not lengths:
        return []
    n = _PREFIXES[0]
    ids = torch.tensor([_tokens(vocab_size, n + 1)], device=device)
    # Without a mask, transformers takes a jump in the positions for the start of another text.
    score = partial(model, input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    place = min(lengths) - 1
    before = [place * i // (n - 1) for i in range(n)]

    def earlier(later: int) -> torch.Tensor:
        places = torch.tensor([[*before, later]], device=device)
        with torch.inference_mode():
            logits = score(position_ids=places).logits
            score(position_ids=places * 0)
        return logits[0, n - 1].float()  # type: ignore[no-any-return]

    def same(one: torch.Tensor, other: torch.Tensor) -> bool:
        # Up to rounding: a mixture of experts computes other shapes if the last token differs.
        bound = tolerance(model.dtype, device) / 10 * float(one.abs().max())
        return float((one - other).abs().max()) <= bound

    try:
        near = earlier(place)
        if same(near, earlier(4 * max(lengths))):
            return []
        return [length for length in lengths if same(near, earlier(length - 1))]
    except (TypeError, ValueError, IndexError, RuntimeError):
        return []  # a model that takes no positions is refused elsewhere


def _reference(
    vocab_size: int,
    lengths: Sequence[int],
    score: Scorer,
    shift: int = 0,
    chunk: int | None = None,
) -> Reference:
    tokens = _tokens(vocab_size, 64 + max(lengths))
    prefixes = tuple(tuple(tokens[8 * i : 8 * i + n]) for i, n in enumerate(lengths))
    trees = (
        tree_of(tokens[24 : 24 + len(PARENTS)], PARENTS),
        tree_of(tokens[40:43], _OTHER_PARENTS),
    )
    follow_up = tokens[50]
    after_prefixes, expected = [], []
    last: torch.Tensor | None = None
    for prefix, tree, leaves in zip(prefixes, trees, (LEAVES, (2,)), strict=True):
        rows: dict[int, torch.Tensor] = {}
        for leaf in leaves:
            committed = tree is trees[0] and leaf == _COMMITTED
            path = (0, *tree.path(leaf))
            ids = [int(tree.tokens[node]) for node in path]
            before, *logits = score(prefix, [*ids, follow_up] if committed else ids)
            if committed:
                last = logits[-1]
            for depth, node in enumerate(path):
                rows[node] = logits[depth]
        after_prefixes.append(before)
        expected.append(torch.stack([rows[node] for node in range(len(tree))]))
    assert last is not None
    references = (tuple(after_prefixes), tuple(expected))
    return Reference(prefixes, trees, *references, follow_up, last, shift, chunk)


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """The allowed difference of two computations of a logit, relative to the largest logit."""
    if device.type == "cuda" and torch.backends.cuda.matmul.fp32_precision not in EXACT:
        return max(_TOLERANCE[dtype], _REDUCED)
    return _TOLERANCE[dtype]


def check_reference(runner: Runner, reference: Reference) -> None:
    """Compare prompts, trees, ragged batches, single tokens and a committed path with a reference.

    Raises:
        DraftwoodError: a check failed; the message names it and the error.
    """
    with runner.self_testing(reference.shift, reference.chunk):
        _check_reference(runner, reference)


def _check_reference(runner: Runner, reference: Reference) -> None:
    bound = tolerance(runner.info.dtype, runner.info.device)
    bound, exact = max(bound, _TIMES * min(reference.noise, _NOISIEST)), bound * _EQUAL
    tree, expected = reference.trees[0], reference.expected[0]
    scale = float(expected.abs().max()) or 1.0

    where = f" from position {reference.shift} on" if reference.shift else ""

    def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
        return float((found.float() - wanted.float()).abs().max()) / scale

    def check(name: str, found: torch.Tensor, wanted: torch.Tensor, allowed: float = bound) -> None:
        error = off(found, wanted)
        if not error <= allowed:
            raise DraftwoodError(
                f"self-test failed{where}: {name} (relative error {error:.1e}, allowed "
                f"{allowed:.0e}); this model cannot decode trees losslessly, decode it without "
                "draftwood"
            )

    slots = [runner.open(len(prefix) + len(tree)) for prefix in reference.prefixes]
    try:
        prompts = runner.prefill(slots, reference.prefixes, Needs())
        for prompt, wanted in zip(prompts, reference.after_prefixes, strict=True):
            check("the logits after a prompt are not the model's own", prompt.logits[0], wanted)
        logits = runner.forward(slots[:1], [tree], Needs())[0].logits
        check("a tree's nodes do not get the logits of their paths", logits, expected)
        batch = runner.forward(slots, reference.trees, Needs())
        for rows, wanted in zip(batch, reference.expected, strict=True):
            check("trees of different sizes disturb one another in a batch", rows.logits, wanted)
        changed = list(tree.tokens)
        changed[5] = reference.follow_up
        moved = runner.forward(slots[:1], [tree_of(changed, PARENTS)], Needs())[0].logits
        others = [node for node in range(len(tree)) if node != 5]
        allowed = bound if has_experts(runner.model) else exact
        if not off(moved[others], logits[others]) <= allowed:
            # Some kernels add in another order each time.
            again = runner.forward(slots[:1], [tree], Needs())[0].logits
            allowed = max(allowed, min(bound, 2 * off(again[others], logits[others])))
        beside = "a node's logits depend on nodes beside it"
        check(beside, moved[others], logits[others], allowed)
        prefix = reference.prefixes[0]
        _walk(runner, slots[0], prefix, tree, (0, *tree.path(6)), check, expected)
        runner.forward(slots[:1], [tree], Needs())
        runner.commit(slots[:1], [tree.path(_COMMITTED)])
        after = runner.forward(slots[:1], [tree_of([reference.follow_up], [-1])], Needs())[0]
        check(
            "the logits after an accepted path are not those of its text",
            after.logits[0],
            reference.expected_follow_up,
        )
    finally:
        for slot in slots:
            runner.release(slot)


def has_experts(model: Any) -> bool:
    """Whether a model routes tokens to experts, which then compute other numbers of rows."""
    return any(
        "expert" in name.lower() or "moe" in type(module).__name__.lower()
        for name, module in model.named_modules()
    )


def _walk(
    runner: Runner,
    slot: int,
    prefix: Sequence[int],
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
    if runner.recurrent is None:
        runner.roll_back(slot, start)
    else:
        runner.roll_back(slot, 0)
        runner.prefill([slot], [prefix], Needs())

"""Attention of trees in Triton is float64's, interpreted on the CPU, and compiles for GPUs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.kernels.gpu import BLOCK, AttendTrees, Seen
from draftwood.runner.attention_check import check_attention
from draftwood.runner.masks import LayerKind
from draftwood.tree import ancestor_words
from tests.kernels.test_gpu_draws import run

COMPILE = """
import json, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from draftwood.kernels import gpu_attention
asked, arch = json.loads(sys.argv[1])
dtype = asked.pop("dtype", "bf16")
merged = dict(SINKS=False, HEADS=32, VALUE_WIDTH=128, VALUE_LANES=128, SPLITS=8)
attended = dict(SOFTCAP=0.0, WINDOW=0, CHUNK=0, SINKS=False, TREES=True, UNSPLIT=False, KV_HEADS=8,
                GROUP=4, WIDTH=128, VALUE_WIDTH=128, LANES=128, VALUE_LANES=128, ROWS=64, KEYS=64,
                BLOCK=256)
numbers = {"starts", "counts", "lengths", "done", "rows", "table", "words", "depths"}
types = dict.fromkeys(numbers, "*i64") | dict.fromkeys(("parts", "shares"), "*fp32")
types |= dict.fromkeys(("queries", "keys", "values", "sinks"), "*" + dtype) | {"scale": "fp32"}
plain = numbers | {"row_blocks", "nodes", "width", "tokens", "scale"}
for kernel, own in ((gpu_attention._attend, attended | asked), (gpu_attention._merge, merged)):
    names = kernel.arg_names
    own |= {name: value for name, value in asked.items() if name in own}
    part = kernel is gpu_attention._attend and not own["UNSPLIT"]
    given = types | {"output": "*fp32" if part else "*" + dtype}
    signature = {name: "constexpr" if name in own else given.get(name, "i32") for name in names}
    constants = {(names.index(name),): value for name, value in own.items()}
    # As launched: pointers and strides are multiples of 16.
    attributes = {(names.index(name),): [["tt.divisibility", 16]]
                  for name in names if name not in own and name not in plain}
    source = ASTSource(kernel, signature, constants, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_stages": 2})
    assert made.asm["cubin"]
    if kernel is gpu_attention._attend:
        assert dtype == "fp32" or "mma" in made.asm["ptx"]
        print(json.dumps(made.metadata.shared))
"""


@pytest.fixture
def attend() -> AttendTrees:
    """The kernel, in the interpreter unless there is a GPU."""
    pytest.importorskip("triton")
    from draftwood.kernels.gpu_attention import attend_trees

    return attend_trees


def signalling(given: torch.Tensor, *sizes: Any, **options: Any) -> torch.Tensor:
    """New memory in which each 32 bits are a signalling NaN: with it, arithmetic is an error."""
    made = given.new_zeros(*sizes, **options)
    made.view(torch.int32).fill_(0x7FA00000)
    return made


@pytest.fixture(autouse=True)
def _unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What new memory holds must not matter."""
    monkeypatch.setattr(torch.Tensor, "new_empty", signalling)


WHERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FULL = LayerKind("full")
WINDOW, CHUNK = LayerKind("window", window=24), LayerKind("chunk", chunk=50)


@dataclass(frozen=True)
class Shape:
    """Sequences with cached tokens, cached nodes, and queries; a model's heads; its options.

    Behind the queries of each sequence there are ``padding`` others.
    """

    heads: tuple[int, int]
    widths: tuple[int, int]
    counts: tuple[int, ...]
    lengths: tuple[int, ...]
    done: tuple[int, ...]
    splits: int = 1
    kind: LayerKind = FULL
    softcap: float | None = None
    sinks: bool = False
    trees: bool = True
    padding: int = 0


SHAPES = [
    Shape((4, 2), (64, 64), (1,), (37,), (0,), splits=4),
    Shape((4, 2), (32, 32), (16, 3), (37, 90), (0, 0), splits=2),
    Shape((2, 2), (16, 16), (8, 1, 5), (5, 64, 63), (3, 0, 7), sinks=True),
    Shape((4, 1), (16, 16), (72,), (70,), (0,), splits=4),
    Shape((6, 2), (24, 40), (70, 130), (0, 33), (0, 2), sinks=True),
    Shape((2, 2), (16, 16), (32, 7), (100, 5), (0, 3), splits=2, kind=WINDOW),
    Shape((4, 2), (16, 16), (12, 12), (40, 50), (2, 5), 2, WINDOW, softcap=30.0, sinks=True),
    Shape((4, 2), (16, 16), (12, 12), (70, 130), (2, 5), 2, CHUNK, softcap=30.0),
    Shape((4, 2), (16, 16), (3, 9), (70, 7), (0, 0), 1, padding=4),
    Shape((4, 2), (16, 16), (3, 9), (70, 7), (0, 0), 4, padding=4),
    Shape((4, 2), (16, 16), (3, 9), (70, 7), (0, 0), 4, padding=4, sinks=True),
    Shape((4, 2), (16, 16), (40, 12), (70, 130), (0, 0), 2, sinks=True, trees=False),
    Shape((4, 2), (16, 16), (40, 12), (70, 130), (0, 0), 1, WINDOW, trees=False),
    Shape((4, 2), (16, 16), (40, 12), (70, 130), (0, 0), 4, CHUNK, trees=False),
    # Over the ends of blocks of the cache.
    Shape((4, 2), (16, 16), (9, 4, 3), (250, 600, 5), (0, 20, 0), 2),
    Shape((4, 2), (16, 16), (9, 4), (509, 300), (0, 2), 4, WINDOW),
    Shape((2, 1), (16, 16), (300,), (230,), (0,), 2, trees=False),
]


@dataclass(frozen=True, eq=False)
class Case:
    """Random queries and a random cache; what is in entries that no sequence has is NaN."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    sinks: torch.Tensor | None
    seen: Seen
    parents: list[list[int]]


def there(numbers: Any) -> torch.Tensor:
    return torch.as_tensor(numbers).to(WHERE)


def entries_of(firsts: NDArray[np.int64], tokens: Sequence[int]) -> NDArray[np.int64]:
    """Cache entries of a row's tokens, given its blocks' first ones."""
    places = np.array(tokens, dtype=np.int64)
    return firsts[places // BLOCK] + places % BLOCK


def case(shape: Shape, dtype: torch.dtype, seed: int = 0) -> Case:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)

    def noise(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=generator).to(WHERE, dtype)

    b, n = len(shape.counts), sum(shape.counts) + shape.padding * len(shape.counts)
    sizes = [done + count for done, count in zip(shape.done, shape.counts, strict=True)]
    ends = [length + size for length, size in zip(shape.lengths, sizes, strict=True)]
    (heads, kv_heads), (width, value_width) = shape.heads, shape.widths
    blocks = -(-max(ends) // BLOCK)
    table = BLOCK * rng.permutation((b + 2) * blocks).reshape(b + 2, blocks)
    rows = rng.permutation(b + 2)[:b]
    keys = noise(table.size * BLOCK, kv_heads, width)
    values = noise(table.size * BLOCK, kv_heads, value_width)
    unwritten = np.ones(table.size * BLOCK, dtype=np.bool_)
    for row, end in zip(rows, ends, strict=True):
        unwritten[entries_of(table[row], range(end))] = False
    keys[there(unwritten)] = values[there(unwritten)] = torch.nan
    parents = [
        [-1, *(int(rng.integers(node)) for node in range(1, size))]
        if shape.trees
        else list(range(-1, size - 1))
        for size in sizes
    ]
    width = -(-max(sizes) // 64) if shape.trees else 0
    words = np.zeros((n, width), dtype=np.int64)
    depths = np.zeros((b, max(sizes)), dtype=np.int64)
    starts = np.cumsum([0, *(count + shape.padding for count in shape.counts)])[:b]
    for i, (own, start, done) in enumerate(zip(parents, starts, shape.done, strict=True)):
        bits = ancestor_words(own)[done:]
        if shape.trees:
            words[start : start + len(bits), : bits.shape[1]] = bits
        for node, parent in enumerate(own[1:], start=1):
            depths[i, node] = depths[i, parent] + 1
    seen = Seen(
        there(starts),
        there(shape.counts),
        there(shape.lengths),
        there(shape.done),
        there(rows),
        there(table),
        there(words),
        there(depths),
        max(shape.counts) + shape.padding,
        shape.padding > 0,
    )
    sinks = noise(heads) if shape.sinks else None
    queries = noise(heads, n, shape.widths[0]).transpose(0, 1)
    return Case(queries, keys, values, sinks, seen, parents)


def expected(shape: Shape, given: Case) -> torch.Tensor:
    """The output in float64, query by query; zero for the padding."""
    found, query = [], 0
    zero = torch.zeros(shape.heads[0], shape.widths[1], dtype=torch.float64, device=WHERE)
    group = shape.heads[0] // shape.heads[1]
    for i, (own, length) in enumerate(zip(given.parents, shape.lengths, strict=True)):
        depths = given.seen.depths[i].tolist()
        for node in range(shape.done[i], len(own)):
            path, at = [], node
            while at >= 0:
                path.append(at)
                at = own[at]
            places = [(entry, entry) for entry in range(length)]
            places += [(length + each, length + depths[each]) for each in path]
            positions = np.array([position for _, position in places])
            hidden = shape.kind.hidden(length + depths[node], positions)
            shown = [
                entry for (entry, _), no in zip(places, hidden.tolist(), strict=True) if not no
            ]
            own_blocks = given.seen.table[given.seen.rows[i]].cpu().numpy()
            keys, values = (
                each[entries_of(own_blocks, shown)].double().repeat_interleave(group, dim=1)
                for each in (given.keys, given.values)
            )
            scores = torch.einsum("hd,khd->hk", given.queries[query].double(), keys)
            scores *= shape.widths[0] ** -0.5
            if shape.softcap is not None:
                scores = shape.softcap * torch.tanh(scores / shape.softcap)
            if given.sinks is not None:
                scores = torch.cat([scores, given.sinks.double()[:, None]], dim=1)
            weights = torch.softmax(scores, dim=1)[:, : len(shown)]
            found.append(torch.einsum("hk,khd->hd", weights, values))
            query += 1
        found += [zero] * shape.padding
        query += shape.padding
    return torch.stack(found)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_attends_as_in_float64(
    attend: AttendTrees, shape: Shape, dtype: torch.dtype
) -> None:
    given = case(shape, dtype)
    found = attend(
        given.queries,
        given.keys,
        given.values,
        given.seen,
        softcap=shape.softcap,
        sinks=given.sinks,
        window=shape.kind.window,
        chunk=shape.kind.chunk,
        splits=shape.splits,
    )
    error = (found.double() - expected(shape, given)).abs().max()
    assert error < (5e-6 if dtype is torch.float32 else 2e-3)


def test_a_bit_that_is_not_an_ancestor_changes_the_output(attend: AttendTrees) -> None:
    """The test above can fail."""
    shape = SHAPES[1]
    given = case(shape, torch.float32)
    given.seen.words[5] ^= 1 << 3
    found = attend(given.queries, given.keys, given.values, given.seen)
    wrong = (found.double() - expected(shape, given)).abs().amax(dim=(1, 2)) > 1e-3
    assert wrong.nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_the_kernel_is_compared_before_it_is_used(attend: AttendTrees, dtype: torch.dtype) -> None:
    check_attention(attend, WHERE, dtype, 2, 1, 16, 24)

    def wrong(
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        seen: Seen,
        **options: Any,
    ) -> torch.Tensor:
        return attend(queries, keys, values, seen._replace(words=seen.words ^ 1 << 40), **options)

    with pytest.raises(DraftwoodError, match="the attention kernel is off by"):
        check_attention(wrong, WHERE, dtype, 2, 1, 16, 24)


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"SINKS": True, "SOFTCAP": 30.0, "WINDOW": 64},
        {"TREES": False, "CHUNK": 8192},
        {"UNSPLIT": True, "ROWS": 16},
        {"WIDTH": 192, "LANES": 256, "KEYS": 32},
        {"WIDTH": 256, "LANES": 256, "VALUE_WIDTH": 256, "VALUE_LANES": 256, "KEYS": 32},
        {"dtype": "fp16"},
        {"dtype": "fp32", "KEYS": 32},
    ],
    ids=str,
)
def test_the_kernel_compiles_for_gpus(arch: int, asked: dict[str, Any], tmp_path: Path) -> None:
    """On tensor cores, within the shared memory of the smallest GPU of 2020 or later."""
    printed = run(COMPILE, json.dumps([asked, arch]), interpret=False, home=tmp_path)
    assert 0 < json.loads(printed) <= 99 * 1024

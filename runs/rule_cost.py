"""Cost of the gated delta rule over a tree, in one layer of a large model's shape.

Beside it are transformers' own forms of the rule, without their faster kernels, and the products
with the layer's weights. Prints one JSON object with milliseconds by number of nodes:

* ``tree``: our rule over a random tree, in float32; ``commit`` of its deepest path;
* ``convolution`` of the tree's inputs before it;
* ``chunk``: transformers' form for several tokens; ``recurrent``: its form token by token;
* ``projections``: the products with the layer's weights in ``--dtype``.

The default shape is that of Qwen3.6-27B, with random weights. ``--by-channel`` is Kimi Delta
Attention, whose keys have as many heads as the values.

    python runs/rule_cost.py --threads 1
    python runs/rule_cost.py --by-channel --heads 32 --hidden 2304
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence

import click
import numpy as np
import torch
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

from draftwood.costs.busy import watched
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.runner.recurrent.ancestry import ancestry
from draftwood.runner.recurrent.convolution import convolved
from draftwood.runner.recurrent.gated_delta import commit, gated_delta
from draftwood.runner.recurrent.torch_forms import torch_form

TAPS = 4
"""Of the convolution."""


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """Median of a call, repeated for so long."""
    call()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times)


def random_parents(nodes: int, seed: int) -> list[int]:
    """A tree whose nodes follow one of the last eight before them."""
    rng = np.random.default_rng(seed)
    return [-1, *(int(rng.integers(max(0, node - 8), node)) for node in range(1, nodes))]


def theirs(*, by_channel: bool) -> tuple[Callable[..., object], Callable[..., object]]:
    """transformers' forms of the rule: for several tokens, and token by token."""
    if not by_channel:
        return qwen.torch_chunk_gated_delta_rule, qwen.torch_recurrent_gated_delta_rule
    both = (kimi.chunk_kimi_delta_attention, kimi.recurrent_kimi_delta_attention)
    chunk, one_by_one = (torch_form(each, kimi.__name__) for each in both)
    assert chunk is not None
    assert one_by_one is not None
    return chunk, one_by_one


class Layer:
    """The tensors of one layer.

    Args:
        heads: of values; those of keys are a third of them, or as many.
        width: of a key and a value.
        hidden: of the model.
        dtype: of the weights.
        by_channel: there is a decay for each channel of the keys.
    """

    def __init__(
        self, heads: int, width: int, hidden: int, dtype: torch.dtype, *, by_channel: bool
    ) -> None:
        self.heads, self.width, self.by_channel = heads, width, by_channel
        self.key_heads = heads if by_channel else max(1, heads // 3)
        self.channels = (2 * self.key_heads + heads) * width
        shapes = [(self.channels, hidden), (heads * width, hidden), (2 * heads, hidden)]
        self.inputs = [torch.randn(shape).to(dtype) / hidden**0.5 for shape in shapes]
        self.output = torch.randn(hidden, heads * width).to(dtype) / hidden**0.5
        self.taps = torch.randn(self.channels, TAPS)
        self.state = torch.randn(1, heads, width, width)

    def times(self, nodes: int, seconds: float) -> dict[str, float]:
        """Milliseconds of all parts."""
        heads, width, hidden = self.heads, self.width, self.output.shape[0]
        parents = random_parents(nodes, seed=nodes)
        trees = ancestry([parents], [0], torch.device("cpu"))
        queries, keys, values = torch.randn(3, 1, heads, nodes, width).unbind()
        keys = torch.nn.functional.normalize(keys, dim=-1)
        logs = -torch.rand(1, heads, nodes, *([width] if self.by_channel else []))
        beta = torch.rand(1, heads, nodes)
        given = (queries, keys, values, logs, beta, self.state)
        _, kept = gated_delta(*given, trees)
        path = [int(trees.shown[0].sum(1).argmax())]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        chosen = torch.tensor([path])
        advancing = self.state.clone()
        inputs, stored = torch.randn(1, nodes, self.channels), torch.randn(1, 3, self.channels)
        of_keys = [each[:, : self.key_heads].transpose(1, 2) for each in (queries, keys)]
        rest = {"g": logs.transpose(1, 2), "beta": beta.transpose(1, 2)}
        their = (*of_keys, values.transpose(1, 2))
        state = {"initial_state": self.state, "output_final_state": True}
        chunk, one_by_one = theirs(by_channel=self.by_channel)
        rows = torch.randn(nodes, hidden).to(self.output.dtype)
        behind = torch.randn(nodes, heads * width).to(self.output.dtype)
        calls: dict[str, Callable[[], object]] = {
            "tree": lambda: gated_delta(*given, trees),
            "commit": lambda: commit(advancing, kept, chosen, None),
            "convolution": lambda: convolved(inputs, stored, self.taps, None, trees),
            "chunk": lambda: chunk(*their, **rest, **state),
            "recurrent": lambda: one_by_one(*their, **rest, **state),
            "projections": lambda: (
                *(torch.nn.functional.linear(rows, weight) for weight in self.inputs),
                torch.nn.functional.linear(behind, self.output),
            ),
        }
        with torch.inference_mode():
            return {name: milliseconds(call, seconds) for name, call in calls.items()}


@click.command()
@click.option("--heads", default=48, show_default=True, help="Of values; of keys a third.")
@click.option("--by-channel", is_flag=True, help="A decay for each channel of the keys.")
@click.option("--width", default=128, show_default=True, help="Of a key and a value.")
@click.option("--hidden", default=5120, show_default=True)
@click.option("--dtype", default="float32", show_default=True, help="Of the weights.")
@click.option("--nodes", "sizes", multiple=True, default=(1, 8, 16, 32, 64), show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="For each part and size.")
def main(
    heads: int,
    by_channel: bool,
    width: int,
    hidden: int,
    dtype: str,
    sizes: Sequence[int],
    threads: int,
    seconds: float,
) -> None:
    """Measure and print."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape: dict[str, object] = {"heads": heads, "width": width, "hidden": hidden}
    shape |= {"dtype": dtype, "by_channel": by_channel}
    with watched() as neighbours:
        layer = Layer(heads, width, hidden, getattr(torch, dtype), by_channel=by_channel)
        found = {size: layer.times(size, seconds) for size in sizes}
    origin = provenance(model=shape, settings={"seconds": seconds}, sets=())
    origin["other_processes"] = recorded(neighbours.others, neighbours.others)
    print(json.dumps({"milliseconds": found, "provenance": origin}))  # noqa: T201


if __name__ == "__main__":
    main()

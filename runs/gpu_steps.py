"""Time of a step on a GPU: by nodes, batch and context, and by how it is computed.

The model has random weights and the shape of a large Llama: the time does not depend on the
weights. Prints one JSON object with, by shape:

* ``weight_bytes`` that a step reads;
* ``milliseconds`` of a step until its result is on the host: by ``mode``, ``batch``, ``context``
  and ``nodes`` of each sequence's tree;
* ``device``: milliseconds of the recorded forward alone, by nodes, at the first context;
* ``plain``: milliseconds a token of the engine's plain decoding;
* ``generate``: of transformers' own (eager), for a few tokens;
* ``copy_bytes_per_second`` of a copy on the device, bytes read and written: the bound.

Modes: ``recorded``, CUDA graphs of the fused layers; ``unfused``, of transformers' own layers;
``launched``, the same without graphs; ``masks``, PyTorch's attention with masks, without graphs.

    python runs/gpu_steps.py --shape 8b --context 1024 --context 8192 --batch 1 --batch 16
"""

import gc
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import click
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftwood import Engine, Request, attach
from draftwood.costs.measure import Grid, binary_tree, measure_target
from draftwood.lab.bench.provenance import provenance
from draftwood.lab.inflate.shapes import PRESETS
from draftwood.protocols import Needs
from draftwood.runner.device_masks import DeviceMasks
from draftwood.runner.gpu_layers import GpuLayers
from draftwood.runner.masks import layer_kinds
from draftwood.runner.runner import Runner
from runs.median_time import median_seconds

MODES = ("recorded", "unfused", "launched", "masks")
VOCABULARY = 49152
PROMPT = range(1, 101)


def model_of(shape: str, context: int, device: torch.device) -> Any:
    """A Llama of random weights in bfloat16."""
    config = LlamaConfig(
        **PRESETS[shape].config,
        vocab_size=VOCABULARY,
        max_position_embeddings=context,
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    finally:
        torch.set_default_dtype(torch.float32)


def copy_speed(device: torch.device) -> float:
    """Bytes per second, read and written, of a copy on the device."""
    size = (1 << 30) if device.type == "cuda" else (1 << 24)
    source, target = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * size / median_seconds(partial(target.copy_, source), device)


def set_mode(runner: Runner, mode: str, whole: tuple[Any, Any, Any]) -> None:
    """Have a runner compute in one of ``MODES``."""
    forward_pass = runner._forward_pass
    static, masks, layers = whole
    forward_pass._fused_layers = layers if mode == "recorded" else GpuLayers()
    forward_pass.static = static if mode in ("recorded", "unfused") else None
    if static is not None:
        static.model_state = (mode, static.model_state)  # forwards are recorded anew
    if mode == "masks" and runner.info.device.type != "cpu":
        config = runner.model.config
        group = config.num_attention_heads // config.num_key_value_heads
        facts = (layer_kinds(config), group, runner.info.dtype, runner.info.device)
        forward_pass.masks = DeviceMasks(*facts)
    else:
        forward_pass.masks = masks


def steps(
    runner: Runner, modes: Sequence[str], grid: Grid, batches: Sequence[int]
) -> list[dict[str, object]]:
    """Milliseconds of steps; beyond the first mode or batch, at the first context only."""
    forward_pass = runner._forward_pass
    whole = (forward_pass.static, forward_pass.masks, forward_pass._fused_layers)
    found: list[dict[str, object]] = []
    for mode in modes:
        set_mode(runner, mode, whole)
        for batch in batches if mode == modes[0] else batches[:1]:
            first = mode == modes[0] and batch == batches[0]
            contexts = grid.contexts if first else grid.contexts[:1]
            own = Grid(grid.sizes, contexts, (batch,), grid.seconds if first else grid.seconds / 3)
            samples = measure_target(runner, own)
            runner.trim()  # rows as long as the longest context are not kept for larger batches
            for sample in samples:
                found.append(
                    {
                        "mode": mode,
                        "batch": batch,
                        "context": sample.context // batch,
                        "nodes": sample.tokens // batch,
                        "milliseconds": sample.seconds * 1e3,
                    }
                )
    set_mode(runner, modes[0], whole)
    return found


def device_times(runner: Runner, sizes: Sequence[int], context: int) -> dict[int, float]:
    """Milliseconds of the recorded forwards alone, by nodes; nothing where none are recorded."""
    static = runner._forward_pass.static
    found: dict[int, float] = {}
    if static is None:
        return found
    static.model_state = (object(), static.model_state)  # forwards are recorded anew
    static._recorded.clear()
    with ExitStack() as stack:
        slot = runner.open(context + max(sizes))
        stack.callback(runner.release, slot)
        runner.prefill([slot], [[i % VOCABULARY for i in range(context)]], Needs())
        for size in sizes:
            before = set(static._recorded)
            tree = binary_tree(size, VOCABULARY)
            for _ in range(2):
                runner.forward([slot], [tree], Needs())
            new = [static._recorded[bucket] for bucket in static._recorded if bucket not in before]
            repeat = new[0] if new else None
            if repeat is not None:
                found[size] = 1e3 * median_seconds(repeat, runner.info.device)
    return found


def plain(runner: Runner, tokens: int) -> float:
    """Milliseconds a token of the engine's plain decoding."""
    engine = Engine(runner, "ar", max_batch=1)
    for count in (4, tokens):
        begun = time.perf_counter()
        engine.generate([Request([*PROMPT], count, eos=())])
        seconds = time.perf_counter() - begun
    return 1e3 * seconds / tokens


def generated(model: Any, tokens: int) -> float:
    """Milliseconds a token of transformers' greedy generate."""
    ids = torch.tensor([[*PROMPT]], device=model.device)
    for count in (2, tokens):
        begun = time.perf_counter()
        lengths = {"max_new_tokens": count, "min_new_tokens": count}
        model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0, **lengths
        )
        seconds = time.perf_counter() - begun
    return 1e3 * seconds / tokens


def measured(
    shape: str, modes: Sequence[str], grid: Grid, batches: Sequence[int], tokens: int
) -> dict[str, object]:
    """All figures of one shape."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    most = max(grid.contexts[-1] + grid.sizes[-1], len(PROMPT) + tokens)
    model = model_of(shape, most, device)
    read = sum(
        each.numel() * each.element_size()
        for name, each in model.named_parameters()
        if "embed_tokens" not in name
    )
    facts: dict[str, object] = {"weight_bytes": read}
    facts["generate"] = generated(model, max(4, tokens // 8))
    runner = attach(model)
    facts["plain"] = plain(runner, tokens)
    facts["steps"] = steps(runner, modes, grid, batches)
    facts["device"] = device_times(runner, grid.sizes, grid.contexts[0])
    runner.detach()
    return facts


@click.command()
@click.option("--shape", "shapes", multiple=True, default=("1b", "8b"), show_default=True)
@click.option("--mode", "modes", multiple=True, default=MODES, show_default=True)
@click.option("--nodes", multiple=True, default=(1, 2, 4, 8, 16, 32, 64, 128), show_default=True)
@click.option("--context", "contexts", multiple=True, default=(1024, 8192, 32768))
@click.option("--batch", "batches", multiple=True, default=(1, 4, 16), show_default=True)
@click.option("--tokens", default=64, show_default=True, help="Of plain decoding.")
@click.option(
    "--seconds",
    default=30.0,
    show_default=True,
    help="Most for a mode's steps; too little leaves out contexts.",
)
def main(
    shapes: Sequence[str],
    modes: Sequence[str],
    nodes: Sequence[int],
    contexts: Sequence[int],
    batches: Sequence[int],
    tokens: int,
    seconds: float,
) -> None:
    """Measure and print."""
    grid = Grid(tuple(nodes), tuple(contexts), seconds=seconds)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found: dict[str, object] = {"copy_bytes_per_second": copy_speed(device)}
    for shape in shapes:
        found[shape] = measured(shape, modes, grid, batches, tokens)
        print(json.dumps({shape: found[shape]}), file=sys.stderr)  # noqa: T201
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    model = {"shapes": {shape: asdict(PRESETS[shape]) for shape in shapes}, "device": name}
    settings = {"modes": list(modes), "tokens": tokens, "seconds": seconds}
    print(json.dumps(found | {"provenance": provenance(model=model, settings=settings, sets=())}))  # noqa: T201


if __name__ == "__main__":
    main()

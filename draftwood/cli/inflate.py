"""``draftwood inflate``: gives a small model the shapes of a large one."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from draftwood.cli._options import PATH, ModelOptions, checked_device
from draftwood.errors import DraftwoodError
from draftwood.files import public_name
from draftwood.lab.inflate.room import check_disk, check_memory
from draftwood.lab.inflate.shapes import PRESETS, LlamaShape, flag, preset
from draftwood.sampling.noise import SEED_LIMIT

if TYPE_CHECKING:
    from draftwood.lab.inflate.model import Comparison

TEXT = (
    "The keeper of the lighthouse wrote every evening into the same book: the wind, the ships, "
    "and what she had cooked.\n\n    def total(prices):\n        return sum(prices)\n"
)
PROMPT_TOKENS, NEW_TOKENS = 64, 32


@click.command()
@click.argument("out_dir", type=PATH)
@click.option(
    "--model",
    default="embedded",
    show_default=True,
    help="Small Llama model: a directory, a hub id, embedded or smollm2.",
)
@click.option(
    "--head",
    help="Its EAGLE-3 head, written to OUT_DIR/head in the same widths: embedded-eagle3, "
    "smollm2-eagle3, a directory or a hub id.",
)
@click.option("--size", help=f"Named shape: {', '.join(PRESETS)}.")
@click.option("--hidden", type=int, help="Hidden size.")
@click.option("--layers", type=int, help="Number of layers.")
@click.option("--heads", type=int, help="Number of query heads.")
@click.option("--kv-heads", type=int, help="Number of key-value heads.")
@click.option("--head-dim", type=int, help="Size of a head.")
@click.option("--ffn", type=int, help="Intermediate size of the feed-forward layers.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="bfloat16",
    show_default=True,
    help="Number format of the written weights.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    callback=checked_device,
    help="Where the weights are made (cuda:0). A GPU's unused weights are not the CPU's.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the unused weights.")
@click.option(
    "--no-check",
    is_flag=True,
    help="Skip the comparison in float32, which needs all weights in memory.",
)
def inflate(
    out_dir: Path,
    model: str,
    head: str | None,
    size: str | None,
    dtype: str,
    device: str,
    seed: int,
    no_check: bool,
    **sizes: int | None,
) -> None:
    """Write to OUT_DIR a model with a small one's output and a large one's tensor shapes.

    Its text and acceptance rates are the small model's. Give --size, or all of --hidden, --layers,
    --heads, --kv-heads, --head-dim and --ffn.
    """
    large = shape_from(size, sizes)
    if not 0 <= seed < SEED_LIMIT:
        raise DraftwoodError(f"--seed is {seed}: give an integer in [0, 2**64)")
    import torch

    from draftwood import models
    from draftwood.lab.bench.stopping import stoppable
    from draftwood.lab.inflate.checkpoint import HEAD, WrittenHead, check_place, write
    from draftwood.lab.inflate.head import has_rows_of, inflate_head
    from draftwood.lab.inflate.head_check import check_head
    from draftwood.lab.inflate.model import check, shape_of
    from draftwood.lab.inflate.model import inflate as inflate_model
    from draftwood.lab.inflate.plan import planned

    check_place(out_dir)
    loaded = ModelOptions(model, "float32", device, None, trust_remote_code=False).load()
    plan = planned(loaded.model, model, large, head)
    source, own_head = plan.source, plan.head
    whole = plan.parameters + plan.head_parameters
    narrow = models.DTYPES[dtype]
    check_disk(out_dir.absolute().parent, whole, narrow.itemsize)
    first, advice = narrow, "choose a smaller shape"
    if not no_check:
        first = torch.float32
        advice = f"the check runs in float32; {advice}, or skip it with --no-check"
    check_memory(whole, first.itemsize, advice, source.device)
    made = inflate_model(source, large, dtype=first, seed=seed, device=source.device)
    made_head = inflate_head(own_head, made, seed=seed) if own_head else None
    checks: dict[str, Comparison] = {}
    if no_check:
        click.echo("not checked: --no-check was given")
    else:
        prompt = torch.tensor(loaded.tokenizer.encode(TEXT)[:PROMPT_TOKENS])
        checks["the model"] = check(source, made, prompt, NEW_TOKENS)
        if own_head and made_head:
            checks["the head"] = check_head((source, own_head), (made, made_head), prompt)
        for what, found in checks.items():
            click.echo(
                f"{what}, checked in float32: {found.greedy_equal} of {found.positions} greedy "
                f"tokens equal, largest logit difference {found.largest:.1e}"
            )
        torch.nn.Module.to(made, narrow)
    record: dict[str, object] = {
        "source": {
            "name": public_name(model),
            "revision": getattr(source.config, "_commit_hash", None),
            "shape": asdict(plan.small),
        },
        "shape": asdict(large),
        "parameters": plan.parameters,
        "dtype": dtype,
        "device": source.device.type,
        "seed": seed,
        "check": _recorded(checks.get("the model")),
    }
    written: WrittenHead | None = None
    if head and own_head and made_head:
        torch.nn.Module.to(made_head, narrow)
        written = WrittenHead(made_head, tied=has_rows_of(own_head, source))
        record["head"] = {
            "name": public_name(head),
            "shape": asdict(shape_of(own_head.config)),
            "taps": list(own_head.taps),
            "parameters": made_head.num_parameters(),
            "check": _recorded(checks.get("the head")),
        }
    with stoppable():
        write(out_dir, made, loaded.tokenizer, record, written)
    before = source.num_parameters()
    click.echo(
        f"{out_dir}: {plan.parameters:,} parameters in {dtype}, "
        f"{plan.parameters / before:.0f}x the parameters of {model}"
    )
    if made_head:
        click.echo(f"{out_dir / HEAD}: its head, {made_head.num_parameters():,} parameters")


def _recorded(agreement: Comparison | None) -> dict[str, object] | None:
    """A comparison for the record; None: there was none."""
    return None if agreement is None else {"dtype": "float32", **asdict(agreement)}


def shape_from(size: str | None, sizes: dict[str, int | None]) -> LlamaShape:
    """The shape given by ``--size`` or by the single sizes.

    Raises:
        DraftwoodError: both are given, a size is missing, or no Llama has this shape.
    """
    given = {name: value for name, value in sizes.items() if value is not None}
    missing = [f.name for f in fields(LlamaShape) if f.name not in given]
    if size is not None and given:
        raise DraftwoodError(f"--size {size} is complete: leave out {_flags(list(given))}")
    if size is not None:
        return preset(size)
    if missing:
        raise DraftwoodError(f"the shape is incomplete: give --size, or {_flags(missing)} as well")
    return LlamaShape(**given)


def _flags(names: list[str]) -> str:
    return ", ".join(map(flag, names))

"""`draftwood train`: flags in, runs out. What trains lies in the files beside this one."""

import logging
from collections import defaultdict
from pathlib import Path

import click
import torch
from click.core import ParameterSource

from draftwood.errors import DraftwoodError
from draftwood.train.batches import parse_mixture
from draftwood.train.recipe import DRAFT_SHAPE, TARGET_SHAPE, Recipe, Shape
from draftwood.train.session import Session

_MIXTURE = "code=0.45,prose=0.17,wiki=0.08,math=0.12,chat=0.18"
_TOKENS = {"target": 20_000_000, "draft": 10_000_000}
_TEACHER_SHARE = {"target": 0.0, "draft": 0.9}
_SEED = {"target": 1, "draft": 2}
_PRECISION = defaultdict(lambda: "float32", cuda="bfloat16")
_SHAPES = {"target": TARGET_SHAPE, "draft": DRAFT_SHAPE}


@click.command()
@click.argument("what", type=click.Choice(["tokenizer", "target", "draft"]))
@click.option(
    "--data", type=click.Path(path_type=Path), required=True, help="Directory of *.txt.gz files."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Directory of the run: tokenizer, cached tokens, checkpoints, exported models.",
)
@click.option("--mixture", default=_MIXTURE, show_default=True, help="Share of each domain.")
@click.option("--vocab-size", default=4096, show_default=True, help="Tokens in the vocabulary.")
@click.option("--hidden", type=int, help="Channels.")
@click.option("--layers", type=int, help="Layers.")
@click.option("--heads", type=int, help="Query heads.")
@click.option("--kv-heads", type=int, help="Key-value heads.")
@click.option("--head-dim", type=int, help="Channels of a head.")
@click.option("--ffn", type=int, help="Channels inside the feed-forward part.")
@click.option("--tokens", type=int, help="Tokens to train on in all; may change when resuming.")
@click.option("--length", default=1024, show_default=True, help="Tokens in a row.")
@click.option("--rows", default=6, show_default=True, help="Rows in a batch.")
@click.option(
    "--short-share",
    default=0.7,
    show_default=True,
    help="Share of the updates with rows cut in halves.",
)
@click.option("--warmup", default=60, show_default=True, help="Updates until the full rate.")
@click.option(
    "--decay-share", default=0.35, show_default=True, help="Share of the updates with falling rate."
)
@click.option("--muon-rate", default=0.02, show_default=True, help="Peak rate of the matrices.")
@click.option(
    "--adam-rate", default=3e-3, show_default=True, help="Peak rate of embeddings and norms."
)
@click.option("--teacher-share", type=float, help="Weight of the target's distribution (draft).")
@click.option(
    "--teacher-from",
    default=0.0,
    show_default=True,
    help="Share of the updates after which the target teaches (draft).",
)
@click.option("--seed", type=int, help="Of the initial weights and the data order.")
@click.option("--threads", type=int, help="CPU threads; the machine's choice if not given.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, or a torch device."
)
@click.option("--micro-tokens", default=1024, show_default=True, help="Tokens run through at once.")
@click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16"]),
    help="Of matrix products; bfloat16 on a GPU and float32 on a CPU if not given.",
)
@click.option("--checkpoint-every", default=100, show_default=True, help="Updates per checkpoint.")
@click.option("--stop-after", type=int, help="Stop after that many updates, to be resumed.")
@click.option(
    "--sources",
    type=click.Path(path_type=Path),
    help="JSON about the texts' origin and licences; DATA/manifest.json if not given.",
)
@click.option(
    "--export", type=click.Path(path_type=Path), help="Where the model goes as well in the end."
)
def train(
    what: str,
    data: Path,
    out: Path,
    mixture: str,
    vocab_size: int,
    hidden: int | None,
    layers: int | None,
    heads: int | None,
    kv_heads: int | None,
    head_dim: int | None,
    ffn: int | None,
    tokens: int | None,
    length: int,
    rows: int,
    short_share: float,
    warmup: int,
    decay_share: float,
    muon_rate: float,
    adam_rate: float,
    teacher_share: float | None,
    teacher_from: float,
    seed: int | None,
    threads: int | None,
    device: str,
    micro_tokens: int,
    precision: str | None,
    checkpoint_every: int,
    stop_after: int | None,
    sources: Path | None,
    export: Path | None,
) -> None:
    """Train the tokenizer, the target or the draft model that ship with Draftwood.

    A run that was stopped goes on where its last checkpoint left it. The target
    needs a tokenizer in OUT (made if there is none), the draft a finished target.
    """
    logging.getLogger("draftwood.train").setLevel(logging.INFO)
    if threads is not None:
        torch.set_num_threads(threads)
    session = Session(data, out, parse_mixture(mixture), _device(device), sources)
    if what == "tokenizer":
        session.train_tokenizer(vocab_size)
        return
    base = _SHAPES[what]
    shape = Shape(
        hidden=_pick(hidden, base.hidden),
        layers=_pick(layers, base.layers),
        heads=_pick(heads, base.heads),
        kv_heads=_pick(kv_heads, base.kv_heads),
        head_dim=_pick(head_dim, base.head_dim),
        ffn=_pick(ffn, base.ffn),
    )
    recipe = Recipe(
        tokens=_pick(tokens, _TOKENS[what]),
        length=length,
        rows=rows,
        short_share=short_share,
        warmup=warmup,
        decay_share=decay_share,
        muon_rate=muon_rate,
        adam_rate=adam_rate,
        teacher_share=_TEACHER_SHARE[what] if teacher_share is None else teacher_share,
        teacher_from=teacher_from,
        seed=_pick(seed, _SEED[what]),
    )
    session.train_model(
        what,
        shape,
        recipe,
        vocab_size=vocab_size,
        micro_tokens=micro_tokens,
        workers=torch.get_num_threads() if session.device.type == "cpu" else 1,
        mixed=(precision or _PRECISION[session.device.type]) == "bfloat16",
        checkpoint_every=checkpoint_every,
        stop_after=stop_after,
        export=export,
        command=_command(what),
    )


def _command(what: str) -> str:
    """Word the command for the record, with the flags given and without directories' names."""
    context = click.get_current_context()
    words = ["draftwood train", what, "--data DATA", "--out OUT"]
    for name, value in context.params.items():
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name != "what" and not isinstance(value, Path):
            words.append(f"--{name.replace('_', '-')} {value}")
    return " ".join(words)


def _pick(given: int | None, default: int) -> int:
    return default if given is None else given


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DraftwoodError(f"{name!r} is not a device; use auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DraftwoodError("There is no CUDA device here; use --device cpu.")
    return device

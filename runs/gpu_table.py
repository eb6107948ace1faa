"""A benchmark in *cells* of one model, which is loaded or inflated once, for a machine on loan.

    PYTHONPATH=. python runs/gpu_table.py --inflate 8b --prompts humaneval.jsonl --seconds 500

A cell is KIND_BATCH: ``greedy_16`` decodes 16 prompts at once at temperature 0, ``sampled_16`` at
temperature 1, and ``peers_16`` compares plain decoding with other libraries, on fewer prompts and
tokens. Each cell is a run of ``draftwood bench``: it leaves the same document in
OUT/gpu_table_SIZE_CELL.json, and its journal beside it if it is interrupted. A later call goes on
where this one stopped and skips what is complete. Exit code 124: the time is over, call it again;
1: a cell failed. The figures of all cells are printed at the end, a line for each method.
"""

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import draftwood
from draftwood.cli._options import numbers
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contenders import OwnChoice, Stage, choose
from draftwood.lab.bench.document import Document, load
from draftwood.lab.bench.journal import Journal, beside, differences
from draftwood.lab.bench.outputs import Outputs
from draftwood.lab.bench.prompts import read, sources
from draftwood.lab.bench.provenance import git_state
from draftwood.lab.bench.runs import Job
from draftwood.lab.bench.session import Session
from draftwood.lab.bench.settings import Settings
from draftwood.lab.bench.stopping import stoppable
from draftwood.lab.inflate.shapes import preset
from draftwood.methods.shipped import check_drafts
from draftwood.sampling.params import SamplingParams
from runs.loaded_once import inflated_name, inflated_stage, loaded_stage
from runs.table_lines import lines

SCRIPT = "gpu_table.sh"
"""Its parts are cells; ``keep.py`` looks for them there."""

CELLS = "greedy_1,greedy_4,greedy_16,greedy_64,sampled_1,sampled_16,peers_1"
METHODS = ("ar", "auto", "auto:shape=chain", "goose:budget=16")
WITH_HEAD = ("eagle3:budget=16:levels=4", "talon:drafter=eagle3:budget=16")
TEMPERATURES = {"greedy": 0.0, "sampled": 1.0, "peers": 0.0}
FAILED, OVER = 1, 124
"""Exit codes."""
MOST = 3000
"""Last characters of an error that are printed."""


class TimeOver(Exception):  # noqa: N818 - not an error
    """The time of this call is over."""


@dataclass(frozen=True)
class Cell:
    """A kind of decoding, and how many prompts are decoded at once."""

    kind: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.batch}"

    def settings(self, given: Mapping[str, Any]) -> Settings:
        """The settings of the cell's run, from the options of the command."""
        peers = self.kind == "peers"
        limit = given["peer_prompts"] if peers else given["limit"]
        seeds = numbers("--seeds", given["seeds"], int, "write integers, such as 0,1")
        return Settings(
            prompts=sources(given["prompts"]),
            methods=("ar", *given["peers"].split(",")) if peers else named(given),
            # A batch has prompts of one set.
            limit=max(limit, self.batch),
            model=model_name(given),
            dtype=given["dtype"],
            device=given["device"],
            max_new_tokens=given["peer_tokens"] if peers else given["tokens"],
            sampling=SamplingParams(temperature=TEMPERATURES[self.kind]),
            seeds=seeds if self.kind == "sampled" else seeds[:1],
            head=None if peers else head_name(given),
            batch=self.batch,
            repeats=given["repeats"],
            truncate=given["truncate"],
        )


def cell(text: str) -> Cell:
    """A cell by its name.

    Raises:
        UsageError: there is no such kind, or the batch is no number above 0.
    """
    kind, _, batch = text.partition("_")
    if kind not in TEMPERATURES or not batch.isdecimal() or int(batch) < 1:
        kinds = ", ".join(f"{kind}_BATCH" for kind in TEMPERATURES)
        raise click.UsageError(f"--cells has {text!r}: write {kinds}, such as greedy_16")
    return Cell(kind, int(batch))


def named(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The methods that were asked for, or the usual ones."""
    if given["methods"] is not None:
        return tuple(given["methods"].split(","))
    return (*METHODS, *(WITH_HEAD if given["head"] else ()))


def model_name(given: Mapping[str, Any]) -> str:
    """The model's name in results."""
    size = given["inflate"]
    return given["model"] if size is None else inflated_name(given["source"], size)


def head_name(given: Mapping[str, Any]) -> str | None:
    """The head's name in results, by which methods find it."""
    head, size = given["head"], given["inflate"]
    return head if head is None or size is None else inflated_name(head, size)


def refuse(asked: Sequence[Settings], given: Mapping[str, Any]) -> None:
    """Refuse what a cell would refuse, before the model is loaded.

    Raises:
        DraftwoodError: there is no such method, prompt file or shape, or a method has nothing to
            draft with.
    """
    if given["inflate"] is not None:
        preset(given["inflate"])
    for settings in asked:
        chosen = choose(settings.contenders, settings.defaults)
        settings.defaults.check([each.name for each in chosen])
        own = {each.name: each.method for each in chosen if isinstance(each, OwnChoice)}
        check_drafts(given["source"] if given["inflate"] else given["model"], own)
        read(settings.prompts, settings.limit)


def stage_of(given: Mapping[str, Any]) -> Stage:
    """The model on its device."""
    where = (given["dtype"], given["device"])
    if given["inflate"] is None:
        return loaded_stage(given["model"], *where)
    return inflated_stage(given["source"], given["inflate"], given["head"], *where)


def until(end: float) -> Callable[[Job, bool], None]:
    """Called before each job: raises if the time is over."""

    def starting(job: Job, timed: bool) -> None:  # noqa: ARG001
        if time.monotonic() >= end:
            raise TimeOver

    return starting


def measured(settings: Settings, stage: Stage, path: Path, end: float) -> Document:
    """Run a cell, or the rest of it, and write its document; incomplete if the time is over."""
    journal = Journal(beside(path), resume=True)
    began = time.monotonic()
    session = Session(settings, journal, stage)
    complete = False
    try:
        # Whole answers: kernels are compiled, and CUDA graphs recorded, for every size that occurs.
        session.execute(until(end), warm_up_tokens=settings.max_new_tokens)
        complete = True
    except TimeOver:
        pass
    finally:
        found = session.document(complete=complete)
        Outputs(json=path).write(found)
    if complete:
        journal.remove()
    click.echo(f"{path.stem}: {time.monotonic() - began:.0f} s", err=True)
    return found


def refuse_other(document: Document, settings: Settings, path: Path) -> None:
    """Refuse to show a complete cell as that of other settings or of another commit.

    Raises:
        ClickException: it is; the message names the difference.
    """
    found = document.provenance
    recorded = {"settings": found["settings"], "git": found["git"]}
    now = {"settings": settings.recorded(), "git": git_state(Path(draftwood.__file__).parent)}
    if wrong := differences(recorded, now, "it"):
        raise click.ClickException(f"{path} is of another run: {wrong[0]}; delete it")


def run(
    asked: Sequence[Cell], given: Mapping[str, Any], out: Path, end: float, figures: list[str]
) -> int:
    """Run the cells that are not complete, in order, and return the exit code.

    Args:
        asked: the cells.
        given: the options of the command.
        out: directory of the documents.
        end: no job begins after this ``time.monotonic()``.
        figures: lines are added here as cells end.
    """
    size = given["inflate"] or Path(given["model"]).name
    settings = {each: each.settings(given) for each in asked}
    refuse([*settings.values()], given)
    out.mkdir(parents=True, exist_ok=True)
    code = 0
    stage: Stage | None = None
    for each in asked:
        path = out / f"gpu_table_{size}_{each.name}.json"
        document = load(path) if path.exists() else None
        if document is not None and document.complete:
            refuse_other(document, settings[each], path)
        elif time.monotonic() >= end:
            code = code or OVER
        else:
            stage = stage or stage_of(given)
            path.with_suffix(".part_of").write_text(f"{SCRIPT} {each.name}\n")
            try:
                document = measured(settings[each], stage, path, end)
            except Exception as error:  # noqa: BLE001 - the next cells are measured still
                expected = isinstance(error, DraftwoodError)
                text = str(error) if expected else traceback.format_exc()[-MOST:]
                click.echo(f"{each.name} failed: {text}", err=True)
                code = FAILED
            else:
                code = code or (0 if document.complete else OVER)
        if document is not None:
            figures += lines(f"{size} {each.name}", document)
    return code


@click.command()
@click.option("--model", default="smollm2", show_default=True, help="Name, directory or hub id.")
@click.option("--inflate", metavar="SIZE", help="Inflate --source to this shape instead.")
@click.option("--source", default="smollm2", show_default=True, help="What is inflated.")
@click.option("--head", help="EAGLE-3 head of --model or --source; adds methods.")
@click.option("--dtype", default="bfloat16", show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--cells", default=CELLS, show_default=True)
@click.option("--methods", help=f"[default: {', '.join((*METHODS, *WITH_HEAD))}]")
@click.option("--prompts", required=True, metavar="SET[,SET]")
@click.option("--limit", default=2, show_default=True, help="Prompts of a set; a batch at least.")
@click.option("--tokens", default=128, show_default=True, help="Most new tokens.")
@click.option("--truncate", default=1024, show_default=True, help="Last tokens of long prompts.")
@click.option("--seeds", default="0", show_default=True, help="Of cells that sample.")
@click.option("--repeats", default=1, show_default=True)
@click.option("--peers", default="hf", show_default=True, help="Of cells peers_BATCH.")
@click.option("--peer-prompts", default=1, show_default=True, help="Their --limit.")
@click.option("--peer-tokens", default=32, show_default=True, help="Their --tokens.")
@click.option("--seconds", type=float, help="No job begins after so many.  [default: no limit]")
@click.option("--out", type=click.Path(path_type=Path), default=Path(__file__).parent / "out")
def main(cells: str, seconds: float | None, out: Path, **given: Any) -> None:
    """Measure, then print the figures."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    asked = [cell(text) for text in cells.split(",")]
    figures: list[str] = []
    try:
        with stoppable():
            code = run(asked, given, out, end, figures)
    except DraftwoodError as error:
        raise click.ClickException(str(error)) from None
    finally:
        click.echo("\n".join(figures))
    raise SystemExit(code)


if __name__ == "__main__":
    main()

"""Speed-ups that were measured on a GPU, as docs/gpu.md has them, beside modelled ones."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from draftwood.lab.replay.pricing import NODE, STEP

from .markdown import number, table
from .stored import Run

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"

GPU, SHAPE = "h100", "8b"
"""Modelled cells that are nearest to what was measured."""

SHARES = "repeated 8-grams"

CAUSES = (
    f"The estimated costs have {1e3 * STEP:g} ms a step and {1e3 * NODE:g} ms a node for the host, "
    "and nothing for each sequence. But drafting and verification run in Python, and their time "
    "grows with the requests; and answers that loop less gain less."
)
"""Why modelled figures are better than measured ones."""


def measured(text: str) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Rows of the tables of speed-ups by batch.

    Args:
        text: of docs/gpu.md.

    Yields:
        The GPU's name, the method, and its cells by the heads of their columns.
    """
    gpu, header = "", list[str]()
    for line in text.splitlines():
        first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        if not line.startswith("|"):
            header = []
            gpu = (re.findall(r"\b[HAB]\d00\b", line) or [gpu])[-1]
        elif first == "method":
            header = rest
        elif header:
            yield gpu, first, dict(zip(header, rest, strict=True))


def beside(run: Run) -> Iterable[str]:
    """Measured speed-ups of `auto` below the modelled ones of a run of greedy answers."""
    by_method = run["modelled"].get(GPU, {}).get(SHAPE)
    settings = run["provenance"]["settings"]
    if by_method is None or settings["temperature"]:
        return
    auto = next(name for name in by_method if name.startswith("auto"))
    batches = list(by_method[auto])
    share = f"{100 * settings['repeated_8grams']:.0f} %"
    cells = (f"{number(by_method[auto][each]['speedup'])} ({share})" for each in batches)
    rows = [[f"modelled, {GPU}, {SHAPE}", f"`{auto}`", *cells]]
    found = list(measured(PAGE.read_text(encoding="utf-8")))
    shares = {gpu: by for gpu, method, by in found if method.startswith(SHARES)}
    for gpu, method, by in found:
        if method.startswith("`auto"):
            row = (f"{by[h]} ({shares[gpu][h]})" if h in by else "-" for h in map(_head, batches))
            rows.append([f"measured, {gpu}, {SHAPE}", method, *row])
    yield (
        "Measured on GPUs at that cost, with other prompts ([on a GPU](gpu.md#tokens-per-second)), "
        "greedy, in brackets the repeated 8-grams:"
    )
    yield table(["", "method", *map(_head, batches)], rows)


def _head(batch: str) -> str:
    return f"batch {batch}"

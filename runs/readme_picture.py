"""Draws docs/tree.svg: one real step of the embedded model, the accepted path in green.

python runs/readme_picture.py
"""

from pathlib import Path

from draftwood import attach, load
from draftwood.cli._demo_prompts import COMPLETIONS
from draftwood.cli._prompt import encode
from draftwood.cli.tree import as_svg
from draftwood.engine.engine import Engine
from draftwood.engine.request import Delta, Request, Stepped
from draftwood.files import write_text
from draftwood.methods import method

BUDGET = 14


def main() -> None:
    """Take the step whose accepted path leaves the spine for a branch, the longest such path."""
    loaded = load("embedded")
    engine = Engine(attach(loaded.model), method("goose", budget=BUDGET))
    best = None
    for text in COMPLETIONS.prompts.values():
        request = Request(encode(loaded.tokenizer, text, chat=False), 120, eos=loaded.eos)
        committed: tuple[int, ...] = ()
        for event in engine.stream([request]):
            if isinstance(event, Delta):
                committed = event.tokens
            if not isinstance(event, Stepped) or event.stats.tree.drafted < BUDGET:
                continue
            stats = event.stats
            rank = (stats.kind == "context+adjacency", stats.tree.route == "spine", len(stats.path))
            if best is None or rank > best[0]:
                best = (rank, stats, committed)
    if best is None:
        raise SystemExit("no step filled its budget: nothing to draw")
    _, stats, committed = best
    target = Path(__file__).parent.parent / "docs" / "tree.svg"
    write_text(target, as_svg(stats, committed, loaded.tokenizer))


if __name__ == "__main__":
    main()

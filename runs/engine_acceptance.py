"""Tables of what an engine's drafters are accepted, from the results of ``engines.sh``.

Tokens a step by set, ours also over the best of the engine's own drafters with as many nodes, and
how many answers have the tokens of the engine's plain decoding.

    python runs/engine_acceptance.py sglang runs/out
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import click

from draftwood.lab.loops import pooled, repeats

OURS = "draftwood"
"""Drafters whose label begins so are ours; the others are the engine's own."""


def table(plain: dict[str, Any], results: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of Markdown: a row for each set, a column for each drafter.

    Args:
        plain: the engine's result without drafts.
        results: by label of the drafter, all with as many nodes.
    """
    rivals = [label for label in results if not label.startswith(OURS)]
    sets = list(next(iter(results.values()))["tokens_a_step"])
    lines = [f"| set | {' | '.join(results)} |", "| --- |" + " --- |" * len(results)]
    paces = {label: each["tokens_a_step"] for label, each in results.items()}
    for name in sets:
        best = max(paces[label][name] for label in rivals)
        cells = [cell(paces[label][name], best, label) for label in results]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    means = {label: mean(each.values()) for label, each in paces.items()}
    best = max(means[label] for label in rivals)
    lines.append(f"| mean | {' | '.join(cell(n, best, label) for label, n in means.items())} |")
    same = [equal(plain["answers"], each["answers"]) for each in results.values()]
    lines.append(f"| same tokens | {' | '.join(same)} |")
    return lines


def cell(pace: float, best: float, label: str) -> str:
    """Tokens a step, for ours also over those of the best rival."""
    return f"{pace:.2f} ({pace / best:.2f}x)" if label.startswith(OURS) else f"{pace:.2f}"


def equal(plain: list[list[int]], answers: list[list[int]]) -> str:
    """How many answers are those of plain decoding."""
    return f"{sum(a == b for a, b in zip(plain, answers, strict=True))} of {len(plain)}"


@click.command()
@click.argument("engine")
@click.argument("out", type=click.Path(exists=True, path_type=Path))
def main(engine: str, out: Path) -> None:
    """Print a table for each number of nodes of an ENGINE whose results are in OUT."""
    prefix = f"engine_{engine}_"
    found = {
        path.stem.removeprefix(prefix): json.loads(path.read_text())
        for path in sorted(out.glob(f"{prefix}*.json"))
    }
    if "plain" not in found:
        raise click.ClickException(f"no {prefix}plain.json in {out}: run engines.sh")
    plain = found.pop("plain")
    share = pooled(map(repeats, plain["answers"])).share
    said = f"{len(plain['answers'])} prompts, {share:.0%} of 8-grams repeated"
    for nodes in sorted({int(label.rpartition("_")[2]) for label in found}):
        results = {
            label.rpartition("_")[0]: each
            for label, each in found.items()
            if label.endswith(f"_{nodes}")
        }
        click.echo(f"\n{nodes} nodes, {said}\n")
        click.echo("\n".join(table(plain, results)))


if __name__ == "__main__":
    main()

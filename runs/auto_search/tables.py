"""The parts' figures as Markdown tables. Knows what the parts return and nothing of how."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def tables(found: Mapping[str, Any]) -> str:
    """Every part's table, with its name above it."""
    kinds = {"nodes": _nodes, "faults": _faults, "calibration": _calibration}
    return "\n\n".join(
        f"{name}\n\n{kinds[name.partition('_')[0]](part)}" for name, part in found.items()
    )


def _nodes(part: Any) -> str:
    names = [part["auto"], *part["others"]]
    groups = list(next(iter(part["sizes"].values())))
    lines = []
    for nodes, by_group in part["sizes"].items():
        for name in names:
            cells = [f"{by_group[g][name]['tau']:.2f}" for g in groups]
            whole = by_group["all"][name]
            lines.append([nodes, name, *cells, f"{whole['nodes']:.1f}", f"{whole['drafts']:.1f}"])
        gains = [f"{by_group[g]['gain']:+.1%}" for g in groups]
        lines.append([nodes, "gain", *gains, "", ""])
    return _table(["nodes", "tau", *groups, "drafted", "drafts"], lines)


def _faults(part: Any) -> str:
    rows = part["rows"]
    groups = list(rows["auto"]["tokens_per_second"])
    lines = [
        [
            name,
            *(f"{row['tokens_per_second'][g]:.0f}" for g in groups),
            f"{row['mean']:.0f}",
            f"{row['over_auto']:+.1%}",
            "-" if row["share_of_gap"] is None else f"{row['share_of_gap']:.0%}",
            f"{row['by_prompt']['ratio']:.3f} ± {row['by_prompt']['error']:.3f}",
            f"{row['tau']:.2f}",
            f"{row['nodes']:.1f}",
        ]
        for name, row in rows.items()
    ]
    chosen = ", ".join(f"{name}: {other}" for name, other in part["best"].items())
    heads = ["tok/s", *groups, "mean", "over auto", "of the gap", "by prompt", "tau", "nodes"]
    return f"{_table(heads, lines)}\n\nBest others: {chosen}"


def _calibration(part: Any) -> str:
    lines = []
    for name, kinds in part["sets"].items():
        for kind, found in kinds.items():
            sources = {**found["sources"]}
            sources |= {f"depth {band}": sums for band, sums in found["by_depth"].items()}
            sources |= {f"paths {band}": sums for band, sums in found["paths_by_rank"].items()}
            for source, sums in sources.items():
                error = "-" if sums["error"] is None else f"{sums['error']:+.1%}"
                counts = (sums["offered"], f"{sums['foretold']:.0f}", sums["taken"], error)
                lines.append([name, kind, found["steps"], source, *counts])
    heads = ["set", "tuner", "steps", "source", "offered", "foretold", "taken", "error"]
    return _table(heads, lines)


def _table(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    rule = ["---"] * len(heads)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [heads, rule, *lines])

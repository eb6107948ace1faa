"""Further tables of the papers: figures that are no ratio of two methods over all prompts."""

from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import Any

from .goose_theory import theory
from .markdown import number, percent, table
from .papers import TAU, verdict
from .stored import Run, Runs, both, described, link
from .talon import talon

GAIN = (0.022, 0.057)
"""Traversal Verification's gain over token-level rejection (the paper's Tables 2 to 4)."""


def traversal(runs: Runs) -> Iterable[str]:
    """Gain of Traversal Verification over token-level rejection on the same trees."""
    first = next(both(runs, "acceptance_law"), None)
    if first is None:
        return
    law, run = first
    rows = []
    for name, by_heat in run["methods"].items():
        if "gain" not in next(iter(by_heat.values()))[0]:
            continue
        gains = {heat: mean(each["gain"] for each in seeds) for heat, seeds in by_heat.items()}
        ours = mean(gains.values())
        shown = ", ".join(f"T = {heat}: {percent(gain, sign='+')}" for heat, gain in gains.items())
        rows.append(
            [
                f"gain of traversal over rejection, `{name}`",
                " to ".join(percent(each, sign="+") for each in GAIN) + " (Tables 2 to 4)",
                f"{percent(ours, sign='+')} ({shown})",
                verdict(1 + ours, *(1 + each for each in GAIN)),
                link(law),
            ]
        )
    yield table(["claim", "paper", "ours, mean of temperatures", "verdict", "run"], rows)
    yield gain_by_task(run)


def gain_by_task(run: Run) -> str:
    """The gain by task, mean of temperatures and seeds; empty if the run does not have it."""
    rows: dict[str, dict[str, float]] = {}
    for name, by_heat in run["methods"].items():
        seeds = [each.get("by_task", {}) for of_heat in by_heat.values() for each in of_heat]
        for task in dict.fromkeys(task for each in seeds for task in each):
            gains = [each[task]["gain"] for each in seeds if "gain" in each.get(task, {})]
            if gains:
                rows.setdefault(task, {})[name] = mean(gains)
    names = list(dict.fromkeys(name for found in rows.values() for name in found))
    if not rows:
        return ""
    return table(
        ["gain by task", *(f"`{name}`" for name in names)],
        [
            [task, *(percent(found[n], sign="+") if n in found else "-" for n in names)]
            for task, found in rows.items()
        ],
    )


def expectations(run: Run) -> str:
    """Expected tokens a step by method and verifier: mean over seeds, a column a temperature."""
    heats = list(next(iter(run["methods"].values())))
    rows: list[Sequence[str]] = []
    for name, by_heat in run["methods"].items():
        for key in ("walk", "rejection", "traversal", "gain"):
            if key in by_heat[heats[0]][0]:
                values = [mean(seed[key] for seed in by_heat[heat]) for heat in heats]
                shown = percent if key == "gain" else number
                rows.append([f"`{name}`", key, *map(shown, values)])
    return table(["method", "verifier", *(f"T = {heat}" for heat in heats)], rows)


BUDGETS = (16, 32, 64, 128, 256)
"""Most nodes of a tree (DynaTree's Figure 8)."""

LENGTHS = (
    "sd:budget=8",
    "sd:budget=5",
    "fixed-tree",
    "dynatree:history=off",
    "dynatree",
    "dynatree:max_depth=10",
)
"""Methods of DynaTree's Table 1 and Table 4."""


def dynatree(runs: Runs) -> Iterable[str]:
    """Accepted tokens by the most nodes of a tree, and of long answers on each of its sets."""
    for name, run in both(runs, "dynatree_budgets"):
        methods, shown = run["methods"], ("dynatree", "fixed-tree")
        rows = [
            [str(most), *(_tau(methods, f"{method}:budget={most}") for method in shown)]
            for most in BUDGETS
        ]
        header = ["most nodes", *(f"τ of `{method}`" for method in shown)]
        equal = len({tuple(row[1:]) for row in rows}) == 1
        note = (
            " Depth and breadth bound the trees of both before so many nodes do." if equal else ""
        )
        about = f"{described(run)}; {_repeated(run)} of 8-grams repeated.{note}"
        yield f"{about}\n\n{table(header, rows)}\n\n{link(name)}"
    for part in ("dynatree_512", "dynatree_512_pg"):
        for name, run in both(runs, part):
            known = [each for each in LENGTHS if _tau(run["methods"], each) != "-"]
            header = ["512 new tokens", *(f"τ of `{method}`" for method in known)]
            row = [described(run), *(_tau(run["methods"], method) for method in known)]
            header, row = [*header, "repeated 8-grams"], [*row, _repeated(run)]
            yield f"{table(header, [row])}\n\n{link(name)}"


def _repeated(run: Run) -> str:
    """The share of repeated 8-grams in plain answers."""
    return percent(run["methods"]["ar"]["repeated_8grams"]["value"])


def _tau(methods: dict[str, Any], name: str) -> str:
    """Of a method, whose drafts may be a head's."""
    entry = methods.get(name, methods.get(f"{name}:drafter=eagle3", {}))
    return number(entry.get(TAU, {}).get("value"))


FURTHER: dict[str, Callable[[Runs], Iterable[str]]] = {
    "GOOSE": theory,
    "DynaTree": dynatree,
    "TALON": talon,
}
"""What follows a paper's claims."""

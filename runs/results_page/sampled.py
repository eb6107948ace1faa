"""Sampled trees and their verifiers."""

import re
from collections.abc import Callable, Iterable, Sequence

from results_page.documents import Run, Runs, by_commit, origin
from results_page.markdown import number, spread, table

HEAT = re.compile(r"traversal_t([\d.]+)_s\d+")
"""Names of the runs of whole decoding; the number is their temperature."""


def over_seeds(runs: Sequence[Run], method: str, value: Callable[[Run], float | None]) -> str:
    """Mean over runs that differ in their seed, and its standard error."""
    found = [value(run["methods"][method]) for run in runs if method in run["methods"]]
    known = [each for each in found if each is not None]
    if not known:
        return "-"
    return spread(known)


def expectations(run: Run) -> str:
    """One row a method and verifier, one column a temperature."""
    heats = list(next(iter(run["methods"].values())))
    rows = []
    for name, by_heat in run["methods"].items():
        for key in ("walk", "rejection", "traversal", "gain"):
            if key in by_heat[heats[0]][0]:
                scale, unit = (100.0, " %") if key == "gain" else (1.0, "")
                cells = [spread([s[key] for s in by_heat[h]], scale) + unit for h in heats]
                rows.append([f"`{name}`", key, *cells])
    return table(["method", "verifier", *(f"T = {heat}" for heat in heats)], rows)


def sampled_trees(runs: Runs) -> Iterable[str]:
    """Trees and verifiers above temperature 0."""
    return [*measured(runs), *expected(runs), *verifying(runs)]


def measured(runs: Runs) -> Iterable[str]:
    """Whole decoding above temperature 0, by temperature."""
    title = "Token-level rejection, Traversal Verification and their rivals"
    heats = {name: found[1] for name in runs if (found := HEAT.fullmatch(name))}
    for said, own in by_commit({name: runs[name] for name in heats}):
        by_heat: dict[str, list[Run]] = {}
        for name, run in own.items():
            by_heat.setdefault(heats[name], []).append(run)
        methods = list(next(iter(by_heat.values()))[0]["methods"])
        for what, value in (
            ("Mean acceptance length", lambda entry: entry["mean_acceptance_length"]["value"]),
            ("Speed-up over `ar`", lambda entry: entry["speedup_vs_ar"]["median"]),
            ("Repeated 8-grams", lambda entry: entry["repeated_8grams"]["value"]),
        ):
            rows = [
                [f"`{m}`", *(over_seeds(found, m, value) for found in by_heat.values())]
                for m in methods
            ]
            yield f"### {title}: {what[0].lower()}{what[1:]}\n\n{said}"
            yield "Mean over seeds ± standard error, by temperature.\n"
            yield table(["method", *(f"T = {heat}" for heat in by_heat)], rows) + "\n"
        for name, run in own.items():
            yield origin(name, run) + "\n"


def expected(runs: Runs) -> Iterable[str]:
    """Tokens a step in expectation, verifier against verifier."""
    for name, title in (
        ("acceptance_law", "Tokens a step in expectation, by verifier, over the same trees"),
        ("acceptance_law_rivals", "The same, trees of about 25 nodes"),
        ("acceptance_law_depths", "The same over depths (the paper's Figure 3)"),
    ):
        if name in runs:
            yield f"### {title}\n"
            yield (
                "Exact for every tree that was drafted along the way; mean over seeds ± standard "
                "error. *Gain*: Traversal Verification over token-level rejection, tree by tree.\n"
            )
            yield expectations(runs[name]) + "\n"
            yield origin(name, runs[name]) + "\n"


def verifying(runs: Runs) -> Iterable[str]:
    """What the verifiers themselves cost."""
    if "verifier_cost" not in runs:
        return
    run = runs["verifier_cost"]
    rows = []
    for nodes, figures in run["verifying_ms"].items():
        for size, each in figures.items():
            if isinstance(each, dict):
                cost = [number(each[name]) for name in ("rejection", "traversal")]
                rows.append([nodes, size, *cost, number(figures["target_forward_ms"])])
    header = ["nodes", "V", "rejection, ms", "traversal, ms", "embedded target's forward, ms"]
    yield "### Cost of verifying a sampled binary tree\n"
    yield table(header, rows) + "\n"
    yield origin("verifier_cost", run) + "\n"

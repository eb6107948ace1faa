"""GOOSE's figures: tokens per target call against its baselines, ablations and sweeps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from results_page.against import Printed, control, verdict
from results_page.by_set import SETS, tau
from results_page.documents import Run, Runs, cut, origin, sample
from results_page.markdown import number, table

ISO3 = Printed(1.12, 1.33, "Table 1")
SINGLE = Printed(1.16, 1.45, "Section D.2")


def ratios(run: Run, *, loops: bool) -> str:
    """GOOSE against Iso(3) and against the better of its two sources, per set."""
    methods = run["methods"]
    tr = "tr:budget=59" if "tr:budget=59" in methods else "tr"

    def over(rivals: Sequence[str], each: str | None) -> float | None:
        return _over({m: cut(methods[m], each, loops=loops) for m in ("goose", *rivals)})

    sets = [*(s for s in SETS if s in methods["goose"]["by_set"]), None]
    rows = []
    for title, rivals, printed in (
        ("spine over Iso(3)", ["iso3"], ISO3),
        ("over the better single source", ["pld", tr], SINGLE),
    ):
        found = [over(rivals, s) for s in sets]
        rows.append([title, *map(number, found), str(printed), verdict(found[-1], printed)])
    return table(["ratio of τ", *(s or "all" for s in sets), "the paper", "all"], rows)


def _over(found: Mapping[str, Mapping[str, Any]]) -> float | None:
    """τ of the first method over the best of the others'; None where one is unknown."""
    own, *others = (each["mean_acceptance_length"]["value"] for each in found.values())
    return own / max(others) if own and all(others) else None


def acceptance(runs: Runs) -> Iterable[str]:
    """τ of GOOSE against its baselines, its ablations and its sweeps."""
    for name, title in (("tau_greedy", "Greedy"), ("tau_sampled", "Temperature 0.8")):
        if name not in runs:
            continue
        run = runs[name]
        yield f"### {title}\n"
        yield sample(run)
        for loops in (True, False):
            yield ("All outputs:" if loops else "Without looping outputs:") + "\n"
            yield tau(run, loops=loops) + "\n"
            yield ratios(run, loops=loops) + "\n"
        goose = run["methods"]["goose"]
        sources = goose["acceptance_by_source"]
        p_s, p_t = (number(sources[s]["rate"]["value"], 3) for s in ("context", "adjacency"))
        yield (
            f"`goose`: routes {goose['routes']}, path kinds {goose['kinds']}, "
            f"p_s {p_s}, p_t {p_t}.\n"
        )
        yield origin(name, run) + "\n"
    for name, title in (
        ("tau_ablations", "Ablations (the paper's Table 2)"),
        ("tau_sweeps", "Sweeps of B, D, r and rho (its Figures 4 and 5)"),
    ):
        if name in runs:
            yield f"### {title}\n"
            yield sample(runs[name])
            for loops in (True, False):
                yield ("All outputs:" if loops else "Without looping outputs:") + "\n"
                yield tau(runs[name], loops=loops) + "\n"
                if said := of_the_control(runs[name], loops=loops):
                    yield said + "\n"
            yield origin(name, runs[name]) + "\n"


def of_the_control(run: Run, *, loops: bool) -> str:
    """How the run's control row stands to the paper's; empty without such a row."""
    names = ("goose:spine=control", "goose")
    if not all(name in run["methods"] for name in names):
        return ""
    return control(_over({m: cut(run["methods"][m], None, loops=loops) for m in names}))

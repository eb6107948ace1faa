"""GOOSE's figures: tokens per target call against its baselines, ablations and sweeps."""

from collections.abc import Iterable

from results_page.by_set import SETS, tau
from results_page.documents import Run, Runs, cut, provenance
from results_page.markdown import number, table

PAPER = {
    "spine over Iso(3)": "1.12-1.33 (Table 1)",
    "over the better single source": "1.16-1.45 (Section D.2)",
}


def ratios(run: Run, *, loops: bool) -> str:
    """GOOSE against Iso(3) and against the better of its two sources, per set."""
    methods = run["methods"]
    tr = "tr:budget=59" if "tr:budget=59" in methods else "tr"

    def of(name: str, each: str | None) -> float:
        found = cut(methods[name], each, loops=loops)["mean_acceptance_length"]["value"]
        return float(found or "nan")

    sets = [*(s for s in SETS if s in methods["goose"]["by_set"]), None]
    spine = [number(of("goose", s) / of("iso3", s)) for s in sets]
    single = [number(of("goose", s) / max(of("pld", s), of(tr, s))) for s in sets]
    header = ["ratio of τ", *(s or "all" for s in sets), "the paper"]
    return table(
        header,
        [
            ["spine over Iso(3)", *spine, PAPER["spine over Iso(3)"]],
            ["over the better single source", *single, PAPER["over the better single source"]],
        ],
    )


def acceptance(runs: Runs) -> Iterable[str]:
    """τ of GOOSE against its baselines, its ablations and its sweeps."""
    yield "## Tokens per target call\n"
    for name, title in (("tau_greedy", "Greedy"), ("tau_sampled", "Temperature 0.8")):
        if name not in runs:
            continue
        run = runs[name]
        yield f"### {title}\n"
        for loops in (True, False):
            yield ("All outputs:" if loops else "Without looping outputs:") + "\n"
            yield tau(run, loops=loops) + "\n"
            yield ratios(run, loops=loops) + "\n"
        looping = {m: e["looping_texts"] for m, e in run["methods"].items()}
        plain = run["methods"]["ar"]
        yield f"Looping outputs of `ar`: {looping['ar']} of {plain['prompts']}.\n"
        goose = run["methods"]["goose"]
        sources = goose["acceptance_by_source"]
        p_s, p_t = (number(sources[s]["rate"]["value"], 3) for s in ("context", "adjacency"))
        yield (
            f"`goose`: routes {goose['routes']}, path kinds {goose['kinds']}, "
            f"p_s {p_s}, p_t {p_t}.\n"
        )
        yield provenance(run) + "\n"
    for name, title in (
        ("tau_ablations", "Ablations (the paper's Table 2)"),
        ("tau_sweeps", "Sweeps of B, D, r and rho (its Figures 4 and 5)"),
    ):
        if name in runs:
            yield f"### {title}\n"
            yield tau(runs[name]) + "\n"
            yield "Without looping outputs:\n"
            yield tau(runs[name], loops=False) + "\n"
            yield provenance(runs[name]) + "\n"

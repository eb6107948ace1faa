"""Writes docs/results.md from the JSON files of the runs; no figure in it is typed.

python runs/results.py --out runs/out > docs/results.md
"""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

SCHEMA = 2
SETS = ("humaneval", "mbpp", "classeval", "gsm8k_test", "mt_bench", "wikitext2_test")
FIGURES = Path(__file__).parent.parent / "docs" / "results"
"""Figures and files of the headline runs, committed beside the page."""

PAPER = {
    "spine over Iso(3)": "1.12-1.33 (Table 1)",
    "over the better single source": "1.16-1.45 (Section D.2)",
}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    """The number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def cut(entry: dict[str, Any], name: str | None, *, loops: bool) -> dict[str, Any]:
    """The aggregates of one method: of all sets or one, with or without looping outputs."""
    chosen = entry if name is None else entry["by_set"][name]
    return chosen if loops else chosen["without_looping"]


def by_set(
    run: dict[str, Any], key: str, figure: str, digits: int = 2, *, loops: bool = True
) -> str:
    """One row a method, one column a set, and the interval of all sets together.

    ``figure`` is the member of the metric ``key`` that is shown: ``median`` or ``value``.
    """
    sets = [name for name in SETS if name in next(iter(run["methods"].values()))["by_set"]]
    rows = []
    for name, entry in run["methods"].items():
        found = [cut(entry, each, loops=loops)[key] for each in (*sets, None)]
        shown = [number(metric[figure], digits) for metric in found]
        rows.append([f"`{name}`", *shown, interval(found[-1], digits)])
    return table(["method", *sets, "all", "95 % of all"], rows)


def interval(metric: dict[str, Any], digits: int = 2) -> str:
    """The ends of a metric's interval, or a dash where there is none."""
    if metric["low"] is None or metric["high"] is None:
        return "-"
    return f"{number(metric['low'], digits)}-{number(metric['high'], digits)}"


def provenance(run: dict[str, Any]) -> str:
    """Where a table's figures come from, in one line."""
    # Directories are the measuring machine's own business; names of files are not.
    facts = re.sub(r"/[\w./-]*/", "", json.dumps(run["provenance"], sort_keys=True))
    ended = "" if run.get("complete", True) else " (interrupted: it holds what had ended)"
    return f"<sub>`{facts}`{ended}</sub>"


def tau(run: dict[str, Any], *, loops: bool = True) -> str:
    """Mean acceptance lengths by set."""
    return by_set(run, "mean_acceptance_length", "value", loops=loops)


def lossless(runs: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Identity with plain decoding, counted in prompts."""
    yield "## Is it lossless?\n"
    yield (
        "Prompts whose token ids equal those of plain decoding through the same engine, of those "
        "compared (`hf` is transformers' own `generate` on an untouched copy of the model). A "
        "*near tie* is a divergence at a place where the target's two best logits are less than "
        "1e-5 apart; every other one would be a fault.\n"
    )
    for name, run in runs.items():
        if "lossless" not in name:
            continue
        rows = [
            [f"`{m}`", str(e["compared"]), str(e["identical"]), str(e["near_ties"])]
            for m, e in run["methods"].items()
        ]
        yield f"**{name}**\n"
        yield table(["method", "compared", "identical", "near ties"], rows) + "\n"
        yield provenance(run) + "\n"


def ratios(run: dict[str, Any], *, loops: bool) -> str:
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


def acceptance(runs: dict[str, dict[str, Any]]) -> Iterable[str]:
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
        looping = {m: e["looping_prompts"] for m, e in run["methods"].items()}
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


def drafting(run: dict[str, Any], *, loops: bool) -> str:
    """One row a method: acceptance, what it cost, and what a speed-up of it was to be expected."""
    rows = []
    for name, entry in run["methods"].items():
        found = cut(entry, None, loops=loops)
        rows.append(
            [
                f"`{name}`",
                number(found["mean_acceptance_length"]["value"]),
                interval(found["mean_acceptance_length"]),
                number(found["acceptance_rate"]["value"], 3),
                number(found["draft_efficiency"]["value"]),
                number(found["tokens_per_second"]["median"], 0),
                number(found["speedup_vs_ar"]["median"]),
                interval(found["speedup_vs_ar"]),
                number(found["predicted_speedup"]),
                number(found["predicted_speedup_with_verification"]),
                number(found["ttft_ms"]["median"], 1),
                number(found["tpot_ms"]["median"]),
            ]
        )
    header = ["method", "τ", "95 %", "accepted / drafted", "δ", "tok/s", "speed-up", "95 %"]
    return table([*header, "Eq. 7", "with T(n)", "TTFT ms", "TPOT ms"], rows)


def draft_trees(runs: dict[str, dict[str, Any]]) -> Iterable[str]:
    """The methods with a draft model or an EAGLE-3 head."""
    titles = {
        "draft_tau_t0": "Spec-Bench's families, greedy",
        "draft_tau_t1": "Spec-Bench's families, temperature 1",
        "dynatree_parts": "DynaTree, each component in turn (its Table 4)",
        "talon_sweeps": "TALON's budget, mu and ungated levels (its Figures 7, 12 and 13)",
        "dynatree_long": "1,500 new tokens",
        "fixed_sweeps": "Chains and fixed trees: the best K, and the best D and B",
    }
    if not titles.keys() & runs.keys():
        return
    yield "## Trees of a draft model and of an EAGLE-3 head\n"
    yield (
        "δ is draft forwards per target forward. *Eq. 7* is TALON's prediction τ / (1 + c·δ), "
        "*with T(n)* the same with the measured cost of verifying, both from the run's own times.\n"
    )
    for name, title in titles.items():
        if name in runs:
            yield f"### {title}\n"
            for loops in (True, False):
                yield ("All outputs:" if loops else "Without looping outputs:") + "\n"
                yield drafting(runs[name], loops=loops) + "\n"
            yield provenance(runs[name]) + "\n"


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    """Mean, and its standard error if there are several values."""
    mean = f"{scale * statistics.mean(values):.2f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {scale * statistics.stdev(values) / len(values) ** 0.5:.2f}"


def over_seeds(
    runs: Sequence[dict[str, Any]], method: str, value: Callable[[dict[str, Any]], float | None]
) -> str:
    """Mean over runs that differ in their seed, and its standard error."""
    found = [value(run["methods"][method]) for run in runs if method in run["methods"]]
    known = [each for each in found if each is not None]
    if not known:
        return "-"
    return spread(known)


def expectations(run: dict[str, Any]) -> str:
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


def sampled_trees(runs: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Trees and verifiers above temperature 0, by temperature."""
    for prefix, title in (
        ("traversal", "Token-level rejection, Traversal Verification and their rivals"),
        ("depths", "Over depths (the paper's Figure 3)"),
    ):
        by_heat: dict[str, list[dict[str, Any]]] = {}
        for name, run in runs.items():
            if heat := re.fullmatch(rf"{prefix}_t([\d.]+)_s\d+", name):
                by_heat.setdefault(heat[1], []).append(run)
        if not by_heat:
            continue
        methods = list(next(iter(by_heat.values()))[0]["methods"])
        for what, value in (
            ("Mean acceptance length", lambda entry: entry["mean_acceptance_length"]["value"]),
            ("Speed-up over `ar`", lambda entry: entry["speedup_vs_ar"]["median"]),
        ):
            rows = [
                [f"`{m}`", *(over_seeds(found, m, value) for found in by_heat.values())]
                for m in methods
            ]
            yield f"### {title}: {what[0].lower()}{what[1:]}\n"
            yield "Mean over seeds ± standard error, by temperature.\n"
            yield table(["method", *(f"T = {heat}" for heat in by_heat)], rows) + "\n"
        for found in by_heat.values():
            for run in found:
                yield provenance(run) + "\n"
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
            yield provenance(runs[name]) + "\n"
    if "verifier_cost" in runs:
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
        yield provenance(run) + "\n"


def champions(run: dict[str, Any], peers: Sequence[str]) -> str:
    """One row a set: the fastest of ours, the fastest peer, and who wins."""
    sets = next(iter(run["methods"].values()))["by_set"]

    def fastest(names: Sequence[str], each: str | None) -> tuple[float, str]:
        return max(
            (cut(run["methods"][m], each, loops=True)["tokens_per_second"]["median"] or 0.0, m)
            for m in names
        )

    ours = [m for m in run["methods"] if m.split(":")[0] not in peers]
    theirs = [m for m in run["methods"] if m.split(":")[0] in peers]
    rows = []
    for each in (*sets, None):
        (own, best), (other, rival) = fastest(ours, each), fastest(theirs, each)
        verdict = "ours" if own >= other else f"**{rival}**, {number(other / own)}x ours"
        rows.append([each or "all", f"`{best}` {own:.0f}", f"`{rival}` {other:.0f}", verdict])
    return table(["set", "our fastest, tok/s", "fastest peer, tok/s", "faster"], rows)


def speed(runs: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Tokens per second against plain decoding."""
    yield "## Speed\n"
    yield "Median over prompts of the paired ratio to plain decoding through the same engine.\n"
    for name, run in runs.items():
        if "speed" not in name:
            continue
        yield f"**{name}**, all outputs, then without looping ones:\n"
        for loops in (True, False):
            yield by_set(run, "speedup_vs_ar", "median", loops=loops) + "\n"
        if "hf" in run["methods"]:
            yield "Over transformers' own `generate`, paired alike, all outputs:\n"
            yield by_set(run, "speedup_vs_hf", "median") + "\n"
        peers = [m for m in run["methods"] if m.startswith(("hf", "llamacpp"))]
        if peers:
            yield "Who is faster, medians over prompts, all outputs:\n"
            yield champions(run, peers) + "\n"
        if (FIGURES / name / "speedup.svg").exists():
            yield f"![Speed-up by task](results/{name}/speedup.svg)\n"
        yield "Tokens per second:\n"
        yield by_set(run, "tokens_per_second", "median", 0) + "\n"
        yield provenance(run) + "\n"


def memory(run: dict[str, Any]) -> Iterable[str]:
    """Peak memory of a process (DynaTree's Table 5)."""
    yield "## Peak memory of one generation\n"
    rows = [[f"`{m}`", number(e["peak_mb"], 0)] for m, e in run["peak_memory"].items()]
    yield table(["method", "MB, Python and torch included"], rows) + "\n"
    yield provenance(run) + "\n"


def overhead(run: dict[str, Any]) -> Iterable[str]:
    """Cost of a step."""
    yield "## Cost of a step\n"
    curves = run["cost_ms_by_nodes"]
    nodes = list(next(iter(curves.values())))
    rows = []
    for packing, curve in curves.items():
        rows.append([f"packing {packing}, ms", *(number(curve[n]) for n in nodes)])
        rows.append(["relative to 1", *(number(curve[n] / curve["1"]) for n in nodes)])
    yield table(["nodes, root included", *nodes], rows) + "\n"
    keys = ("drafted", "steps", "step_ms", "model_ms", "outside_ms", "outside_share")
    yield (
        table(
            ["method", *keys],
            [
                [f"`{name}`", *(number(s[key], 3) for key in keys)]
                for name, s in run["steps"].items()
            ],
        )
        + "\n"
    )
    yield f"Index memory: {run['index_memory']}.\n"
    yield provenance(run) + "\n"


def load(path: Path) -> dict[str, Any]:
    """A file of a run: what ``draftwood bench`` wrote, or one of the scripts beside this one.

    Raises:
        ClickException: a bench document of another schema, whose figures mean something else.
    """
    run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if run.get("schema", SCHEMA) != SCHEMA:
        raise click.ClickException(
            f"{path} has schema {run['schema']}, and this script reads schema {SCHEMA}: run the "
            "benchmark again with this version of Draftwood"
        )
    return run


@click.command()
@click.option("--out", type=click.Path(path_type=Path, exists=True), default="runs/out")
def main(out: Path) -> None:
    """Print the page."""
    runs = {path.stem: load(path) for path in sorted(out.glob("*.json"))}
    parts = ["# Results\n", "Generated by `python runs/results.py`; the scripts are in `runs/`.\n"]
    if any("lossless" in name for name in runs):
        parts += lossless(runs)
    parts += acceptance(runs)
    parts += draft_trees(runs)
    sampled = list(sampled_trees(runs))
    parts += ["## Sampled trees and their verifiers\n", *sampled] if sampled else []
    if any("speed" in name for name in runs):
        parts += speed(runs)
    if "peak_memory" in runs:
        parts += memory(runs["peak_memory"])
    if "engine_overhead" in runs:
        parts += overhead(runs["engine_overhead"])
    click.echo("\n".join(parts))


if __name__ == "__main__":
    main()

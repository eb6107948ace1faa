"""Trees of a draft model and of an EAGLE-3 head."""

from collections.abc import Iterable

from results_page import claims
from results_page.by_set import interval
from results_page.documents import Run, Runs, cut, origin, repeated, sample
from results_page.dynatree import sweeps
from results_page.markdown import number, table


def drafting(run: Run, *, loops: bool) -> str:
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
                repeated(found),
            ]
        )
    header = ["method", "τ", "95 %", "accepted / drafted", "δ", "tok/s", "speed-up", "95 %"]
    return table([*header, "Eq. 7", "with T(n)", "TTFT ms", "TPOT ms", "repeated 8-grams"], rows)


def beside_the_paper(name: str, run: Run) -> Iterable[str]:
    """The ratios that the paper has too, for runs by its protocol."""
    papers = {"draft_tau_t0": "Table 1", "draft_tau_t1": "Table 3", "talon_sweeps": "Table 1"}
    found = claims.talon(run, papers[name]) if name in papers else claims.dynatree(run)
    if found:
        yield f"Beside the paper's own ratios, with what is to be said of each:\n\n{found}\n"


def draft_trees(runs: Runs) -> Iterable[str]:
    """The methods with a draft model or an EAGLE-3 head."""
    titles = {
        "draft_tau_t0": "Spec-Bench's families, greedy",
        "draft_tau_t1": "Spec-Bench's families, temperature 1",
        "dynatree_parts": "DynaTree, each component in turn (its Table 4)",
        "talon_sweeps": "TALON's budget, mu and ungated levels (its Figures 7, 12 and 13)",
        "dynatree_long": "DynaTree, 1,500 new tokens, WikiText-2 (its Tables 1 to 4)",
        "dynatree_long_pg": "DynaTree, 1,500 new tokens, PG-19 (its Tables 1 to 3)",
        "dynatree_512": "DynaTree, 512 new tokens, WikiText-2: more prompts",
        "dynatree_512_pg": "DynaTree, 512 new tokens, PG-19: more prompts",
        "fixed_sweeps": "Chains and fixed trees: the best K, and the best D and B",
    }
    swept = list(sweeps(runs))
    if not (swept or titles.keys() & runs.keys()):
        return
    yield (
        "δ is draft forwards per target forward. *Eq. 7* is TALON's prediction τ / (1 + c·δ), "
        "*with T(n)* the same with the measured cost of verifying, both from the run's own times.\n"
    )
    for name, title in titles.items():
        if name in runs:
            yield f"### {title}\n"
            yield sample(runs[name])
            for loops in (True, False):
                yield ("All outputs:" if loops else "Without looping outputs:") + "\n"
                yield drafting(runs[name], loops=loops) + "\n"
            yield from beside_the_paper(name, runs[name])
            yield origin(name, runs[name]) + "\n"
    yield from swept

"""Tokens per second against plain decoding and against the peers."""

from collections.abc import Iterable, Sequence

from results_page.auto_tables import automatic, headline
from results_page.best import at_best
from results_page.by_set import by_set
from results_page.documents import Run, Runs, by_commit, cut, origin, peers, sample
from results_page.markdown import number, table


def champions(run: Run) -> str:
    """One row a set: the fastest of ours, the fastest peer, and who wins."""
    sets = next(iter(run["methods"].values()))["by_set"]

    def fastest(names: Sequence[str], each: str | None) -> tuple[float, str]:
        return max(
            (cut(run["methods"][m], each, loops=True)["tokens_per_second"]["median"] or 0.0, m)
            for m in names
        )

    theirs = peers(run)
    ours = [m for m in run["methods"] if m not in theirs]
    rows = []
    for each in (*sets, None):
        (own, best), (other, rival) = fastest(ours, each), fastest(theirs, each)
        verdict = "ours" if own >= other else f"**{rival}**, {number(other / own)}x ours"
        rows.append([each or "all", f"`{best}` {own:.0f}", f"`{rival}` {other:.0f}", verdict])
    return table(["set", "our fastest, tok/s", "fastest peer, tok/s", "faster"], rows)


def speed(runs: Runs) -> Iterable[str]:
    """Tokens per second against plain decoding."""
    speeds = {name: run for name, run in runs.items() if "speed" in name and run["times"]}
    if not speeds:
        return
    yield "Median over prompts of the paired ratio to plain decoding through the same engine.\n"
    for said, own in by_commit(speeds):
        yield from headline(own, said)
    for name, run in speeds.items():
        yield f"**{name}**, all outputs, then without looping ones:\n"
        yield sample(run)
        for loops in (True, False):
            yield by_set(run, "speedup_vs_ar", "median", loops=loops) + "\n"
        if "hf" in run["methods"]:
            yield "Over transformers' own `generate`, paired alike, all outputs:\n"
            yield by_set(run, "speedup_vs_hf", "median") + "\n"
        if peers(run):
            yield "Who is faster, medians over prompts, all outputs:\n"
            yield champions(run) + "\n"
        yield from at_best(run)
        yield from automatic(run)
        yield "Tokens per second:\n"
        yield by_set(run, "tokens_per_second", "median", 0) + "\n"
        yield origin(name, run) + "\n"

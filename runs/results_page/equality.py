"""Whether outputs are those of plain decoding, in tokens or in distribution."""

from collections.abc import Iterable
from typing import Any

from .markdown import number, table
from .stored import Run, Runs, benchmarks, commit, link, mode


def lossless(runs: Runs) -> Iterable[str]:
    """Totals of all comparisons, for each model and dtype; then a row for each run."""
    tokens = {name: run for name, run in benchmarks(runs).items() if counts(run)[1]}
    laws = {name: run for name, run in runs.items() if "checks" in run}
    for model in dict.fromkeys(mode(run)[0] for run in tokens.values()):
        compared = map(counts, (run for run in tokens.values() if mode(run)[0] == model))
        identical, all_of_them, ties, faults = map(sum, zip(*compared, strict=True))
        yield (
            f"**{model}: {identical:,} of {all_of_them:,} outputs have the tokens of plain "
            f"decoding, {ties} are near ties, {faults} are faults.**"
        )
    if laws:
        tested = sum(len(by_method(run)) for run in laws.values())
        passed = sum(map(passing, laws.values()))
        yield f"**{passed} of {tested} tests of a method's distribution pass.**"
    rows = [
        [
            *mode(run),
            *map(str, counts(run)),
            commit(run),
            link(name),
        ]
        for name, run in tokens.items()
    ]
    if rows:
        header = ["model", "sampling", "batch", "identical", "compared", "near ties", "faults"]
        yield table([*header, "commit", "run"], rows)
    rows = [
        [
            str(len(by_method(run))),
            str(passing(run)),
            p_values(run),
            commit(run),
            link(name),
        ]
        for name, run in laws.items()
    ]
    if rows:
        yield table(["tests of a distribution", "pass", "p", "commit", "run"], rows)


def counts(run: Run) -> tuple[int, int, int, int]:
    """Outputs that are identical, were compared, differ by a near tie, and differ by a fault."""
    entries = run["methods"].values()
    identical, compared, ties = (
        sum(entry[what] for entry in entries) for what in ("identical", "compared", "near_ties")
    )
    faults = sum(not each["near_tie"] for entry in entries for each in entry["divergences"])
    return identical, compared, ties, faults


def by_method(run: Run) -> dict[str, dict[str, Any]]:
    """Checks of ``draftwood check-lossless`` by method and kind."""
    found: dict[str, dict[str, Any]] = {}
    for check in run["checks"]:
        found.setdefault(check["subject"], {})[check["kind"]] = check
    return found


def passing(run: Run) -> int:
    """Number of methods that pass all their checks."""
    return sum(all(c["passed"] for c in checks.values()) for checks in by_method(run).values())


def p_values(run: Run) -> str:
    """Least and greatest p of the chi-square tests."""
    found = [checks["sampled"]["p_value"] for checks in by_method(run).values()]
    return f"{min(found):.2g} to {max(found):.2g}"


def law(run: Run) -> str:
    """Table of the tests of the distribution, a row for each method; a failure is bold."""
    rows = []
    for method, checks in by_method(run).items():
        exact, sampled = checks["exact"], checks["sampled"]
        p = f"{sampled['p_value']:.2g}"
        rows.append(
            [
                f"`{method}`",
                f"{exact['difference']:.0e}" if exact["passed"] else f"**{exact['text']}**",
                number(sampled["statistic"], 1),
                str(sampled["degrees"]),
                p if sampled["passed"] else f"**{p}**",
                str(sampled["accepted"]),
            ]
        )
    header = [
        "method",
        "largest error of the exact distribution",
        "chi-square",
        "degrees of freedom",
    ]
    return table([*header, "p", "drafted tokens accepted"], rows)

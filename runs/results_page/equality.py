"""Are the tokens those of plain decoding, and where only their law is promised, is it kept?"""

from collections.abc import Iterable
from typing import Any

from results_page.documents import Run, Runs, by_commit, origin, sample
from results_page.markdown import number, table

EVERY = "equality_"
"""What the names of the runs of every method with every drafter begin with."""
LAW = "equality_law_"

NOT_PROMISED = "law only"


def lossless(runs: Runs) -> Iterable[str]:
    """Identity with plain decoding, counted in prompts, and tests of the law."""
    every = {name: run for name, run in runs.items() if name.startswith(EVERY)}
    papers = {name: run for name, run in runs.items() if name.startswith("lossless")}
    if not every and not papers:
        return
    yield (
        "Prompts whose token ids equal those of plain decoding through the same engine, of those "
        "compared (`hf` is transformers' own `generate` on an untouched copy of the model). A "
        "*near tie* is a divergence where the worse of the two tokens was behind by no more than "
        "rounding of the dtype can move; every other one is a fault. Above temperature 0, methods "
        "that sample their drafts promise only the distribution of plain decoding: there a "
        "chi-square test compares what they sample with the target's exact probabilities.\n"
    )
    for said, own in by_commit(every):
        yield f"### Every method with every drafter\n\n{said}"
        yield from of_every_method(own)
    for name, run in papers.items():
        rows = [
            [f"`{m}`", str(e["compared"]), str(e["identical"]), str(e["near_ties"])]
            for m, e in run["methods"].items()
        ]
        yield f"### {name}\n"
        yield sample(run)
        yield table(["method", "compared", "identical", "near ties"], rows) + "\n"
        yield origin(name, run) + "\n"


def of_every_method(runs: Runs) -> Iterable[str]:
    """One table of all runs: a row a method, a column a run, and one of the tests of the law."""
    laws = {name: run for name, run in runs.items() if name.startswith(LAW)}
    tokens = {n.removeprefix(EVERY): run for n, run in runs.items() if n not in laws}
    tests = {subject: checks for run in laws.values() for subject, checks in by_method(run).items()}
    methods = dict.fromkeys(name for run in tokens.values() for name in run["methods"])
    rows = []
    for m in dict.fromkeys((*methods, *tests)):
        cells = [cell(run, m, law=m in tests) for run in tokens.values()]
        rows.append([f"`{m}`", *cells, p_value(tests[m]) if m in tests else "-"])
    totals = [held(list(run["methods"].values())) for run in tokens.values()]
    kept = sum(passed(checks) for checks in tests.values())
    yield (
        "Identical / compared, with near ties if there are any; a dash where nothing was compared. "
        "The last column: p of the chi-square test. **Bold**: a fault.\n"
    )
    law = f"{kept} / {len(tests)} pass" if tests else "-"
    yield table(["method", *tokens, "law"], [*rows, ["all", *totals, law]]) + "\n"
    if tests:
        yield "The tests of the law: by enumeration over tiny laws, and by sampling a model:\n"
        yield of_the_law(tests) + "\n"
    for name, run in runs.items():
        yield (sample(run) if name not in laws else sampling(run)) + origin(name, run) + "\n"


def by_method(run: Run) -> dict[str, dict[str, Any]]:
    """What ``draftwood check-lossless`` found, by method and kind of check."""
    found: dict[str, dict[str, Any]] = {}
    for check in run["checks"]:
        found.setdefault(check["subject"], {})[check["kind"]] = check
    return found


def passed(checks: dict[str, Any]) -> bool:
    """Whether all checks of a method are passed."""
    return all(check["passed"] for check in checks.values())


def p_value(checks: dict[str, Any]) -> str:
    """Of the chi-square test; bold if any check of the method fails."""
    shown = f"p = {checks['sampled']['p_value']:.2g}"
    return shown if passed(checks) else f"**{shown}**"


def of_the_law(tests: dict[str, dict[str, Any]]) -> str:
    """One row a method."""
    rows = []
    for method, checks in tests.items():
        exact, found = checks["exact"], checks["sampled"]
        rows.append(
            [
                f"`{method}`",
                f"{exact['difference']:.0e}" if exact["passed"] else f"**{exact['text']}**",
                number(found["statistic"], 1),
                str(found["degrees"]),
                p_value(checks),
                str(found["accepted"]),
            ]
        )
    header = ["method", "largest error of the exact law", "chi-square", "degrees of freedom"]
    return table([*header, "p", "drafted tokens accepted"], rows)


def sampling(run: Run) -> str:
    """How a test of the law sampled."""
    told = run["provenance"]["settings"]
    return (
        f"{told['samples']} continuations of each method, temperature {told['temperature']}, "
        f"top-k {told['top_k']}. "
    )


def cell(run: Run, method: str, *, law: bool) -> str:
    """A method's counts in a run, or that it promises nothing there."""
    if method in run["methods"]:
        return held([run["methods"][method]])
    sampled = run["provenance"]["settings"]["sampling"]["temperature"] > 0
    return NOT_PROMISED if law and sampled else "-"  # greedy tokens are always promised


def held(entries: list[dict[str, Any]]) -> str:
    """How many prompts are identical, were compared, and differ by a near tie."""
    identical, compared, ties = (
        sum(entry[what] for entry in entries) for what in ("identical", "compared", "near_ties")
    )
    if not compared:
        return "-"
    faults = sum(not each["near_tie"] for entry in entries for each in entry["divergences"])
    shown = f"{identical} / {compared}"
    if ties:
        shown += f" ({ties} near tie{'s' if ties > 1 else ''})"
    return f"**{shown}**" if faults else shown

"""Are the tokens those of plain decoding?"""

from collections.abc import Iterable
from typing import Any

from results_page.documents import Runs, provenance, sample
from results_page.markdown import table

EVERY = "lossless_every_"
"""What the names of the runs of every method with every drafter begin with."""


def lossless(runs: Runs) -> Iterable[str]:
    """Identity with plain decoding, counted in prompts."""
    if not any("lossless" in name for name in runs):
        return
    yield "## Is it lossless?\n"
    yield (
        "Prompts whose token ids equal those of plain decoding through the same engine, of those "
        "compared (`hf` is transformers' own `generate` on an untouched copy of the model). A "
        "*near tie* is a divergence at a place where the target's two best logits are less than "
        "1e-5 apart; every other one would be a fault.\n"
    )
    yield from of_every_method(runs)
    for name, run in runs.items():
        if "lossless" not in name or name.startswith(EVERY):
            continue
        rows = [
            [f"`{m}`", str(e["compared"]), str(e["identical"]), str(e["near_ties"])]
            for m, e in run["methods"].items()
        ]
        yield f"**{name}**\n"
        yield table(["method", "compared", "identical", "near ties"], rows) + "\n"
        yield provenance(run) + "\n"


def of_every_method(runs: Runs) -> Iterable[str]:
    """One table of the runs of every method with every drafter: a row a method, a column a run."""
    found = {name.removeprefix(EVERY): run for name, run in runs.items() if name.startswith(EVERY)}
    if not found:
        return
    methods = dict.fromkeys(name for run in found.values() for name in run["methods"])
    rows = [
        [
            f"`{m}`",
            *(held([run["methods"][m]] if m in run["methods"] else []) for run in found.values()),
        ]
        for m in methods
    ]
    totals = [held(list(run["methods"].values())) for run in found.values()]
    yield "### Every method with every drafter\n"
    yield (
        "Identical / compared / near ties; a dash where nothing was compared. **Bold**: a "
        "divergence that is no near tie. A run's name tells how it sampled and its batch.\n"
    )
    yield table(["method", *found], [*rows, ["all", *totals]]) + "\n"
    for name, run in found.items():
        yield f"**{name}** {sample(run)}"
        yield provenance(run) + "\n"


def held(entries: list[dict[str, Any]]) -> str:
    """How many prompts are identical, were compared, and differ by a near tie."""
    identical, compared, ties = (
        sum(entry[what] for entry in entries) for what in ("identical", "compared", "near_ties")
    )
    if not compared:
        return "-"
    faults = sum(not each["near_tie"] for entry in entries for each in entry["divergences"])
    shown = f"{identical} / {compared} / {ties}"
    return f"**{shown}**" if faults else shown

"""A run's ratio of two methods beside the same ratio in a paper."""

import re
from collections.abc import Mapping, Sequence
from statistics import median

from results_page.against import Printed, verdict
from results_page.documents import Run
from results_page.markdown import number, table
from results_page.papers import DYNATREE, TALON, TALON_BUDGET, TALON_TAU
from results_page.prompts import Key, ratio_of_means, ratios, rows, speeds

OURS = ["ours: ratio of means", "median of prompts' ratios", "ratio of means without looping"]


def ours(
    run: Run, method: str, rival: str, name: str | None, printed: Printed | None
) -> Sequence[str]:
    """A method's tokens a second over another's, under the headings ``OURS``, then the paper's
    ratio and what is to be said of the first of ours."""

    def both(*, loops: bool) -> Sequence[dict[Key, float]]:
        return [speeds(rows(run["methods"][m], name, loops=loops)) for m in (method, rival)]

    fast, slow = both(loops=True)
    paired = ratios(fast, slow)
    whole = ratio_of_means(fast, slow)
    return [
        number(whole),
        number(median(paired) if paired else None),
        number(ratio_of_means(*both(loops=False))),
        *beside(whole, printed),
    ]


def beside(ours: float | None, printed: Printed | None) -> Sequence[str]:
    """A paper's ratio, and what is to be said of ours."""
    return [str(printed), verdict(ours, printed)] if printed is not None else ["-", "-"]


def dynatree(run: Run) -> str:
    """DynaTree over its rivals; empty if the run has not the paper's methods and sets."""
    sets = {name: entry["by_set"] for name, entry in run["methods"].items()}
    found = [
        [
            f"`{claim.method}` over `{claim.rival}`",
            claim.set,
            *ours(run, claim.method, claim.rival, claim.set, claim.printed),
        ]
        for claim in DYNATREE
        if all(claim.set in sets.get(m, ()) for m in (claim.method, claim.rival))
    ]
    header = ["tokens a second", "set", *OURS, "the paper, 1,500 tokens", "agreement"]
    return table(header, found) if found else ""


def talon(run: Run, paper: str) -> str:
    """TALON over EAGLE-3 with as many nodes, both with the head; empty if the run has no such pair.

    Args:
        run: a bench document.
        paper: the paper's table with the same sampling, a key of ``TALON``.
    """
    methods = run["methods"]
    found = []
    for method, entry in methods.items():
        rival = method.replace("talon:drafter=eagle3", "eagle3")
        if rival in methods and re.fullmatch(r"talon:drafter=eagle3(:budget=\d+)?", method):
            budget = entry["settings"]["budget"]
            tau, other = (methods[m]["mean_acceptance_length"]["value"] for m in (method, rival))
            taus = tau / other if tau and other else None
            same = budget == TALON_BUDGET
            found.append(
                [
                    f"`{method}` over `{rival}`",
                    str(budget),
                    number(taus),
                    *beside(taus, _printed(TALON_TAU, paper) if same else None),
                    *ours(run, method, rival, None, _printed(TALON, paper) if same else None),
                ]
            )
    paper_has = ["the paper, five models and six sets", "agreement"]
    header = ["", "drafted nodes", "τ over τ", *paper_has, *(f"tok/s, {each}" for each in OURS)]
    return table([*header, *paper_has], found) if found else ""


def _printed(tables: Mapping[str, Sequence[Sequence[float]]], paper: str) -> Printed:
    """The least and the greatest of the ratios of a table's two rows."""
    found = [a / b for a, b in zip(*tables[paper], strict=True)]
    return Printed(min(found), max(found), paper)

"""A run's ratio of two methods beside the same ratio in a paper."""

import re
from collections.abc import Sequence
from statistics import mean, median

from results_page.documents import Run
from results_page.markdown import number, table
from results_page.papers import DYNATREE, TALON, TALON_BUDGET
from results_page.prompts import Key, ratio_of_means, ratios, rows, speeds

OURS = ["ours: ratio of means", "median of prompts' ratios", "ratio of means without looping"]


def ours(run: Run, method: str, rival: str, name: str | None) -> Sequence[str]:
    """A method's tokens a second over another's, under the headings ``OURS``."""

    def both(*, loops: bool) -> Sequence[dict[Key, float]]:
        return [speeds(rows(run["methods"][m], name, loops=loops)) for m in (method, rival)]

    fast, slow = both(loops=True)
    paired = ratios(fast, slow)
    return [
        number(ratio_of_means(fast, slow)),
        number(median(paired) if paired else None),
        number(ratio_of_means(*both(loops=False))),
    ]


def dynatree(run: Run) -> str:
    """DynaTree over its rivals; empty if the run has not the paper's methods and sets."""
    sets = {name: entry["by_set"] for name, entry in run["methods"].items()}
    found = [
        [
            f"`{claim.method}` over `{claim.rival}`",
            claim.set,
            *ours(run, claim.method, claim.rival, claim.set),
            f"{number(claim.fast / claim.slow)} ({claim.source})",
        ]
        for claim in DYNATREE
        if all(claim.set in sets.get(m, ()) for m in (claim.method, claim.rival))
    ]
    header = ["tokens a second", "set", *OURS, "the paper, 1,500 tokens"]
    return table(header, found) if found else ""


def talon(run: Run, paper: str) -> str:
    """TALON over EAGLE-3 with as many nodes, both with the head; empty if the run has no such pair.

    Args:
        run: a bench document.
        paper: the paper's table with the same sampling, a key of ``TALON``.
    """
    methods = run["methods"]
    printed = [a / b for a, b in zip(*TALON[paper], strict=True)]
    low, middle, high = (number(of(printed)) for of in (min, mean, max))
    found = []
    for method, entry in methods.items():
        rival = method.replace("talon:drafter=eagle3", "eagle3")
        if rival in methods and re.fullmatch(r"talon:drafter=eagle3(:budget=\d+)?", method):
            budget = entry["settings"]["budget"]
            tau, other = (methods[m]["mean_acceptance_length"]["value"] for m in (method, rival))
            found.append(
                [
                    f"`{method}` over `{rival}`",
                    str(budget),
                    number(tau / other if tau and other else None),
                    *ours(run, method, rival, None),
                    f"{middle}, {low} to {high} ({paper})" if budget == TALON_BUDGET else "-",
                ]
            )
    header = ["tokens a second", "drafted nodes", "τ over τ", *OURS]
    return table([*header, "the paper, five models and six sets"], found) if found else ""

"""One figure of every method, set by set."""

from typing import Any

from results_page.documents import Run, cut, repeated
from results_page.markdown import number, table

SETS = ("humaneval", "mbpp", "classeval", "gsm8k_test", "mt_bench", "wikitext2_test")


def by_set(run: Run, key: str, figure: str, digits: int = 2, *, loops: bool = True) -> str:
    """One row a method, one column a set, and the interval of all sets together.

    ``figure`` is the member of the metric ``key`` that is shown: ``median`` or ``value``.
    """
    sets = [name for name in SETS if name in next(iter(run["methods"].values()))["by_set"]]
    rows = []
    for name, entry in run["methods"].items():
        found = [cut(entry, each, loops=loops)[key] for each in (*sets, None)]
        shown = [number(metric[figure], digits) for metric in found]
        share = repeated(cut(entry, None, loops=loops))
        rows.append([f"`{name}`", *shown, interval(found[-1], digits), share])
    return table(["method", *sets, "all", "95 % of all", "repeated 8-grams"], rows)


def interval(metric: dict[str, Any], digits: int = 2) -> str:
    """The ends of a metric's interval, or a dash where there is none."""
    if metric["low"] is None or metric["high"] is None:
        return "-"
    return f"{number(metric['low'], digits)}-{number(metric['high'], digits)}"


def tau(run: Run, *, loops: bool = True) -> str:
    """Mean acceptance lengths by set."""
    return by_set(run, "mean_acceptance_length", "value", loops=loops)

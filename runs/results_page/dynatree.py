"""DynaTree's sweeps: one table over runs that differ in one number, which ends their names."""

import re
from collections.abc import Iterable, Mapping

from results_page.documents import Run, Runs, by_commit, cut, origin, repeated
from results_page.markdown import number, spanned, table

SWEEPS = {
    "dynatree_tokens": ("Over new tokens, WikiText-2 (DynaTree's Figure 6)", "new tokens"),
    "dynatree_context": (
        "Over prompt tokens, PG-19 (DynaTree's Figure 9, there with WikiText-2)",
        "prompt tokens",
    ),
}
"""By what the runs' names begin with: a title, and what the number is."""

FIGURES = {
    "tok/s": ("tokens_per_second", "median", 0),
    "speed-up": ("speedup_vs_ar", "median", 2),
    "τ": ("mean_acceptance_length", "value", 2),
}
"""What is shown: a metric, its member, and how many digits."""

RIVALS = ("dynatree", "fixed-tree")


def swept(runs: Runs, prefix: str) -> dict[int, str]:
    """The names of a sweep's runs by their numbers, in order."""
    found = {int(m[1]): name for name in runs if (m := re.fullmatch(rf"{prefix}_(\d+)", name))}
    return {size: found[size] for size in sorted(found)}


def over(by_size: Mapping[int, Run], what: str, *, loops: bool) -> str:
    """Methods down, the number across."""
    cuts = [
        {name: cut(entry, None, loops=loops) for name, entry in run["methods"].items()}
        for run in by_size.values()
    ]
    rows = []
    for method in dict.fromkeys(name for found in cuts for name in found):
        for label, (key, member, digits) in FIGURES.items():
            values = [found[method][key][member] if method in found else None for found in cuts]
            rows.append([f"`{method}`", label, *(number(value, digits) for value in values)])
    rows.append([f"`{RIVALS[0]}` over `{RIVALS[1]}`", "tok/s", *map(lead, cuts)])
    counts = {"prompts": "prompts"} | ({"with a looping output": "looping_texts"} if loops else {})
    for label, key in counts.items():
        rows.append([label, "", *(spanned(each[key] for each in found.values()) for found in cuts)])
    for method in dict.fromkeys(name for found in cuts for name in found):
        shares = [repeated(found[method]) if method in found else "-" for found in cuts]
        rows.append([f"`{method}`", "repeated 8-grams", *shares])
    return table(["method", what, *map(str, by_size)], rows)


def lead(found: Mapping[str, Run]) -> str:
    """How much faster DynaTree is than the fixed tree: median over median."""
    if not all(name in found for name in RIVALS):
        return "-"
    ours, other = (found[name]["tokens_per_second"]["median"] for name in RIVALS)
    return number(ours / other if ours and other else None)


def sweeps(runs: Runs) -> Iterable[str]:
    """Each sweep that has a run."""
    for prefix, (title, what) in SWEEPS.items():
        named = swept(runs, prefix).values()
        for said, own in by_commit({name: runs[name] for name in named}):
            yield f"### {title}\n\n{said}"
            by_size = {size: own[name] for size, name in swept(own, prefix).items()}
            for loops in (True, False):
                yield ("All outputs:" if loops else "Without looping outputs:") + "\n"
                yield over(by_size, what, loops=loops) + "\n"
            for name, run in own.items():
                yield origin(name, run) + "\n"

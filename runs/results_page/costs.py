"""Measured costs: the target by nodes, work outside of the model, verification, memory."""

from collections.abc import Iterable, Mapping
from typing import Any

from .markdown import Tables, estimate, number, percent, table
from .stored import Run

_OF_A_TREE = ("nodes", "levels", "level", "tree")
_HOST_WORK = (
    *("drafted", "sum", "draft", "submit", "rows", "verify", "commit", "learn"),
    *("rest", "hand-over"),
)


def by_nodes(run: Run) -> Iterable[str]:
    """Milliseconds of a target forward by nodes, and of a step outside of the model."""
    curves = run["cost_ms_by_nodes"]
    nodes = list(next(iter(curves.values())))
    rows = []
    for packing, curve in curves.items():
        rows.append([f"packing {packing}, ms", *(number(curve[n]) for n in nodes)])
        rows.append(["relative to 1 node", *(number(curve[n] / curve["1"]) for n in nodes)])
    yield table(["target forward, nodes (root included)", *nodes], rows)
    if run.get("reading", {}).get("weights_mb", 0) >= _CACHED:
        yield _reading(run["reading"], min(curve["1"] for curve in curves.values()))
    rows = [
        [
            f"`{name}`",
            str(s["drafted"]),
            *(number(s.get(f"{key}_ms")) for key in ("step", "model", "outside", "events")),
            percent(s["outside_share"]),
        ]
        for name, s in run["steps"].items()
    ]
    header = ["step, ms", "model, ms", "outside, ms", "events, ms", "share"]
    yield table(["method", "nodes", *header], rows)
    yield from host_work(run.get("host_work", {}))
    found = run["index_memory"]
    context, adjacency = (number(found[f"{each}_mb"], 0) for each in ("context", "adjacency"))
    yield (
        f"Index memory after {found['tokens']:,} tokens: context {context} MB, "
        f"adjacency {adjacency} MB."
    )


_CACHED = 100
"""Megabytes of weights up to which a processor's cache may hold them."""


def _reading(found: Mapping[str, float], plain: float) -> str:
    """What share of the memory's speed a forward of one node reaches.

    Args:
        found: megabytes of weights that it reads, and gigabytes per second of a sum over memory.
        plain: its milliseconds.
    """
    speed = found["weights_mb"] / plain  # GB/s
    return (
        f"A sum over memory reads {number(found['gb_per_second'], 1)} GB/s. A forward of one node "
        f"reads {number(found['weights_mb'], 0)} MB of weights at {number(speed, 1)} GB/s: "
        f"{percent(speed / found['gb_per_second'])} of that."
    )


def host_work(found: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Milliseconds of CPU time of a step outside of the forward, by phase."""
    rows = [
        [f"`{name}`", batch, *(number(each[key]) for key in _HOST_WORK)]
        for name, by_batch in found.items()
        for batch, each in by_batch.items()
    ]
    if rows:
        yield (
            "CPU time of the engine's thread outside of the forward, ms a step; the hand-over of "
            "the logits is not in the sum:"
        )
        yield table(["method", "batch", *_HOST_WORK], rows)


def level(run: Run) -> Iterable[str]:
    """Milliseconds outside of the model for a level and for a tree of a draft model."""
    rows = [
        [threads, exponent, f"`{name}`", *(number(each[key]) for key in _OF_A_TREE)]
        for threads, by_exponent in run["milliseconds_by_threads"].items()
        for exponent, found in by_exponent.items()
        for name, each in found.items()
    ]
    header = ["threads", "exponent of q", "method", "nodes", "levels", "level, ms", "tree, ms"]
    yield table(header, rows)


def verification(run: Run) -> Iterable[str]:
    """Milliseconds of verifying a sampled binary tree."""
    rows = [
        [
            nodes,
            size,
            number(each["rejection"]),
            number(each["traversal"]),
            number(figures["target_forward_ms"]),
        ]
        for nodes, figures in run["verifying_ms"].items()
        for size, each in figures.items()
        if isinstance(each, dict)
    ]
    header = ["sampled nodes", "vocabulary", "rejection, ms", "traversal, ms", "target forward, ms"]
    yield table(header, rows)


def memory(run: Run) -> Iterable[str]:
    """Peak memory of a process (DynaTree's Table 5)."""
    rows = [
        [f"`{name}`", number(entry["peak_mb"], 0)] for name, entry in run["peak_memory"].items()
    ]
    yield table(["method", "peak memory of the process, MB"], rows)


def first_token(run: Run) -> Iterable[str]:
    """Milliseconds to the first token, by the length of the prompt."""
    found, unequal = _comparable(run)
    lengths = list(next(iter(found.values()))["milliseconds"])
    rows = [
        [f"`{name}`", *(number(each["milliseconds"][length], 0) for length in lengths)]
        for name, each in found.items()
    ]
    header = [f"{int(length):,} tokens, ms" for length in lengths]
    yield table(["first token after a prompt of", *header], rows)
    if unequal:
        yield (
            "The times of llama.cpp are left out: this run opened its file once for each prompt, "
            "and they contain that."
        )


def _comparable(run: Run) -> tuple[dict[str, Any], bool]:
    """The times to a first token that are no more than that, and whether others are left out.

    Runs whose settings do not have ``files_opened`` timed the opening of llama.cpp's file as well.
    """
    found = run["first_token"]
    if "files_opened" in run["provenance"].get("settings", {}):
        return found, False
    right = {name: each for name, each in found.items() if not name.startswith("llamacpp")}
    return right, len(right) < len(found)


def recipes(run: Run) -> Iterable[str]:
    """What ``memory`` adds in each pass of a recipe: over the same method without it."""
    rows = []
    for recipe, found in run["memory_recipes"].items():
        for name, each in found["passes"].items():
            ratio = each["with_over_without"]
            rows.append(
                [
                    recipe,
                    name,
                    number(each["with"]["tokens_per_forward"]),
                    estimate(ratio["tokens_per_forward"]),
                    estimate(ratio["tokens_per_second"]),
                    number(each["over_first_pass"]["with"]),
                    percent(each["with"]["accepted_from_memory"]),
                    percent(each["known_8grams"]),
                    percent(each["repeated_8grams"]),
                ]
            )
    header = ["recipe", "pass", "τ", "τ over without", "tok/s over without"]
    header += ["τ over the first pass", "of memory", "known 8-grams", "repeated 8-grams"]
    yield table(header, rows)


STEP_COSTS: Tables = {
    "cost_ms_by_nodes": by_nodes,
    "first_token": first_token,
    "peak_memory": memory,
}
"""Tables of what a step costs on the measuring machine, by a member that only its kind has."""

TABLES: Tables = {
    **STEP_COSTS,
    "milliseconds_by_threads": level,
    "verifying_ms": verification,
    "memory_recipes": recipes,
}
"""All tables of this file."""

"""Cost of a step: the target by nodes, work outside of the model, verification, memory."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .markdown import number, percent, table
from .stored import Run

_OF_A_TREE = ("nodes", "levels", "level", "tree")


def by_nodes(run: Run) -> Iterable[str]:
    """Milliseconds of a target forward by nodes, and of a step outside of the model."""
    curves = run["cost_ms_by_nodes"]
    nodes = list(next(iter(curves.values())))
    rows = []
    for packing, curve in curves.items():
        rows.append([f"packing {packing}, ms", *(number(curve[n]) for n in nodes)])
        rows.append(["relative to 1 node", *(number(curve[n] / curve["1"]) for n in nodes)])
    yield table(["target forward, nodes (root included)", *nodes], rows)
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
    found = run["index_memory"]
    context, adjacency = (number(found[f"{each}_mb"], 0) for each in ("context", "adjacency"))
    yield (
        f"Index memory after {found['tokens']:,} tokens: context {context} MB, "
        f"adjacency {adjacency} MB."
    )


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
    found = run["first_token"]
    lengths = list(next(iter(found.values()))["milliseconds"])
    rows = [
        [f"`{name}`", *(number(each["milliseconds"][length], 0) for length in lengths)]
        for name, each in found.items()
    ]
    header = [f"{int(length):,} tokens, ms" for length in lengths]
    yield table(["first token after a prompt of", *header], rows)


def auto_modelled(run: Run) -> Iterable[str]:
    """Expected speed-up of ``auto``, and of the best other method chosen afterwards."""
    settings = run["provenance"]["settings"]
    temperature = settings["temperature"]
    rows = []
    batches: list[str] = []
    for gpu, by_shape in run["modelled"].items():
        for shape, methods in by_shape.items():
            batches = list(methods["ar"])
            autos = [name for name in methods if name.startswith("auto")]
            cells = []
            for batch in batches:
                speed = {name: each[batch]["speedup"] for name, each in methods.items()}
                best = max((n for n in speed if n not in autos), key=speed.__getitem__)
                cells.append(f"{number(speed[autos[0]])} (`{best}` {number(speed[best])})")
            rows.append([gpu, shape, *cells])
    title = f"temperature {temperature:g}" if temperature else "greedy"
    yield table([f"GPU, {title}", "shape", *(f"batch {each}" for each in batches)], rows)


def modelled(run: Run) -> Iterable[str]:
    """Expected speed-ups over plain decoding at the cost of larger models, by batch size."""
    shapes = [(gpu, shape) for gpu, found in run["modelled"].items() for shape in found]
    first = run["modelled"][shapes[0][0]][shapes[0][1]]
    batches = list(first["ar"])
    rows = []
    for gpu, shape in shapes:
        for name, by_batch in run["modelled"][gpu][shape].items():
            if name == "ar":
                continue
            figures = (
                f"{number(each['speedup'])} (τ {number(each['mean_acceptance_length'])}, "
                f"{number(each['drafted_per_step'], 0)} nodes)"
                for each in map(by_batch.__getitem__, batches)
            )
            rows.append([gpu, shape, f"`{name}`", *figures])
    yield table(["GPU", "shape", "method", *(f"batch {each}" for each in batches)], rows)


def oracles(run: Run) -> Iterable[str]:
    """Expected speed-up of ``auto`` over plain decoding with one part of it made perfect."""
    rows = []
    parts: list[str] = []
    for recording, by_batch in run["oracles"].items():
        for batch, found in by_batch.items():
            parts = list(found)
            figures = (
                f"{number(each['speedup'])} (τ {number(each['mean_acceptance_length'])}, "
                f"{number(each['drafted_per_step'])} nodes)"
                for each in found.values()
            )
            rows.append([recording.removeprefix("modelled_"), batch, *figures])
    names = (part if part != "auto" else "nothing" for part in parts)
    yield table(["perfect", "batch", *names], rows)


def rivals(run: Run) -> Iterable[str]:
    """Tokens per second of ``auto`` over those of other engines' rules: the mean of the sets.

    Behind it the set of the lowest lower end of a 95 % interval, and this end.
    """
    rows = []
    batches: list[str] = []
    for recording, by_costs in run["rivals"].items():
        for costs, by_rival in by_costs.items():
            for rival, by_auto in by_rival.items():
                for auto, by_batch in by_auto.items():
                    batches = list(by_batch)
                    cells = (_with_lowest(by_batch[batch]) for batch in batches)
                    name = recording.removeprefix("modelled_")
                    rows.append([name, costs, f"`{rival}`", f"`{auto}`", *cells])
    header = ["answers", "step costs", "rival", "`auto`", *(f"batch {each}" for each in batches)]
    yield table(header, rows)


def _with_lowest(found: Mapping[str, Any]) -> str:
    """A mean of sets, with the set whose interval has the lowest lower end."""
    lows = {name: each["low"] for name, each in found["sets"].items() if each["low"] is not None}
    if not lows:
        return number(found["mean"])
    worst = min(lows, key=lows.__getitem__)
    return f"{number(found['mean'])} ({worst} {number(lows[worst])})"


TABLES: dict[str, Callable[[Run], Iterable[str]]] = {
    "cost_ms_by_nodes": by_nodes,
    "milliseconds_by_threads": level,
    "verifying_ms": verification,
    "peak_memory": memory,
    "first_token": first_token,
    "modelled": modelled,
    "oracles": oracles,
    "rivals": rivals,
}
"""Tables of a run, by a member that only its kind has."""

STEP_COSTS = {kind: TABLES[kind] for kind in ("cost_ms_by_nodes", "first_token", "peak_memory")}
"""Those that tell what a step costs on the measuring machine."""

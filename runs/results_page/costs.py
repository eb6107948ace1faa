"""What a step and a process cost."""

from collections.abc import Iterable

from results_page.documents import Runs, origin
from results_page.markdown import number, table


def memory(runs: Runs) -> Iterable[str]:
    """Peak memory of a process (DynaTree's Table 5)."""
    if "peak_memory" not in runs:
        return
    run = runs["peak_memory"]
    rows = [[f"`{m}`", number(e["peak_mb"], 0)] for m, e in run["peak_memory"].items()]
    yield table(["method", "MB, Python and torch included"], rows) + "\n"
    yield origin("peak_memory", run) + "\n"


def overhead(runs: Runs) -> Iterable[str]:
    """Cost of a step."""
    if "engine_overhead" not in runs:
        return
    run = runs["engine_overhead"]
    curves = run["cost_ms_by_nodes"]
    nodes = list(next(iter(curves.values())))
    rows = []
    for packing, curve in curves.items():
        rows.append([f"packing {packing}, ms", *(number(curve[n]) for n in nodes)])
        rows.append(["relative to 1", *(number(curve[n] / curve["1"]) for n in nodes)])
    yield table(["nodes, root included", *nodes], rows) + "\n"
    keys = ("drafted", "steps", "step_ms", "model_ms", "outside_ms", "outside_share")
    yield (
        table(
            ["method", *keys],
            [
                [f"`{name}`", *(number(s[key], 3) for key in keys)]
                for name, s in run["steps"].items()
            ],
        )
        + "\n"
    )
    yield f"Index memory: {run['index_memory']}.\n"
    yield origin("engine_overhead", run) + "\n"

"""Modelled figures: expected speed-ups from replays of recordings."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from .markdown import Tables, number, table
from .speed import marked
from .stored import Run


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
    share = marked(settings["repeated_8grams"])
    yield (
        f"{title[0].upper()}{title[1:]}, {settings['prompts']} prompts, {share} of their 8-grams "
        "repeated:"
    )
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


def sources(study: str, run: Run) -> Iterable[str]:
    """Accepted tokens a step by nodes, and tokens per second over those of the first method."""
    rows = []
    sizes: list[str] = []
    places: list[tuple[str, str]] = []
    for recording, found in run[study].items():
        for name, each in found["methods"].items():
            sizes = list(each["tokens_a_step"])
            places = [(place, batch) for place, by in each["speed"].items() for batch in by]
            lengths = (_mean(each["tokens_a_step"][size]) for size in sizes)
            speeds = (_with_lowest(each["speed"][place][batch]) for place, batch in places)
            answers = recording.removeprefix("modelled_")
            rows.append([answers, name, f"`{each['method']}`", *map(number, lengths), *speeds])
    header = ["answers", "sources", "method", *(f"τ at {size}" for size in sizes)]
    yield table([*header, *(f"{place}, batch {batch}" for place, batch in places)], rows)


def _mean(by_set: Mapping[str, float]) -> float | None:
    return sum(by_set.values()) / len(by_set) if by_set else None


TABLES: Tables = {
    "modelled": modelled,
    "oracles": oracles,
    "rivals": rivals,
    "left_out": partial(sources, "left_out"),
    "shapes": partial(sources, "shapes"),
}
"""Tables of a run, by a member that only its kind has."""

"""Modelled figures: expected speed-ups from replays of recordings."""

from collections.abc import Callable, Iterable, Mapping
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
    yield f"{title[0].upper()}{title[1:]}, {_extent(settings)}:"
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


def _extent(answers: Mapping[str, Any]) -> str:
    """How many prompts were answered, and what share of the answers' 8-grams repeats."""
    share = marked(answers["repeated_8grams"])
    return f"{answers['prompts']} prompts, {share} of their 8-grams repeated"


def _short(recording: str) -> str:
    """What a recording's answers are called in a table."""
    return recording.removeprefix("modelled_")


def _extents(run: Run) -> str:
    """The answers that are replayed in a run, in the words of :func:`_extent`."""
    answers = run["provenance"]["settings"]["answers"]
    found = (f"{_short(recording)}: {_extent(each)}" for recording, each in answers.items())
    return f"Answers: {'; '.join(found)}."


def oracles(run: Run) -> Iterable[str]:
    """Expected speed-up of ``auto`` over plain decoding with one part of it made perfect."""
    yield _extents(run)
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
            rows.append([_short(recording), batch, *figures])
    names = (part if part != "auto" else "nothing" for part in parts)
    yield table(["perfect", "batch", *names], rows)


def rivals(run: Run) -> Iterable[str]:
    """Tokens per second of ``auto`` over those of other engines' rules: the mean of the sets.

    Behind it the lowest of the sets. A second table has all prompts in real batches.
    """
    yield _extents(run)
    yield _by_rival(run["rivals"], "batch", _with_lowest)
    yield (
        "Real batches of all prompts, in random order, whose requests have their own contexts and "
        "compete for nodes:"
    )
    yield _by_rival(run["queues"], "batches of", number)


def _by_rival(found: Mapping[str, Any], column: str, cell: Callable[[Any], str]) -> str:
    """A table of ratios: a row for each recording, step costs, rival and ``auto``."""
    rows = []
    batches: list[str] = []
    for recording, by_costs in found.items():
        for costs, by_rival in by_costs.items():
            for rival, by_auto in by_rival.items():
                for auto, by_batch in by_auto.items():
                    batches = list(by_batch)
                    cells = (cell(by_batch[batch]) for batch in batches)
                    row = [_short(recording), costs, f"`{rival}`", f"`{auto}`", *cells]
                    rows.append(row)
    header = ["answers", "step costs", "rival", "`auto`", *(f"{column} {each}" for each in batches)]
    return table(header, rows)


def _with_lowest(found: Mapping[str, Any]) -> str:
    """A mean of sets, with the lowest of them."""
    values = {name: each["value"] for name, each in found["sets"].items() if each["value"]}
    if not values:
        return number(found["mean"])
    worst = min(values, key=values.__getitem__)
    return f"{number(found['mean'])} ({worst} {number(values[worst])})"


def sources(study: str, run: Run) -> Iterable[str]:
    """Accepted tokens a step by nodes, and tokens per second over those of the first method."""
    yield _extents(run)
    rows = []
    sizes: list[str] = []
    places: list[tuple[str, str]] = []
    for recording, found in run[study].items():
        for name, each in found["methods"].items():
            sizes = list(each["tokens_a_step"])
            places = [(place, batch) for place, by in each["speed"].items() for batch in by]
            lengths = (_mean(each["tokens_a_step"][size]) for size in sizes)
            speeds = (_with_lowest(each["speed"][place][batch]) for place, batch in places)
            row = [_short(recording), name, f"`{each['method']}`", *map(number, lengths), *speeds]
            rows.append(row)
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

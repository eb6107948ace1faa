"""Each method as published and at its best setting, in runs that were given settings searched."""

from collections.abc import Iterable

from results_page.documents import Run, repeated
from results_page.markdown import number, table

COLUMNS = ["tok/s", "over `ar`", "τ"]


def at_best(run: Run) -> Iterable[str]:
    """A table of both columns; nothing where no settings were searched."""
    if "best" not in run:
        return
    methods, rows = run["methods"], []
    for name, pair in run["best"]["methods"].items():
        texts = (pair["published"], pair["best"])
        if not all(text in methods for text in texts):
            continue
        both = [figure for text in texts for figure in figures(run, text)]
        setting = f"`{pair['best']}`" if texts[0] != texts[1] else "as published"
        rows.append([f"`{name}`", *both, setting, repeated(methods[pair["published"]])])
    for name in methods:
        if name == "auto" or name.startswith("auto:"):
            share = repeated(methods[name])
            rows.append([f"`{name}`", *["-"] * 3, *figures(run, name), "tunes itself", share])
    by = "tokens a second" if run["best"]["by"] == "tokens_per_second" else "tokens a forward"
    yield (
        "Each method as published and at the best setting that `draftwood search` found for it on "
        f"other prompts of the same sets, by {by}:\n"
    )
    if disturbed := run["best"].get("disturbed"):
        yield f"The times of that search are not reliable: {disturbed}.\n"
    header = [f"{which}: {what}" for which in ("as published", "best") for what in COLUMNS]
    yield table(["method", *header, "best setting", "repeated 8-grams"], rows) + "\n"


def figures(run: Run, name: str) -> list[str]:
    """A contender's figures over all prompts."""
    entry = run["methods"][name]
    return [
        number(entry["tokens_per_second"]["median"], 0),
        number(entry["speedup_vs_ar"]["median"]),
        number(entry["mean_acceptance_length"]["value"]),
    ]

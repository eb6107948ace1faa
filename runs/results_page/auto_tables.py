"""Tables of how `auto` stands to the best other method, run by run and over all runs."""

from collections.abc import Iterable, Sequence
from statistics import mean

from results_page.auto import RATIOS, Standing, by_set, standing, tail, variants
from results_page.documents import Run, Runs
from results_page.foreseen import interval, mean_of_medians
from results_page.markdown import number, table


def means(found: Sequence[Standing]) -> list[str]:
    """Means over sets of the three ratios, then 5th percentile and minimum over all prompts."""
    return [
        number(mean(each.over_rival for each in found)),
        sure([each.foreseen for each in found if each.foreseen]),
        number(mean(each.over_plain for each in found)),
        *tail([ratio for each in found for ratio in each.ratios]),
    ]


def sure(sets: Sequence[Sequence[float]]) -> str:
    """The mean of the sets' medians and its 95 % interval, or a dash."""
    if not sets:
        return "-"
    return f"{number(mean_of_medians(*sets))} ({' to '.join(map(number, interval(sets)))})"


def choices(run: Run) -> dict[str, list[str]]:
    """What is held against the best other: the first variant, and the best of several."""
    names = variants(run)
    found = {f"`{name}`": [name] for name in names[:1]}
    return {**found, "The best variant of each set": names} if len(names) > 1 else found


def automatic(run: Run) -> Iterable[str]:
    """A table for the first variant, and one for the best in each set; nothing without `auto`."""
    header = [
        "set",
        "prompts (looping outputs; repeated 8-grams)",
        "`ar`",
        "best other",
        "auto",
        *RATIOS,
    ]
    for label, among in choices(run).items():
        if found := by_set(run, among):
            whole = standing(run, among, None, "all")
            kept = standing(run, among, None, "all without looping", loops=False)
            lines = [each.cells() for each in (*found, whole) if each is not None]
            if kept is not None and whole is not None and whole.looping:
                lines.append(kept.cells())
            lines.append(["mean of the sets", *["-"] * 4, *means(found)])
            yield f"{label} against the best other method of each set, tok/s, all outputs:\n"
            yield table(header, lines) + "\n"
    if others := variants(run)[1:]:
        told = [
            f"`{name}` {number(mean(each.over_rival for each in found))}"
            for name in others
            if (found := by_set(run, [name]))
        ]
        yield f"Means over the sets of other variants over the best other: {', '.join(told)}.\n"


def headline(runs: Runs, said: str) -> Iterable[str]:
    """One table over all runs that have `auto`, all of one commit; nothing if none has."""
    lines = [
        [name, label, str(len(found)), *means(found)]
        for name, run in runs.items()
        for label, among in choices(run).items()
        if (found := by_set(run, among))
    ]
    if not lines:
        return
    yield f"### `auto` against the best other method\n\n{said}"
    yield (
        "*Best other*: of Draftwood's other methods, plain decoding among them, the one with the "
        "most tokens a second in that set, known only when all is measured. The ratio to it is of "
        "the medians over prompts. *Best foreseen*: for each prompt (what was decoded together, if "
        "batched) the one with the highest median on the set's other prompts, held against `auto` "
        "on this prompt, its variant chosen likewise; the median over prompts, none if there is "
        "one. Both stand here because the best other is partly the luckiest, which is hard on "
        "`auto`, and the best foreseen need not be the best, which is kind to it. In brackets: "
        "95 % of its mean, by a bootstrap over prompts. The ratio to `ar` is of the same prompt: "
        "the median, the 5th percentile and the minimum over prompts. Ratios here are means over "
        "sets, the last two columns are over all their prompts; sets stand with their runs below.\n"
    )
    yield table(["run", "", "sets", *RATIOS], lines) + "\n"
    yield "### Run by run\n"

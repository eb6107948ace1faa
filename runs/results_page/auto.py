"""`auto` against the best other method of each set, chosen when all is measured and in advance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles

from results_page.documents import Run, Runs, cut, peers
from results_page.foreseen import interval, mean_of_medians, over_foreseen
from results_page.markdown import number, table
from results_page.prompts import ratios, rows, speeds

PLAIN = "ar"
RATIOS = ["over the best other", "over the best foreseen", "over `ar`", "5th percentile", "minimum"]


@dataclass(frozen=True)
class Standing:
    """The fastest of some variants of `auto` on one set or on all.

    Attributes:
        name: of the set, or what else it is about.
        prompts: how many.
        looping: of them, with a looping output.
        plain: tokens a second of plain decoding.
        rival: the best other method.
        rival_speed: its tokens a second.
        variant: the variant.
        speed: its tokens a second.
        foreseen: paired ratios to the best other in advance, one a group; empty with one group.
        over_plain: median over groups of the paired ratio to plain decoding.
        ratios: those ratios.
    """

    name: str
    prompts: int
    looping: int
    plain: float
    rival: str
    rival_speed: float
    variant: str
    speed: float
    foreseen: Sequence[float]
    over_plain: float
    ratios: Sequence[float]

    @property
    def over_rival(self) -> float:
        """Median over median."""
        return self.speed / self.rival_speed

    def cells(self) -> list[str]:
        """Its row of a table."""
        return [
            self.name,
            f"{self.prompts} ({self.looping})",
            number(self.plain, 0),
            f"`{self.rival}` {self.rival_speed:.0f}",
            f"`{self.variant}` {self.speed:.0f}",
            number(self.over_rival),
            number(median(self.foreseen) if self.foreseen else None),
            number(self.over_plain),
            *tail(self.ratios),
        ]


def tail(values: Sequence[float]) -> list[str]:
    """5th percentile, interpolated linearly, and minimum."""
    fifth = quantiles(values, n=20, method="inclusive")[0] if len(values) > 1 else values[0]
    return [number(fifth), number(min(values))]


def variants(run: Run) -> list[str]:
    """`auto` and what it is called with other settings, as the run has them."""
    return [name for name in run["methods"] if name.startswith("auto")]


def fastest(
    run: Run, methods: Iterable[str], name: str | None, *, loops: bool
) -> tuple[float, str] | None:
    """The most tokens a second, median over groups, and whose; None if nothing was measured."""
    found = []
    for method in methods:
        entry = run["methods"][method]
        if name is None or name in entry["by_set"]:
            speed = cut(entry, name, loops=loops)["tokens_per_second"]["median"]
            if speed is not None:
                found.append((speed, method))
    return max(found, default=None)


def standing(
    run: Run, among: Sequence[str], name: str | None, label: str, *, loops: bool = True
) -> Standing | None:
    """How the fastest ``among`` some variants stands on a set (None: on all prompts).

    None if one of the three was not measured there.
    """
    others = [m for m in run["methods"] if m not in (*peers(run), *variants(run))]
    own = fastest(run, among, name, loops=loops)
    best = fastest(run, others, name, loops=loops)
    plain = fastest(run, [PLAIN], name, loops=loops)
    if own is None or best is None or plain is None:
        return None
    found = cut(run["methods"][own[1]], name, loops=loops)
    timed = {m: speeds(rows(run["methods"][m], name, loops=loops)) for m in (*among, *others)}
    if not (paired := ratios(timed[own[1]], timed[PLAIN])):
        return None
    return Standing(
        name=label,
        prompts=found["prompts"],
        looping=found["looping_texts"],
        plain=plain[0],
        rival=best[1],
        rival_speed=best[0],
        variant=own[1],
        speed=own[0],
        foreseen=over_foreseen({m: timed[m] for m in among}, {m: timed[m] for m in others}),
        over_plain=found["speedup_vs_ar"]["median"],
        ratios=paired,
    )


def by_set(run: Run, among: Sequence[str]) -> list[Standing]:
    """The standings on each set."""
    found = [standing(run, among, name, name) for name in run["methods"][PLAIN]["by_set"]]
    return [each for each in found if each is not None]


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
    header = ["set", "prompts (looping)", "`ar`", "best other", "auto", *RATIOS]
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


def headline(runs: Runs) -> Iterable[str]:
    """One table over all runs that have `auto`; nothing if none has."""
    lines = [
        [name, label, str(len(found)), *means(found)]
        for name, run in runs.items()
        for label, among in choices(run).items()
        if (found := by_set(run, among))
    ]
    if not lines:
        return
    yield "### `auto` against the best other method\n"
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

"""`auto` against the best other method of each set, chosen when all is measured and in advance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from results_page.documents import Run, cut, peers, repeated
from results_page.foreseen import over_foreseen
from results_page.markdown import number
from results_page.prompts import ratios, rows, speeds

PLAIN = "ar"
RATIOS = ["over the best other", "over the best foreseen", "over `ar`", "5th percentile", "minimum"]


@dataclass(frozen=True)
class Standing:
    """The fastest of some variants of `auto` on one set or on all.

    Attributes:
        name: of the set, or what else it is about.
        prompts: how many.
        looping: how many outputs loop.
        repeated: the share of repeated 8-grams in all of them.
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
    repeated: str
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
            f"{self.prompts} ({self.looping}; {self.repeated})",
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
        repeated=repeated(found),
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

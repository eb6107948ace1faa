"""The papers' claims as they print them, each beside our figure of the same ratio."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from draftwood.lab.theory.dominance import printed_spine_yield
from draftwood.lab.theory.yields import AcceptanceRates

from .markdown import number, percent, table
from .stored import LEAD, Run, Runs, link

BUDGET, SPINE, BRANCH = 59, 20, 6
"""GOOSE's published nodes of a tree, tokens of a spine and of a branch."""

SOURCES = ("context", "adjacency")
"""Sources of p_s and p_t."""

SLACK = 0.01
"""Relative difference within which a ratio agrees with a printed one."""

TAU, SPEED = "mean_acceptance_length", "tokens_per_second"


@dataclass(frozen=True)
class Claim:
    """A ratio of two methods as a paper prints it, and how it is computed from a run.

    Attributes:
        source: table or section of the paper.
        low: the printed ratio, or the least of several.
        high: the greatest of several.
        run: name of the run that follows the paper's protocol.
        metric: ``TAU``, or ``SPEED`` (ratio of medians over prompts).
        method: numerator.
        rivals: denominators; the best of them counts.
        set: prompts that count; None for all.
    """

    source: str
    low: float
    high: float
    run: str
    metric: str
    method: str
    rivals: tuple[str, ...]
    set: str | None = None

    def ours(self, run: Run, *, loops: bool = True) -> float | None:
        """Compute our ratio, with or without looping outputs; None if a figure is missing."""
        found = [self._figure(run, name, loops=loops) for name in (self.method, *self.rivals)]
        known = [each for each in found if each]
        return known[0] / max(known[1:]) if len(known) == len(found) else None

    def _figure(self, run: Run, method: str, *, loops: bool) -> float | None:
        # Another model than the embedded one may have a head only.
        of_head = run["methods"].get(f"{method}:drafter=eagle3", {})
        entry = run["methods"].get(method, of_head)
        if self.set is not None:
            entry = entry.get("by_set", {}).get(self.set, {})
        if not loops:
            entry = entry.get("without_looping", {})
        metric: dict[str, Any] = entry.get(self.metric, {})
        return metric.get("value", metric.get("median"))


def _tokens(source: str, run: str, where: str, method: str, rival: str, ratio: float) -> Claim:
    return Claim(source, ratio, ratio, run, SPEED, method, (rival,), where)


_ISO, _SINGLE = (1.12, 1.33), (1.16, 1.45)
_WIKI, _BOOKS = ("dynatree_long", "wikitext2_test"), ("dynatree_long_pg", "pg_prompts")
_PG19 = "dynatree:max_depth=10"
_HEAD = "talon:drafter=eagle3"

CLAIMS = {
    "GOOSE": (
        Claim("Table 1", *_ISO, "tau_greedy", TAU, "goose", ("iso3",)),
        Claim("Section D.2", *_SINGLE, "tau_greedy", TAU, "goose", ("pld", "tr:budget=59")),
        Claim("Table 1", *_ISO, "tau_sampled", TAU, "goose", ("iso3",)),
        Claim("Section D.2", *_SINGLE, "tau_sampled", TAU, "goose", ("pld", "tr:budget=59")),
        Claim("Table 2", 1.0, 1.0, "tau_ablations", TAU, "goose:spine=control", ("goose",)),
    ),
    "DynaTree": (
        _tokens("Table 1", *_WIKI, "dynatree", "ar", 219.5 / 133.4),
        _tokens("Table 1", *_WIKI, "dynatree", "sd:budget=8", 219.5 / 196.1),
        _tokens("Table 1", *_WIKI, "dynatree", "fixed-tree", 219.5 / 200.7),
        _tokens(
            "Table 4", *_WIKI, "dynatree:history=off", "fixed-tree:depth=6:breadth=2", 213.2 / 188
        ),
        _tokens("Table 4", *_WIKI, "dynatree", "fixed-tree:depth=6:breadth=2", 218.5 / 188),
        _tokens("Table 1", *_BOOKS, _PG19, "ar", 194.9 / 114.8),
        _tokens("Table 1", *_BOOKS, _PG19, "sd:budget=5", 194.9 / 144.9),
        _tokens("Table 1", *_BOOKS, _PG19, "fixed-tree", 194.9 / 185.5),
    ),
    "TALON": (
        Claim("Table 1, 5 models, 6 sets", 1.03, 1.18, "draft_tau_t0", SPEED, _HEAD, ("eagle3",)),
        Claim("Table 1, 5 models, 6 sets", 0.92, 1.14, "draft_tau_t0", TAU, _HEAD, ("eagle3",)),
        Claim("Table 3, 5 models, 6 sets", 1.00, 1.21, "draft_tau_t1", SPEED, _HEAD, ("eagle3",)),
        Claim("Table 3, 5 models, 6 sets", 0.96, 1.07, "draft_tau_t1", TAU, _HEAD, ("eagle3",)),
    ),
}
"""DynaTree at 1,500 new tokens; TALON and EAGLE-3 with 59 drafted nodes each."""


def verdict(ours: float | None, low: float, high: float) -> str:
    """Compare our ratio with a printed one; a loss where the paper gains is bold."""
    if ours is None:
        return "-"
    if ours < 1 - SLACK and low >= 1:
        return "**against the paper: a loss here**"
    if ours < low - SLACK:
        return "less than in the paper"
    if ours > high + SLACK:
        return "more than in the paper"
    return "as in the paper"


def claims(paper: str, runs: Runs) -> Iterable[str]:
    """Table of a paper's claims; nothing if no run follows its protocol.

    Runs on SmolLM2 have the name of the embedded pair's behind ``LEAD``.
    """
    rows = []
    for claim in CLAIMS[paper]:
        for name in (f"{LEAD}{claim.run}", claim.run):
            if name not in runs:
                continue
            run = runs[name]
            ours = claim.ours(run)
            spread = "" if claim.low == claim.high else f" to {claim.high:.2f}"
            rivals = " or ".join(f"`{name}`" for name in claim.rivals)
            rows.append(
                [
                    f"{'τ' if claim.metric == TAU else 'tok/s'} of `{claim.method}` over {rivals}",
                    claim.set or "all",
                    f"{claim.low:.2f}{spread} ({claim.source})",
                    number(ours),
                    number(claim.ours(run, loops=False)),
                    verdict(ours, claim.low, claim.high),
                    link(name),
                ]
            )
    if rows:
        yield table(["claim", "set", "paper", "ours", "without loops", "verdict", "run"], rows)
    if paper == "GOOSE":
        yield from rates(runs)


def rates(runs: Runs) -> Iterable[str]:
    """p_s and p_t of GOOSE by set, and its theory's bound at these rates beside the measured tau.

    The bound is Eq. 1 at its best widths, for a spine of 20 tokens and branches of 6.
    """
    for name in (f"{LEAD}tau_greedy", "tau_greedy"):
        goose = runs.get(name, {}).get("methods", {}).get("goose", {})
        rows = []
        for each, entry in goose.get("by_set", {}).items():
            found = entry.get("acceptance_by_source", {})
            p_s, p_t = (found.get(s, {}).get("rate", {}).get("value") for s in SOURCES)
            if p_s is None or p_t is None:
                continue
            bound = printed_spine_yield(BUDGET, SPINE, AcceptanceRates(p_s, p_t), BRANCH)
            tau = entry[TAU]["value"]
            share = percent(entry["repeated_8grams"]["value"])
            rows.append([each, number(p_s, 3), number(p_t, 3), number(bound), number(tau), share])
        if rows:
            header = ["set", "p_s", "p_t", "Eq. 1 at these rates", "τ of `goose`"]
            yield table([*header, "repeated 8-grams"], rows) + f"\n\n{link(name)}"


GAIN = (0.022, 0.057)
"""Traversal Verification's gain over token-level rejection (the paper's Tables 2 to 4)."""


def traversal(runs: Runs) -> Iterable[str]:
    """Gain of Traversal Verification over token-level rejection on the same trees."""
    name = next((n for n in (f"{LEAD}acceptance_law", "acceptance_law") if n in runs), None)
    if name is None:
        return
    run, law = runs[name], name
    rows = []
    for name, by_heat in run["methods"].items():
        if "gain" not in next(iter(by_heat.values()))[0]:
            continue
        gains = {heat: mean(each["gain"] for each in seeds) for heat, seeds in by_heat.items()}
        ours = mean(gains.values())
        shown = ", ".join(f"T = {heat}: {percent(gain, sign='+')}" for heat, gain in gains.items())
        rows.append(
            [
                f"gain of traversal over rejection, `{name}`",
                " to ".join(percent(each, sign="+") for each in GAIN) + " (Tables 2 to 4)",
                f"{percent(ours, sign='+')} ({shown})",
                verdict(1 + ours, *(1 + each for each in GAIN)),
                link(law),
            ]
        )
    yield table(["claim", "paper", "ours, mean of temperatures", "verdict", "run"], rows)


def expectations(run: Run) -> str:
    """Expected tokens a step by method and verifier: mean over seeds, a column a temperature."""
    heats = list(next(iter(run["methods"].values())))
    rows: list[Sequence[str]] = []
    for name, by_heat in run["methods"].items():
        for key in ("walk", "rejection", "traversal", "gain"):
            if key in by_heat[heats[0]][0]:
                values = [mean(seed[key] for seed in by_heat[heat]) for heat in heats]
                shown = percent if key == "gain" else number
                rows.append([f"`{name}`", key, *map(shown, values)])
    return table(["method", "verifier", *(f"T = {heat}" for heat in heats)], rows)

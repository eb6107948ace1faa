"""The papers' claims as they print them, each beside our figure of the same ratio."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .markdown import number, table
from .stored import LEAD, Run, Runs, both, link

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
        why: a verdict on SmolLM2, and its cause.
    """

    source: str
    low: float
    high: float
    run: str
    metric: str
    method: str
    rivals: tuple[str, ...]
    set: str | None = None
    why: tuple[str, str] | None = None

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
HEAD = "talon:drafter=eagle3"

LOSS, MORE = "**against the paper: a loss here**", "more than in the paper"
"""Verdicts of :func:`verdict` that have a cause."""

CLAIMS = {
    "GOOSE": (
        Claim("Table 1", *_ISO, "tau_greedy", TAU, "goose", ("iso3",)),
        Claim(
            "Section D.2",
            *_SINGLE,
            "tau_greedy",
            TAU,
            "goose",
            ("pld", "tr:budget=59"),
            why=(
                MORE,
                "in two of our sets the prompt gives the text that the answer repeats (`edit`, "
                "`passage`): there a spine is long, and branches find what a chain of `pld` misses",
            ),
        ),
        Claim("Table 1", *_ISO, "tau_sampled", TAU, "goose", ("iso3",)),
        Claim("Section D.2", *_SINGLE, "tau_sampled", TAU, "goose", ("pld", "tr:budget=59")),
        Claim(
            "Table 2",
            1.0,
            1.0,
            "tau_ablations",
            TAU,
            "goose:spine=control",
            ("goose",),
            why=(
                LOSS,
                "the control draws the spine's tokens from the table. The paper finds them as good "
                "as copies; here a node of the table is accepted far less often than a copied one "
                "(p_t and p_s), so that such a spine ends early",
            ),
        ),
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
        Claim("Table 1, 5 models, 6 sets", 1.03, 1.18, "draft_tau_t0", SPEED, HEAD, ("eagle3",)),
        Claim("Table 1, 5 models, 6 sets", 0.92, 1.14, "draft_tau_t0", TAU, HEAD, ("eagle3",)),
        Claim("Table 3, 5 models, 6 sets", 1.00, 1.21, "draft_tau_t1", SPEED, HEAD, ("eagle3",)),
        Claim("Table 3, 5 models, 6 sets", 0.96, 1.07, "draft_tau_t1", TAU, HEAD, ("eagle3",)),
    ),
}
"""DynaTree at 1,500 new tokens; TALON and EAGLE-3 with 59 drafted nodes each."""


def verdict(ours: float | None, low: float, high: float) -> str:
    """Compare our ratio with a printed one; a loss where the paper gains is bold."""
    if ours is None:
        return "-"
    if ours < 1 - SLACK and low >= 1:
        return LOSS
    if ours < low - SLACK:
        return "less than in the paper"
    if ours > high + SLACK:
        return MORE
    return "as in the paper"


def claims(paper: str, runs: Runs) -> Iterable[str]:
    """Table of a paper's claims; nothing if no run follows its protocol."""
    rows = []
    causes: dict[str, str] = {}
    for claim in CLAIMS[paper]:
        for name, run in both(runs, claim.run):
            ours = claim.ours(run)
            found = verdict(ours, claim.low, claim.high)
            if claim.why and name.startswith(LEAD) and found == claim.why[0]:
                causes[claim.method] = claim.why[1]
            spread = "" if claim.low == claim.high else f" to {claim.high:.2f}"
            rivals = " or ".join(f"`{name}`" for name in claim.rivals)
            rows.append(
                [
                    f"{'τ' if claim.metric == TAU else 'tok/s'} of `{claim.method}` over {rivals}",
                    claim.set or "all",
                    f"{claim.low:.2f}{spread} ({claim.source})",
                    number(ours),
                    number(claim.ours(run, loops=False)),
                    found,
                    link(name),
                ]
            )
    if rows:
        yield table(["claim", "set", "paper", "ours", "without loops", "verdict", "run"], rows)
        for method, why in causes.items():
            yield f"Why `{method}` differs: {why}."

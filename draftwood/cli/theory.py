"""``draftwood theory``: evaluates GOOSE's theory for two acceptance rates and a budget.

It shows Eq. 1 at its best spine (Proposition 3's families), the widths of Algorithm 1 beside the
optimal ones for the same spine (Proposition 2), and the best trees within the budget. The page
docs/theory.md says where the paper's claims hold.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click
from rich.console import Console
from rich.table import Table

from draftwood.errors import DraftwoodError
from draftwood.lab.theory.allocation import algorithm1_split, greedy_allocation
from draftwood.lab.theory.dominance import (
    best_single_rate_yield,
    best_two_source_yield,
    isotropic_yield,
    paid_spine_yield,
    printed_spine_yield,
)
from draftwood.lab.theory.nondegradation import algorithm1_tree, spine_ratio
from draftwood.lab.theory.rated_tree import expected_yield, spine_tree
from draftwood.lab.theory.yields import AcceptanceRates, exit_probabilities

# The search for the best tree of one rate takes cubic time and quadratic memory.
LARGEST = 1000


@dataclass(frozen=True)
class Bound:
    """Eq. 1 at its best widths and spine length, in tokens per step."""

    spine: int
    tokens_per_step: float


@dataclass(frozen=True)
class Allocation:
    """Branches at each spine node from root to tip, and the exact yield of the tree.

    ``unspent`` nodes are left by rounding; Algorithm 1 extends branches with them.
    """

    widths: tuple[int, ...]
    unspent: int
    tokens_per_step: float


@dataclass(frozen=True)
class BestIsotropic:
    """The best complete tree of transitions alone, cut breadth-first at the budget."""

    fan_out: int
    tokens_per_step: float


@dataclass(frozen=True)
class TheoryRow:
    """All predictions; budgets exclude the root, yields include the bonus token.

    ``bound_printed`` uses the paper's budget, which leaves out the branches' extensions;
    ``bound_paid`` counts every node. ``spine`` is Algorithm 1's and is shared by both allocations.
    """

    p_s: float
    p_t: float
    budget: int
    branch_depth: int
    match_length: int
    bound_printed: Bound
    bound_paid: Bound
    spine: int
    optimal: Allocation
    harmonic: Allocation
    isotropic: BestIsotropic
    algorithm1: float
    best_one_rate: float
    best_two_rates: float


@click.command()
@click.option("--ps", type=float, required=True, help="Acceptance rate of spine tokens, p_s.")
@click.option("--pt", type=float, required=True, help="Acceptance rate of transitions, p_t.")
@click.option(
    "--budget",
    type=click.IntRange(0, LARGEST),
    default=59,
    show_default=True,
    help="Nodes drafted per step, root excluded.",
)
@click.option(
    "--depth",
    type=click.IntRange(1, LARGEST),
    default=6,
    show_default=True,
    help="Greatest depth of a branch below the spine, D.",
)
@click.option(
    "--match",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Length of the context match: the longest spine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def theory(ps: float, pt: float, budget: int, depth: int, match: int, as_json: bool) -> None:
    """Evaluate GOOSE's theory: tokens per step, given two sources' acceptance rates."""
    try:
        rates = AcceptanceRates(ps, pt)
    except ValueError as error:
        raise DraftwoodError(str(error)) from error
    found = predict(rates, budget, depth, match)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    console = Console(highlight=False)
    console.print(
        f"p_s {ps:g}, p_t {pt:g}; {budget} drafted nodes, a match of {match} tokens, "
        f"branches up to {depth} deep\n"
    )
    console.print(_yields(found))
    console.print()
    console.print(_widths(found))


def predict(rates: AcceptanceRates, budget: int, depth: int, match: int) -> TheoryRow:
    """Predictions for one setting.

    Args:
        rates: acceptance rates of the two sources.
        budget: drafted nodes, root excluded, at least 0.
        depth: the paper's D, at least 1.
        match: length of the context match, at least 1.

    Raises:
        ValueError: an argument is too small.
    """
    split = algorithm1_split(budget, match, spine_ratio(rates.p_s))
    entry = exit_probabilities(split.spine, rates.p_s)
    best = greedy_allocation(entry, budget - split.spine, rates.p_t)

    def bound(family: Callable[[int, int, AcceptanceRates, int], float]) -> Bound:
        spines = range(1, min(budget, match) + 1)
        found = (Bound(m, family(budget, m, rates, depth)) for m in spines)
        # The shortest of the best spines; without a budget there is only the bonus token.
        return max(found, key=lambda each: each.tokens_per_step, default=Bound(0, 1.0))

    def allocation(widths: tuple[int, ...]) -> Allocation:
        tree = spine_tree(split.spine, widths, rates)
        return Allocation(widths, budget - tree.drafted, expected_yield(tree))

    fans = range(1, max(budget, 1) + 1)
    complete = (BestIsotropic(fan, isotropic_yield(budget, fan, rates.p_t)) for fan in fans)
    own = algorithm1_tree(budget, match, rates, spine_ratio(rates.p_s), branch_depth=depth)
    return TheoryRow(
        p_s=rates.p_s,
        p_t=rates.p_t,
        budget=budget,
        branch_depth=depth,
        match_length=match,
        bound_printed=bound(printed_spine_yield),
        bound_paid=bound(paid_spine_yield),
        spine=split.spine,
        optimal=allocation(tuple(best.tolist())),
        harmonic=allocation((split.root, *split.per_node)),
        isotropic=max(complete, key=lambda each: each.tokens_per_step),
        algorithm1=expected_yield(own),
        best_one_rate=best_single_rate_yield(budget, rates.p_t),
        best_two_rates=best_two_source_yield(budget, match, rates),
    )


def _yields(found: TheoryRow) -> Table:
    table = Table("tree", "tokens per step", box=None)
    table.columns[1].justify = "right"
    printed, paid = found.bound_printed, found.bound_paid
    for label, value in (
        (f"Eq. 1, spine of {printed.spine}, budget as printed", printed.tokens_per_step),
        (f"Eq. 1, spine of {paid.spine}, every node counted", paid.tokens_per_step),
        (f"GOOSE's tree (Algorithm 1), spine of {found.spine}", found.algorithm1),
        ("best tree of both sources", found.best_two_rates),
        ("best tree of transitions alone", found.best_one_rate),
        (
            f"best isotropic tree, fan-out {found.isotropic.fan_out}",
            found.isotropic.tokens_per_step,
        ),
    ):
        table.add_row(label, f"{value:.3f}")
    return table


def _widths(found: TheoryRow) -> Table:
    table = Table("branches", "root to tip of the spine", "left", "tokens per step", box=None)
    table.columns[2].justify = table.columns[3].justify = "right"
    for name, each in (("optimal", found.optimal), ("harmonic", found.harmonic)):
        widths = " ".join(map(str, each.widths))
        table.add_row(name, widths, str(each.unspent), f"{each.tokens_per_step:.3f}")
    return table

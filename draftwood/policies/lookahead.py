"""Lookahead decoding (method ``lookahead``): n-grams that the target makes beside its own tokens.

Source: Fu et al., 2024 (arXiv 2402.02057), Sections 3.1 to 3.3. The window has W columns and N - 1
levels, the tokens of the last N - 1 Jacobi iterations. Each step computes one further level, the
target's likeliest token after each column. A column with its new token is an n-gram; it goes into
the request's pool, and the oldest level is dropped. Candidates are the n-grams of the pool that
begin with the last token, at most G, and are verified in the same forward.

Window and candidates are one token tree. Level 0 is a chain below the root, and the further levels
of a column hang below its token of level 0. So every token has the position, and sees the tokens,
that it has in the paper (its Figure 2). Candidates are further paths from the root. Where two of
them or of the window's tokens coincide they are one node; the tokens lead to it.

Details that the paper leaves open, and deviations:

* Tokens of the window that the target agrees with are accepted too: they are nodes like any other.
* After a step that commits further tokens the window moves on by as many columns, so that its
  tokens keep their positions. New columns are filled from the committed tokens.
* The paper fills the first window from the prompt. A policy does not see the prompt: level 0 comes
  from the tokens of the first step, and the pool holds no n-grams of the prompt.
* Of the n-grams with one first token the pool holds the G latest.
* The levels are the target's likeliest tokens at any temperature, before penalties. Candidates are
  not sampled, so a seed has the tokens of plain decoding.
* A smaller budget is divided among window and candidates in the ratio W to G.

The paper's tree always has the whole window, whatever a node costs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from draftwood.protocols import Grower, Growth, Needs, Outcome, Policy, Recipe, setting
from draftwood.tree import ROOT, TokenTree, TreeBuilder

POOL, WINDOW = "pool", "window"
"""Sources of the nodes: the pool's n-grams, and the window."""

Tokens: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class LookaheadState:
    """The window and the pool of a request.

    Attributes:
        window: levels, the oldest first, each with a token for every column.
        pool: the last N - 1 tokens of n-grams by their first token, the latest n-gram first.
    """

    window: tuple[Tokens, ...] = ()
    pool: Mapping[int, tuple[Tokens, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Lookahead(Policy):
    """Drafts the window and the candidates from the pool.

    Raises:
        DraftwoodError: a setting outside its range.
    """

    budget: int = setting(
        120, "most nodes to draft, root excluded", search=(8, 16, 32, 120), least=0
    )
    columns: int = setting(15, "columns of the window (W)", least=1)
    ngram: int = setting(5, "tokens of an n-gram (N)", least=2)
    candidates: int = setting(15, "most n-grams to verify in a step (G)", least=1)

    @property
    def own_sources(self) -> tuple[str, ...]:
        """The pool and the window; no drafter is asked."""
        return POOL, WINDOW

    @property
    def needs(self) -> Needs:
        """The likeliest token of every row."""
        return Needs(top_k=1)

    def start(self) -> LookaheadState:
        """No window and no n-grams."""
        return LookaheadState()

    def _shares(self, budget: int) -> tuple[int, int]:
        """Columns and candidates, of N - 1 nodes each, that a budget has room for."""
        both = self.columns + self.candidates
        paths = min(both, max(0, budget) // (self.ngram - 1))
        columns = -(-paths * self.columns // both)
        return columns, paths - columns

    def grow(self, growth: Growth, state: LookaheadState) -> Grower:
        """Grow the tree. Routes: ``lookahead``, or ``plain`` without window and candidates."""
        yield from ()
        tree = TreeBuilder(growth.anchor)
        columns, candidates = self._shares(min(self.budget, growth.budget))
        for found in islice(state.pool.get(growth.anchor, ()), candidates):
            tree.add_chain(found[: max(0, growth.room)], POOL)
        node = ROOT
        for depth, column in enumerate(islice(zip(*state.window, strict=True), columns)):
            if depth >= growth.room:
                break
            node = tree.add(node, column[0], WINDOW)
            tree.add_chain(column[1 : growth.room - depth], WINDOW, node)
        return tree.build("lookahead" if tree.drafted else "plain")

    def learn(self, state: LookaheadState, outcome: Outcome) -> LookaheadState:
        """The next window, and the pool with the n-grams of this one."""
        columns, _ = self._shares(self.budget)
        window, pool, moved = state.window, state.pool, len(outcome.committed)
        if window:
            last = outcome.rows.top_tokens[:, 0]
            ends = column_ends(outcome.tree, window)
            fresh = tuple(-1 if node is None else int(last[node]) for node in ends)
            window = (*window, fresh)
        if len(window) == self.ngram:
            ngrams = [ngram for ngram in zip(*window, strict=True) if ngram[-1] >= 0]
            pool = with_ngrams(pool, ngrams, self.candidates)
            # Without its oldest level the window is one position further on.
            window, moved = window[1:], moved - 1
        filling = outcome.committed
        return LookaheadState(
            tuple(
                moved_on(level, moved, columns, filling[i % len(filling) :] + filling)
                for i, level in enumerate(window or ((),))
            ),
            pool,
        )


def column_ends(tree: TokenTree, window: Sequence[Tokens]) -> Iterator[int | None]:
    """The node of the last level's token in each column; None where it was not drafted."""
    above: int | None = ROOT
    for column in zip(*window, strict=True):
        above = _below(tree, above, column[:1])
        yield _below(tree, above, column[1:])


def _below(tree: TokenTree, node: int | None, tokens: Tokens) -> int | None:
    """The node at the end of a path below another one, None if there is no such path."""
    for token in tokens:
        if node is None:
            break
        node = tree.child(node, token)
    return node


def moved_on(level: Tokens, by: int, columns: int, filling: Tokens) -> Tokens:
    """A level without its first tokens, and with others for unknown ones and for new columns."""
    kept = level[by:][:columns]
    return tuple(
        kept[i] if i < len(kept) and kept[i] >= 0 else filling[i % len(filling)]
        for i in range(columns)
    )


def with_ngrams(
    pool: Mapping[int, tuple[Tokens, ...]], ngrams: Sequence[Tokens], most: int
) -> dict[int, tuple[Tokens, ...]]:
    """A pool with further n-grams, at most so many for each first token."""
    found = dict(pool)
    for first, *rest in ngrams:
        others = (other for other in found.get(first, ()) if other != tuple(rest))
        found[first] = (tuple(rest), *islice(others, most - 1))
    return found


PART = Lookahead
RECIPES = (
    Recipe(
        "lookahead",
        "n-grams that the target makes beside its own tokens, and verifies later",
        "Lookahead Decoding (Fu et al. 2024)",
    ),
)

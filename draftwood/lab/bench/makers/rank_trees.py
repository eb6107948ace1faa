"""Sequoia's search: static trees for the acceptance by rank of a pair of models.

One count gives two trees: the fastest one on this machine, with its size and depth (Sequoia's
hardware-aware optimizer, as in its paper), and the largest one. :mod:`draftwood.lab.bench.ranks`
counts, :mod:`draftwood.lab.theory.sequoia_tree` searches.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.files import write_json
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.prompts import read
from draftwood.lab.bench.ranks import Ranks, count_ranks, target_seconds
from draftwood.lab.bench.settings import Settings
from draftwood.lab.theory.sequoia_tree import RankTree, best_tree, fastest_tree
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.models import load_quietly
from draftwood.runner.attach import attach

RANKS, NODES, DEEPEST, CONTEXT = 10, 59, 12, 512


@dataclass(frozen=True)
class RankCounts:
    """Acceptance by rank, and seconds of a target forward with 0, 1, ... drafted nodes."""

    ranks: Ranks
    seconds: list[float]

    def tree(self, *, fastest: bool, nodes: int = NODES, deepest: int = DEEPEST) -> RankTree:
        """The fastest tree, or the tree of ``nodes`` nodes with the largest expected length."""
        if fastest:
            return fastest_tree(
                self.ranks.acceptance, self.ranks.draft_seconds, self.seconds, deepest
            )
        return best_tree(self.ranks.acceptance, nodes, deepest)

    def content(self, tree: RankTree) -> dict[str, object]:
        """Content of a tree file."""
        return {
            "acceptance": list(self.ranks.acceptance),
            "paths": [list(path) for path in tree.paths],
            "expected_length": tree.length,
            "steps": self.ranks.steps,
            "draft_ms": self.ranks.draft_seconds * 1e3,
            "target_ms": [round(seconds * 1e3, 4) for seconds in self.seconds],
        }


def one_level(ranks: int, **given: object) -> Method:
    """A method that drafts only the best children of the root; ``given`` names its drafter."""
    text = f"fixed-tree:breadth={ranks}:depth=1:threshold=0:budget={ranks}"
    return method(text, **{name: value for name, value in given.items() if value is not None})


def make(place: Path, settings: Settings) -> tuple[str, ...]:
    """The fastest tree, then the largest; see :mod:`draftwood.lab.bench.makers`.

    Without a tree that is faster than plain decoding, only the largest tree.

    Raises:
        DraftwoodError: no drafted token was accepted.
    """
    fastest, largest = (
        place.with_name(f"{place.stem}.sequoia-{name}.json") for name in ("fastest", "largest")
    )
    if not largest.exists():
        counted = _count(settings)
        quick, most = counted.tree(fastest=True), counted.tree(fastest=False)
        if not most.paths:
            raise DraftwoodError(
                "no token of the draft model was accepted, so there is no tree to search: "
                "leave sequoia out, or give another --draft"
            )
        if quick.paths:
            write_json(fastest, counted.content(quick))
        write_json(largest, counted.content(most))
    return tuple(str(path) for path in (fastest, largest) if path.exists())


def _count(settings: Settings) -> RankCounts:
    drafting = one_level(RANKS, draft=settings.draft)
    prompts = read(settings.prompts, settings.limit)
    loaded = load_quietly(
        settings.model,
        settings.dtype,
        settings.device,
        settings.threads,
        trust_remote_code=settings.trust_remote_code,
    )
    target = attach(loaded.model)
    limit, longest = target.info.context_limit, settings.max_new_tokens
    contexts = Contexts(
        loaded.tokenizer, limit, longest, chat=settings.chat, truncate=settings.truncate
    )
    contexts.check(prompts)
    requests: Iterable[Request] = (
        Request(contexts.after(prompt, ()).ids, longest, settings.sampling, eos=loaded.eos)
        for prompt in prompts
    )
    ranks = count_ranks(Engine(target, drafting, loaded.tokenizer), requests, RANKS)
    room = max(1, min(CONTEXT, limit - NODES - 1))
    return RankCounts(ranks, target_seconds(target, NODES, room))

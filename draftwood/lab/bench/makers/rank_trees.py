"""Sequoia's search: static trees for the acceptance by rank of a pair of models.

One count gives two trees: the fastest one on this machine, with its size and depth (Sequoia's
hardware-aware optimizer, as in its paper), and the largest one. :mod:`draftwood.lab.bench.ranks`
counts, :mod:`draftwood.lab.theory.sequoia_tree` searches.
"""

from collections.abc import Callable, Iterable
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
from draftwood.protocols import Target
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


def make(place: Path, settings: Settings, *, fresh: bool) -> tuple[str, ...]:
    """The fastest tree, then the largest; see :mod:`draftwood.lab.bench.makers`.

    Without a tree that is faster than plain decoding, only the largest tree.

    Raises:
        DraftwoodError: no drafted token was accepted.
    """
    fastest, largest = (
        place.with_name(f"{place.stem}.sequoia-{name}.json") for name in ("fastest", "largest")
    )
    if fresh:
        fastest.unlink(missing_ok=True)
        largest.unlink(missing_ok=True)
    if not largest.exists():
        ranks, target = count(settings, one_level(RANKS, draft=settings.draft), RANKS, NODES)
        context = max(1, min(CONTEXT, target.info.context_limit - NODES - 1))
        counted = RankCounts(ranks, target_seconds(target, NODES, context))
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


def count(
    settings: Settings,
    drafting: Method,
    ranks: int,
    nodes: int,
    progress: Callable[[list[Request]], Iterable[Request]] = iter,
) -> tuple[Ranks, Target]:
    """Acceptance by rank on the first turns of the prompts, and the attached target.

    Args:
        settings: models, prompts and sampling.
        drafting: made by :func:`one_level`.
        ranks: number of ranks.
        nodes: of the largest tree, with which forwards are timed afterwards.
        progress: shows the requests as they are decoded.

    Raises:
        DraftwoodError: the tree or a prompt does not fit the target's context, or no step was
            drafted.
    """
    prompts = read(settings.prompts, settings.limit)
    loaded = settings.load({"sequoia": drafting})
    target = attach(loaded.model)
    limit = target.info.context_limit
    if nodes + 2 > limit:  # the root and a cached token
        raise DraftwoodError(
            f"a tree of {nodes} nodes does not fit the model's context of {limit} tokens: give "
            f"at most {max(0, limit - 2)} nodes"
        )
    contexts = Contexts(
        loaded.tokenizer,
        limit,
        settings.max_new_tokens,
        chat=settings.chat,
        truncate=settings.truncate,
    )
    contexts.check(prompts)
    requests = [
        Request(
            contexts.after(prompt, ()).ids,
            settings.max_new_tokens,
            settings.sampling,
            eos=loaded.eos,
        )
        for prompt in prompts
    ]
    engine = Engine(target, drafting, loaded.tokenizer)
    return count_ranks(engine, progress(requests), ranks), target

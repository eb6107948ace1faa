"""Sequoia's static tree: each node is given by the ranks on its path, and a drafter fills them in.

Source: Sequoia (Chen et al., 2025), a baseline of TALON. Its tree is searched once for a drafter,
from the measured probability that the child of each rank is the accepted one. The search is
``draftwood.lab.theory.sequoia_tree``. This file fills the tree level by level, with one draft
forward for all nodes of a level that have children.

A tree comes from a JSON file of rank paths (``draftwood.policies._static``). Without a file the
acceptance is counted while an engine decodes, and the tree is the best one for the counts so far
(``draftwood.policies._rank_acceptance``). It is computed anew when the number of steps has doubled.
Engines on one host share the counts.

A smaller budget selects the nodes most likely to be accepted: those with the largest product of
acceptances along the path; of equal ones the shallower, then the one of smaller ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from draftwood.policies._fill import fill
from draftwood.policies._rank_acceptance import DEFAULT_ACCEPTANCE, RankCounts, RankTuner
from draftwood.policies._static import RankPath, likeliest_paths, read_paths
from draftwood.protocols import (
    Built,
    Grower,
    Growth,
    Host,
    Learnt,
    Policy,
    Recipe,
    Tuner,
    setting,
)
from draftwood.tree import TreeBuilder


@dataclass(frozen=True)
class Sequoia(Policy):
    """Fills the static tree; where a node has fewer children, the nodes below are left out.

    Raises:
        DraftwoodError: a negative budget, or a file that holds no tree.
    """

    budget: int = setting(59, "most nodes to draft, root excluded", search=(8, 16, 32, 59), least=0)
    tree: str = setting(
        "",
        "JSON file of a searched tree; empty: one for the acceptance that the engine counts",
        searched_by="rank_trees",
    )
    source: str = setting("draft", "name of the drafter", source="successors")

    def __post_init__(self) -> None:
        super().__post_init__()
        len(self.paths)  # reads the file, so that a wrong one is refused before anything is loaded

    @cached_property
    def paths(self) -> tuple[RankPath, ...]:
        """The file's tree, or one for an assumed acceptance where nothing is counted.

        Likeliest node first; the first n are the tree of budget n.
        """
        if self.tree:
            return read_paths(self.tree)
        return likeliest_paths(DEFAULT_ACCEPTANCE, self.budget)

    def tuner(self, host: Host, drafters: Mapping[str, Built]) -> Tuner | None:
        """Counts acceptance by rank and forecasts the tree, unless there is a file."""
        if self.tree:
            return None
        built = drafters[self.source]
        key = Learnt((self, built.spec.model))
        return RankTuner(self.budget, host.share(key, RankCounts), built.drafter.deepest)

    def grow(self, growth: Growth, state: None) -> Grower:
        """Grow the tree. Routes: ``sequoia``, or ``plain`` where nothing could be drafted."""
        builder = TreeBuilder(growth.anchor)
        budget = max(0, min(self.budget, growth.budget))
        paths: tuple[RankPath, ...] = growth.forecast or self.paths
        yield from fill(builder, paths[:budget], self.source, growth.room)
        return builder.build("sequoia" if builder.drafted else "plain")


PART = Sequoia
RECIPES = (
    Recipe(
        "sequoia",
        "a static tree that is best for a draft model's acceptance by rank, counted or searched",
        "Sequoia (Chen et al. 2025)",
        drafters={"draft": "model"},
    ),
    Recipe(
        "medusa",
        "a static tree of Medusa's heads",
        "Medusa (Cai et al. 2024)",
        drafters={"draft": "medusa"},
    ),
    Recipe(
        "hydra",
        "a static tree of Hydra's heads",
        "Hydra (Ankner et al. 2024)",
        drafters={"draft": "hydra"},
    ),
)

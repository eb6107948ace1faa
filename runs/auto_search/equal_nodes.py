"""Acceptance length at equal numbers of drafted nodes: ``auto``'s likeliest against other trees.

No cost is involved. A method may draft fewer nodes than it is given where its sources have no more
to offer; ``auto`` drafts as many as it is given for as long as there are candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from draftwood.lab.replay.recording import RecordedPrompt
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.policies.auto.policy import Auto
from runs.auto_search.ahead import Ahead
from runs.auto_search.choosing import Choose, Choosing, likeliest
from runs.auto_search.playing import Make, Plays, Run
from runs.auto_search.silent import Silent
from runs.auto_search.tuning import SURVEY, Told, around


@dataclass(frozen=True)
class Contest:
    """``auto`` and methods with the same sources.

    Attributes:
        auto: its spelling.
        others: theirs.
        mute: sources of ``auto`` that the others do not have, and that say nothing here.
    """

    auto: str
    others: tuple[str, ...]
    mute: tuple[str, ...] = ()


FREE = Contest("auto", ("goose", "iso3"))
DRAFTED = Contest(
    "auto:drafter=model:layout=ranked", ("talon", "eagle3:drafter=model"), ("context", "adjacency")
)

LEVEL = 0.05
"""Tokens that a draft forward must be expected to add, where costs do not count."""

CLOSE = 0.005
"""Relative difference below which two acceptance lengths count as equal."""


def choosing(
    spelt: str,
    told: Told,
    choose: Callable[[RecordedPrompt, Ahead], Choose],
    mute: Sequence[str] = (),
) -> Make:
    """``auto`` for each prompt, its tree chosen otherwise and some sources silent."""

    def make(prompt: RecordedPrompt) -> Method:
        plain, ahead = method(spelt), Ahead(prompt.texts)
        policy = plain.policy
        assert isinstance(policy, Auto)
        chosen = Choosing(policy, choose(prompt, ahead))
        drafters = {**plain.drafters, **{source: Silent() for source in mute}}
        tuner = around(plain.tuner, told, ahead)
        return replace(plain, policy=chosen, drafters=drafters, tuner=tuner)

    return make


def of_size(spelt: str, nodes: int, mute: Sequence[str] = ()) -> Make:
    """``auto``'s candidates, so many of the likeliest in every step."""
    told = Told(floor=SURVEY, level=LEVEL)
    return choosing(spelt, told, lambda _prompt, _ahead: likeliest(nodes), mute)


def budgeted(spelt: str, nodes: int) -> Make:
    """A method with so many nodes at most."""
    made = method(spelt, budget=nodes)
    return lambda _prompt: made


def compared(plays: Plays, sizes: Sequence[int], contest: Contest) -> object:
    """By size and group: acceptance lengths and mean nodes of each method, and ``auto``'s gain over
    the best of the others."""
    found: dict[str, dict[str, object]] = {}
    below: list[dict[str, object]] = []
    for nodes in sizes:
        makes = {contest.auto: of_size(contest.auto, nodes, contest.mute)}
        makes |= {other: budgeted(other, nodes) for other in contest.others}
        sums = {
            name: plays.grouped(plays.run(f"{name} with {nodes} nodes", make))
            for name, make in makes.items()
        }
        found[str(nodes)] = {}
        for group in plays.groups():
            at = {name: by_group[group] for name, by_group in sums.items()}
            gain = at[contest.auto].tau / max(at[other].tau for other in contest.others) - 1
            figures: dict[str, object] = {name: _figures(run) for name, run in at.items()}
            found[str(nodes)][group] = figures | {"gain": round(gain, 4)}
            if gain < -CLOSE:
                below.append({"nodes": nodes, "group": group, "gain": round(gain, 4)})
    return {**asdict(contest), "sizes": found, "below": below}


def _figures(run: Run) -> dict[str, float]:
    steps = max(1, run.steps)
    return {
        "tau": round(run.tau, 3),
        "nodes": round(run.nodes / steps, 1),
        "drafts": round(run.drafts / steps, 2),
    }

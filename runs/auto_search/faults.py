"""Which part of ``auto`` costs how much: each part in turn is replaced by one that knows.

Rows are tokens a second in modelled time. Rates that an oracle is told are, by set, those of
``auto`` itself, and of the oracle at the first try.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from draftwood.costs.curve import Curve, StepCosts
from draftwood.lab.replay.recording import RecordedPrompt
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.policies.auto.policy import Auto
from runs.auto_search.ahead import Ahead
from runs.auto_search.choosing import Choose, Foreseeing, foreseen_path, foreseen_size, told
from runs.auto_search.equal_nodes import choosing, of_size
from runs.auto_search.foretold import rates, watched
from runs.auto_search.judging import Judgement, Rates, Righted
from runs.auto_search.playing import Make, Plays, Run, Runs, best
from runs.auto_search.tuning import SURVEY, Clock, Told, around, learning

NOISE = 0.1
"""Of a measured time, where costs are learnt."""

BOUND = "choice and look-ups foreseen"
"""The row that nothing can pass; with a draft model it is the one without foreseen look-ups."""

OTHERS = ("ar", "pld", "tr", "goose:budget=8", "goose:budget=16", "goose", "iso3:budget=16", "iso3")
"""Methods of the same sources; the best of each set is chosen afterwards."""

DRAFTED_OTHERS = (
    *OTHERS,
    "sd",
    "talon:budget=16",
    "talon",
    "eagle3:drafter=model:budget=16",
    "opt-tree",
    "goose:adjacency=model:budget=16",
)


def faults(plays: Plays, spelt: str, others: Sequence[str], sizes: Sequence[int]) -> object:
    """Tokens a second by row and set, and of their mean over sets, what it has over ``auto`` and
    how much this is of the gap to the bound, where everything is foreseen."""
    rows: dict[str, Runs] = {}
    as_it_is, _ = watched(plays, spelt, warm=())
    rows["auto"] = as_it_is
    rows["auto, kept over a set"], _ = watched(plays, spelt, warm=tuple(plays.sets))
    rates_of = rates(plays, as_it_is)
    rows["rows of accepted nodes only"] = plays.run(
        "accepted only", _plain(f"{spelt}:adjacency.harvest=accepted")
    )
    rows |= _costs(plays, spelt)
    rows |= _chances(plays, spelt)
    rows["rate told"] = _sized(plays, spelt, rates_of, told, Told())
    wide = Told(floor=SURVEY)
    foreseen = _sized(plays, spelt, rates_of, foreseen_size, wide)
    rows["size foreseen"] = _sized(plays, spelt, rates(plays, foreseen), foreseen_size, wide)
    rows["choice foreseen"] = plays.run(
        "choice foreseen",
        choosing(spelt, wide, lambda _prompt, ahead: foreseen_path(ahead)),
    )
    if not getattr(method(spelt).policy, "neural", ""):
        rows[BOUND] = plays.run("all foreseen", _foreseeing(spelt))
    fixed: list[Runs] = [plays.run(f"{n} nodes", of_size(spelt, n)) for n in sizes]
    fixed.append(plays.run("ar", lambda _prompt: method("ar")))
    tried = [plays.run(name, _plain(name)) for name in others]
    choices = {
        "best size of each set": _by_set(plays, fixed),
        "best size of each prompt": _by_prompt(plays, fixed),
        "best other of each set": _by_set(plays, tried),
        "best other of each prompt": _by_prompt(plays, tried),
    }
    return {
        "auto": spelt,
        "others": list(others),
        "sizes": [*sizes, 0],
        "rows": _table(plays, rows | choices),
        "best": {
            name: others[best(tried, [p.id for p in members])[0]]
            for name, members in plays.sets.items()
        },
    }


def _table(plays: Plays, rows: Mapping[str, Runs]) -> dict[str, object]:
    found: dict[str, object] = {}
    sums_of = {name: plays.grouped(runs) for name, runs in rows.items()}
    means = {
        name: sum(sums[s].rate for s in plays.sets) / len(plays.sets)
        for name, sums in sums_of.items()
    }
    gap = means.get(BOUND, means["choice foreseen"]) - means["auto"]
    for name, sums in sums_of.items():
        whole = sums["all"]
        found[name] = {
            "tokens_per_second": {group: round(run.rate, 1) for group, run in sums.items()},
            "mean": round(means[name], 1),
            "over_auto": round(means[name] / means["auto"] - 1, 4),
            "share_of_gap": round((means[name] - means["auto"]) / gap, 4) if gap else None,
            "by_prompt": _ratio(rows[name], rows["auto"]),
            "tau": round(whole.tau, 3),
            "nodes": round(whole.nodes / max(1, whole.steps), 2),
        }
    return found


def _ratio(runs: Runs, of: Runs) -> dict[str, float]:
    """Geometric mean over prompts of the ratio of rates, and its standard error."""
    logs = np.log([runs[i].rate / of[i].rate for i in of if of[i].rate])
    error = float(logs.std(ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else 0.0
    return {"ratio": round(float(np.exp(logs.mean())), 4), "error": round(error, 4)}


def _costs(plays: Plays, spelt: str) -> dict[str, Runs]:
    """Costs learnt by a noisy clock, from the right ones and from wrong ones."""
    firsts = {
        f"costs measured with {NOISE:.0%} noise": plays.costs,
        "costs learnt from a flat guess": _flat(plays.costs),
    }
    clock = Clock(plays.costs, NOISE)

    def make(first: StepCosts) -> Make:
        def of(prompt: RecordedPrompt) -> Method:
            plain = method(spelt)
            return replace(plain, tuner=learning(plain.tuner, first, clock, Ahead(prompt.texts)))

        return of

    return {name: plays.run(name, make(first)) for name, first in firsts.items()}


def _flat(costs: StepCosts) -> StepCosts:
    """A guess by someone who thinks that nodes hardly cost anything."""
    sizes, first = costs.target.sizes, costs.target.base[0]
    base = tuple(first * (1 + 0.002 * (size - 1)) for size in sizes)
    return replace(costs, target=Curve(sizes, base), node=0.0)


def _chances(plays: Plays, spelt: str) -> dict[str, Runs]:
    """Wider look-ups, and then the frequencies of everything that these offered."""
    judged: dict[str, list[Judgement]] = {}
    tuners = {}

    def make(given: Callable[[RecordedPrompt], Told]) -> Make:
        def of(prompt: RecordedPrompt) -> Method:
            plain = method(spelt)
            tuners[prompt.id] = around(plain.tuner, given(prompt), Ahead(prompt.texts))
            return replace(plain, tuner=tuners[prompt.id])

        return of

    def after(prompt: RecordedPrompt) -> None:
        last = tuners[prompt.id].last
        assert last is not None
        judged[prompt.id] = last.judgements

    plays.run("as it is", make(lambda _prompt: Told()), after)
    righted = Righted([one for found in judged.values() for one in found])
    wide = plays.run("wide look", make(lambda _prompt: Told(floor=SURVEY)), after)
    every = Rates([one for found in judged.values() for one in found])
    of_set = {
        name: Rates([one for prompt in members for one in judged[prompt.id]])
        for name, members in plays.sets.items()
    }
    of_prompt = {name: Rates(found) for name, found in judged.items()}
    given: dict[str, Callable[[RecordedPrompt], Told]] = {
        "paths put right": lambda _prompt: Told(righted=righted),
        "chances counted on all": lambda _prompt: Told(every),
        "chances counted on the set": lambda prompt: Told(of_set[prompt.set]),
        "chances counted on the prompt": lambda prompt: Told(of_prompt[prompt.id]),
    }
    found: dict[str, Runs] = {"wide look": wide}
    return found | {name: plays.run(name, make(of)) for name, of in given.items()}


def _sized(
    plays: Plays,
    spelt: str,
    rates_of: Mapping[str, float],
    by: Callable[[StepCosts, float, Ahead], Choose],
    given: Told,
) -> dict[str, Run]:
    def choose(prompt: RecordedPrompt, ahead: Ahead) -> Choose:
        return by(plays.costs, rates_of[prompt.set], ahead)

    return plays.run(by.__name__, choosing(spelt, given, choose))


def _foreseeing(spelt: str) -> Make:
    def make(prompt: RecordedPrompt) -> Method:
        plain, ahead = method(spelt), Ahead(prompt.texts)
        policy = plain.policy
        assert isinstance(policy, Auto)
        tuner = around(plain.tuner, Told(), ahead)
        return replace(plain, policy=Foreseeing(policy, ahead), tuner=tuner)

    return make


def _plain(spelt: str) -> Make:
    made = method(spelt)
    return lambda _prompt: made


def _by_set(plays: Plays, choices: Sequence[Runs]) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for members in plays.sets.values():
        ids = [prompt.id for prompt in members]
        chosen = choices[best(choices, ids)[0]]
        found |= {i: chosen[i] for i in ids}
    return found


def _by_prompt(plays: Plays, choices: Sequence[Runs]) -> dict[str, Run]:
    return {p.id: best(choices, [p.id])[1] for p in plays.prompts}

"""How well ``auto``'s chances hold on texts that they were not counted on.

The chances that a step foretells of everything offered below a token that was then committed are
added up and held against how many were taken: for a tuner that is kept over all prompts of a set,
after its first steps, and for one that starts anew with every prompt.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace

from draftwood.lab.replay.recording import RecordedPrompt
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.protocols.tuning import Tuner
from runs.auto_search.ahead import Ahead
from runs.auto_search.judging import Judgement, by_depth, by_rank, by_voice
from runs.auto_search.playing import Plays, Run, Runs, total
from runs.auto_search.tuning import Around, Making, kept


def watched(
    plays: Plays, spelt: str, *, warm: Sequence[str]
) -> tuple[dict[str, Run], dict[str, list[Judgement]]]:
    """A method on every prompt, and what it foretold, by prompt.

    Args:
        plays: the prompts.
        spelt: the method.
        warm: sets whose prompts share a tuner.
    """
    plain = method(spelt)
    known: dict[str, Tuner] = {}
    making: dict[str, Making] = {}
    judged: dict[str, list[Judgement]] = {}

    def make(prompt: RecordedPrompt) -> Method:
        tuner = kept(lambda: copy.deepcopy(known.get(prompt.set)), plain.tuner, Ahead(prompt.texts))
        making[prompt.id] = tuner
        return replace(plain, tuner=tuner)

    def after(prompt: RecordedPrompt) -> None:
        last = making.pop(prompt.id).last
        assert isinstance(last, Around)
        judged[prompt.id] = last.judgements
        if prompt.set in warm:
            known[prompt.set] = last.inner

    name = f"{spelt}, {'warm' if warm else 'cold'}"
    return plays.run(name, make, after), judged


def errors(plays: Plays, spelt: str, skipped: int) -> object:
    """Warm and cold, by set, of candidates by source and depth, and of paths by rank.

    A kept tuner is judged after the first ``skipped`` steps of a set. Told are how many there
    were, how many were foretold to be taken, how many were, and the relative error.
    """
    found: dict[str, dict[str, object]] = {}
    every: dict[str, list[Judgement]] = {}
    for kind, warm in (("warm", tuple(plays.sets)), ("cold", ())):
        _, judged = watched(plays, spelt, warm=warm)
        for name, members in plays.sets.items():
            steps = [one for prompt in members for one in judged[prompt.id]]
            left = steps[skipped if warm else 0 :]
            every.setdefault(kind, []).extend(left)
            found.setdefault(name, {})[kind] = _errors(left)
    found["all"] = {kind: _errors(left) for kind, left in every.items()}
    return {"method": spelt, "skipped": skipped, "sets": found}


def rates(plays: Plays, runs: Runs) -> dict[str, float]:
    """Tokens a second by set."""
    return {name: total(runs[p.id] for p in members).rate for name, members in plays.sets.items()}


def _errors(judged: Sequence[Judgement]) -> object:
    return {
        "steps": len(judged),
        "sources": {voice: _error(*of) for voice, of in by_voice(judged).items()},
        "by_depth": {band: _error(*of) for band, of in by_depth(judged).items()},
        "paths_by_rank": {band: _error(*of) for band, of in by_rank(judged).items()},
    }


def _error(offered: int, foretold: float, taken: int) -> dict[str, float | None]:
    error = round(foretold / taken - 1, 4) if taken else None
    return {"offered": offered, "foretold": round(foretold, 1), "taken": taken, "error": error}

"""A fourth source of ``auto``: one file and a setting; its trees, calibration and tokens."""

from pathlib import Path

import pytest

import draftwood.drafters
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request, Stepped
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.policies.auto.features import Source
from draftwood.policies.auto.policy import Auto
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.sampling.sampler import SamplingParams
from tests.factories.command_line import output_of
from tests.factories.markov_target import FakeHost
from tests.factories.scripted_sources import Sources, offer, paths
from tests.policies.auto.added.toy import KNOWN, Toy
from tests.policies.auto.stage import Stage

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry finds the added file."""
    added = str(Path(__file__).parent / "added")
    monkeypatch.setattr(draftwood.drafters, "__path__", [*draftwood.drafters.__path__, added])


def requests(heat: float) -> list[Request]:
    return [Request(PROMPT[: 4 + i], 60, SamplingParams(heat, seed=i)) for i in range(3)]


def engine(name: str) -> Engine:
    return Engine(KNOWN, method(name), host=FakeHost(KNOWN.info))


def steps(of: Engine, heat: float) -> list[StepStats]:
    return [event.stats for event in of.stream(requests(heat)) if isinstance(event, Stepped)]


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_a_fourth_source_drafts_and_changes_no_token(heat: float) -> None:
    name = "auto:also=toy"
    found, plain = (engine(each).generate(requests(heat)) for each in (name, "ar"))
    assert [done.tokens for done in found] == [done.tokens for done in plain]
    taken = steps(engine(name), heat)
    assert any("toy" in step.tree.sources[node] for step in taken for node in step.path)


def test_its_candidates_are_calibrated_by_their_own_frequency() -> None:
    of = engine("auto:also=toy")
    for _ in range(12):
        taken = steps(of, 0.0)
    labelled = [step.prediction.candidates for step in taken if step.prediction is not None]
    mine = [
        (p, hit)
        for each in labelled
        for source, p, hit in zip(each.sources, each.probabilities, each.taken, strict=True)
        if source == "toy"
    ]
    frequency = sum(hit for _, hit in mine) / len(mine)
    assert 0.1 < frequency < 0.9
    assert sum(p for p, _ in mine) / len(mine) == pytest.approx(frequency, rel=0.15)
    # By its own codes, as it declares them; the counts of the others have no more digits.
    tuner = of._phases._tuner
    assert isinstance(tuner, AutoTuner)
    assert tuner.calibration.sources[3:] == (Source("toy", Toy.evidence),)
    counts = tuner.calibration.at(0.0)
    assert {len(codes) for codes in counts.totals()} == {3}
    ((_, curvatures),) = counts.learnt()
    assert len(curvatures) == 2 * (2 + 2 + 3)
    assert sum(each > 0.1 for each in curvatures) > 2


def test_the_command_line_binds_it_and_its_settings(checkpoint: str) -> None:
    argv = ["generate", "abab", "--model", checkpoint, "--max-new-tokens", "8", "--method"]
    source = ["auto", "--also", "toy", "--toy.wrong", "3"]
    assert output_of(*argv, *source) == output_of(*argv, "ar")
    assert "--toy.wrong" in output_of("generate", *source, "--help")


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("context", "already: leave it out of also"),
        ("toy+toy", "name different ones"),
        ("other", "there is no 'other' among drafters"),
        ("toy/ranked", "there is no 'toy/ranked' among drafters"),
        ("model", "'model' has a model: write draft=PATH"),
        ("toy:toy=model", "'model' has a model: write draft=PATH"),
        ("silent", "'silent' declares no evidence of its candidates"),
    ],
)
def test_a_source_that_cannot_be_added_is_refused(wrong: str, complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        method(f"auto:also={wrong}")


def test_without_a_recipe_a_policys_further_source_is_unbound() -> None:
    assert Auto(also=("toy",)).sources == ("context", "adjacency", "toy")


def test_where_no_drafter_is_known_a_further_source_is_asked_for_everything() -> None:
    toy = Sources(offer(5), {0: [(7, 0.9)]}, copying="toy", ranking="toy")
    tree = Stage(further={"toy": toy}).grow(Auto(also=("toy",)), room=5, budget=9)
    assert set(paths(tree)) == {(5,), (7,)}

"""Draftwood's server: as it is, and with verifiers that are wrong."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from draftwood import models
from draftwood.engine.engine import Engine
from draftwood.lab.endpoint.local import LocalModel
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.run import Report, run
from draftwood.methods import method
from draftwood.protocols import Verdict, Verification
from tests.factories.literal_verifiers import Eager, Rejection
from tests.factories.running_server import running, tiny_engine
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer
from tests.lab.endpoint.runs import lines, outcomes, settings, wanted

PROMPTS = (
    Prompt("raw", "abcabcabcabcabc"),
    Prompt("other", "hello hello hello he"),
    Prompt("chat", "abc abc", chat=True),
)
SAMPLED = Prompt("samples", "abcabcabcabcab")


def checked(engine: Engine, samples: int = 0, local: LocalModel | None = None) -> Report:
    chosen = settings(samples, 1e-4, sampled_prompt=SAMPLED, same_seed=True)
    with running(engine) as server:
        return run(wanted(server.url, chosen, prompts=PROMPTS), local)


@dataclass(frozen=True)
class Slip(Rejection):
    """Wrong: the last accepted token is followed by the least likely one."""

    def _one(self, case: Verification) -> Verdict:
        right = super()._one(case)
        if not right.path:
            return right
        row = case.p.probabilities([right.path[-1]])[0]
        return replace(right, bonus=int(row.argmin()))


def test_all_checks_pass() -> None:
    report = checked(tiny_engine("goose:budget=12", max_batch=8), samples=40)
    found = outcomes(report)
    assert not {"failed", "undecided"} & set(found), lines(report)
    assert found.get("not checked", set()) <= {"ends"}, "a looping text has no long stop string"
    assert report.endpoint.name == "draftwood"
    assert report.reference == 'the same server with {"speculate": false}'
    figures = next(each.figures for each in report.results if each.check == "speculation")
    assert figures["accepted"] > 0
    seeds = [each for each in report.results if each.check == "seeds"]
    assert [each.outcome for each in seeds] == ["passed", "passed"], "the seeds are the reference's"


@pytest.mark.slow
def test_a_local_model_is_the_reference(checkpoint: str) -> None:
    local = LocalModel(models.load(checkpoint))
    report = checked(tiny_engine("goose:budget=12", max_batch=8), 200, local)
    assert not {"failed", "undecided"} & set(outcomes(report)), lines(report)
    assert "against the model's probabilities" in lines(report)
    other = LocalModel(replace(models.load(checkpoint), model=tiny_llama(seed=1)))
    wrong = checked(tiny_engine("goose:budget=12", max_batch=8), 200, other)
    assert {"greedy", "distribution", "logprobs"} <= outcomes(wrong)["failed"]


def test_a_verifier_that_slips_is_found_in_greedy_texts() -> None:
    broken = replace(method("pld"), verifier=Slip())
    engine = Engine(tiny_llama(context=2048), broken, tiny_tokenizer(), max_batch=8)
    found = outcomes(checked(engine))
    assert {"greedy"} <= found["failed"]


@pytest.mark.slow
def test_a_verifier_that_is_eager_is_found_in_samples(checkpoint: str) -> None:
    broken = replace(method(f"talon:draft={checkpoint}"), verifier=Eager())
    engine = Engine(tiny_llama(context=2048), broken, tiny_tokenizer(), max_batch=8)
    report = checked(engine, samples=300)
    distribution = next(each for each in report.results if each.check == "distribution")
    assert distribution.outcome == "failed", lines(report)


@pytest.mark.slow
def test_the_embedded_model(tmp_path: Path) -> None:
    loaded = models.load("embedded")
    engine = Engine(loaded.model, "auto", loaded.tokenizer, max_batch=8)
    with running(engine, eos=loaded.eos) as server:
        chosen = settings(
            300, 1e-4, sampled_prompt=Prompt("samples", "The cat saw the dog, and the")
        )
        report = run(wanted(server.url, chosen, prompts=PROMPTS))
    assert not {"failed", "undecided"} & set(outcomes(report)), lines(report)

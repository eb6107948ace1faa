"""The parts of docs/add-a-part.md are a file each: put beside the others, they are found."""

from pathlib import Path

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.lab.lossless.exact import check_exact
from draftwood.methods import method
from tests.factories.added_part import added_part
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.test_docs_python import blocks

PROMPT = (1, 5, 2, 7, 1, 5, 2)


@pytest.fixture
def files() -> dict[str, str]:
    """The code of the page's parts, by kind."""
    found = blocks("docs/add-a-part.md")
    return {code.split("/")[1]: code for code in found}


def decoded(name: str) -> Completion:
    """An answer that has the tokens of plain decoding."""
    target = MarkovTarget()
    engine = Engine(target, method(name), host=FakeHost(target.info))
    [completion] = engine.generate([Request(PROMPT, 30)])
    assert completion.checked().tokens == target.greedy(PROMPT, 30)
    return completion


def test_the_policy_of_the_page_runs_by_name_and_is_lossless(
    tmp_path: Path, files: dict[str, str]
) -> None:
    with added_part(tmp_path, "policies", "timid", files["policies"]):
        made = method("timid")
        decoded("timid")
        assert check_exact("timid", made.policy, made.verifier).passed
        assert method("timid:budget=0").policy.budget == 0


def test_the_drafter_of_the_page_drafts_in_a_method_and_beside_auto(
    tmp_path: Path, files: dict[str, str]
) -> None:
    with added_part(tmp_path, "drafters", "again", files["drafters"]):
        drafted = decoded("pld:context=again:context.times=2").tally
        assert drafted.drafted > drafted.steps
        decoded("auto:also=again")


def test_the_verifier_of_the_page_accepts_one_token_and_is_lossless(
    tmp_path: Path, files: dict[str, str]
) -> None:
    with added_part(tmp_path, "verifiers", "shallow", files["verifiers"]):
        made = method("goose:verifier=shallow")
        tally = decoded("goose:verifier=shallow").tally
        assert 0 < tally.accepted <= tally.steps
        assert decoded("goose").tally.accepted > tally.accepted
        assert check_exact("goose", made.policy, made.verifier).passed

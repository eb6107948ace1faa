"""The policy of docs/add-a-part.md is one file: put beside the others, it is a method by name."""

from pathlib import Path

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.lab.lossless.exact import check_exact
from draftwood.methods import method
from tests.factories.added_policy import added_policy
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.test_docs_python import blocks


def test_the_policy_of_the_page_runs_by_name_and_is_lossless(tmp_path: Path) -> None:
    [code] = blocks("docs/add-a-part.md")
    with added_policy(tmp_path, "timid", code):
        target = MarkovTarget()
        made = method("timid")
        engine = Engine(target, made, host=FakeHost(target.info))
        [completion] = engine.generate([Request([1, 5, 2, 7, 1, 5, 2], 30)])
        assert completion.checked().tokens == target.greedy([1, 5, 2, 7, 1, 5, 2], 30)
        assert check_exact("timid", made.policy, made.verifier).passed
        assert method("timid:budget=0").policy.budget == 0

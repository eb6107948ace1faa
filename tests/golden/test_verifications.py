"""Worked verifications: the stored file, altered copies of it, and malformed files."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.methods import registry
from draftwood.tree import Draw
from tests.factories.literal_verifiers import Rejection
from tests.golden.explicit_trees import explicit_tree
from tests.golden.forms import check_file
from tests.golden.recompute import document
from tests.golden.verification_records import read_cases

OWN = Path(__file__).parents[1] / "data" / "verifications.json"
STORED: dict[str, Any] = json.loads(OWN.read_text(encoding="utf-8"))


def write(path: Path, cases: list[Any], ensembles: list[Any]) -> Path:
    path.write_text(json.dumps({"cases": cases, "ensembles": ensembles}), encoding="utf-8")
    return path


def test_the_stored_file_equals_the_literal_rules() -> None:
    assert document() == STORED


def test_the_stored_file_is_reproduced() -> None:
    checks = check_file(OWN)
    assert not any(check.complaints for check in checks), list(map(str, checks))
    assert all(check.compared > 100 for check in checks)


def test_a_childs_kind_of_draw_is_inferred_from_its_distribution() -> None:
    kinds = {}
    for case in read_cases(STORED):
        drafted, _ = explicit_tree(case, torch.float64, Draw.ONE_HOT)
        kinds[case.name] = [Draw(kind).name[0] for kind in drafted.tree.draws[1:]]
    assert kinds == {
        "forked": ["W", "W", "W", "W", "W"],
        "chain": ["W", "W", "W"],
        "repeating": ["W", "I", "I"],
        "best": ["O", "O", "O"],
        "mixed": ["W", "O", "W", "O"],
    }


def renumbered(case: dict[str, Any], to: list[int]) -> dict[str, Any]:
    """The same case with node i called ``to[i]``."""
    made = copy.deepcopy(case)

    def moved(values: list[Any]) -> list[Any]:
        return [values[to.index(i)] for i in range(len(to))]

    tree = made["tree"]
    tree["token"], tree["proposal_Q"] = moved(tree["token"]), moved(tree["proposal_Q"])
    tree["parent"] = [-1, *(to[v] for v in moved(tree["parent"])[1:])]
    children = "children_in_verification_order"
    tree[children] = moved([[to[v] for v in own] for own in tree[children]])
    made["traversal_visit_order"] = [to[v] for v in made["traversal_visit_order"]]
    asked = "traversal_accept_prob_when_reached"
    made[asked] = moved(made[asked])
    for rule in ("traversal", "rrsw", "naive"):
        for key in ("end_prob", "bonus"):
            made[rule][key] = moved(made[rule][key])
    for run in made["runs_with_given_uniforms_by_node_id"]:
        run["u"], run["accepted_node"] = moved(run["u"]), to[run["accepted_node"]]
    return made


def test_siblings_are_verified_in_the_order_given(tmp_path: Path) -> None:
    case = renumbered(STORED["cases"][0], [0, 2, 4, 3, 1, 5])
    assert case["tree"]["parent"] == [-1, 0, 0, 2, 2, 1]
    assert case["tree"]["children_in_verification_order"] == [[2, 1], [5], [4, 3], [], [], []]
    (check,) = check_file(write(tmp_path / "g.json", [case], []))
    assert not check.complaints, str(check)
    case["tree"]["children_in_verification_order"][0] = [1, 2]
    (check,) = check_file(write(tmp_path / "g.json", [case], []))
    assert check.complaints


@dataclass(frozen=True)
class Lenient(Rejection):
    """Wrong: accepts a tenth more than it may."""

    leniency: float = 1.1


def test_wrong_verifiers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda kind, name: Lenient)
    checks = check_file(OWN)
    assert all(check.complaints for check in checks)
    assert all(" is " in str(check) and "the file has" in str(check) for check in checks)


def change(document: dict[str, Any], where: str, value: object) -> None:
    """Set (or, for None, delete) what the dotted path names; integers index lists."""
    inner: Any = document
    *outer, last = [int(key) if key.isdecimal() else key for key in where.split(".")]
    for key in outer:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value


@pytest.mark.parametrize(
    ("where", "value", "complaint"),
    [
        ("cases.0.traversal.end_prob.2", 0.25, "traversal: end_prob of node 2"),
        ("cases.1.rrsw.expected_accepted", 1.5, "rrsw: expected_accepted"),
        ("cases.1.block.output_given_tree.0,2", 0.5, 'block: output of "0,2"'),
        ("cases.4.naive.end_prob.0", 0.5, "naive: end_prob of node 0"),
        ("cases.0.traversal_accept_prob_when_reached.1", 0.125, "acceptance of node 1"),
        ("cases.0.traversal.bonus.4", [0.0, 0.5, 0.5], "traversal: bonus"),
        (
            "cases.0.runs_with_given_uniforms_by_node_id.0.accepted_tokens",
            [2, 2, 2],
            "run 0: token 0",
        ),
        ("cases.3.runs_with_given_uniforms_by_node_id.1.accepted_node", 3, "run 1: accepted_node"),
        ("ensembles.0.n_trees", 3, "n_trees"),
        ("ensembles.2.expected_accepted.topdown", 0.5, "topdown: expected_accepted"),
        ("ensembles.4.output_joint.0,0,0", 0.5, 'probability of "0,0,0" in output_joint'),
    ],
)
def test_every_number_counts(tmp_path: Path, where: str, value: object, complaint: str) -> None:
    wrong = copy.deepcopy(STORED)
    change(wrong, where, value)
    path = write(tmp_path / "g.json", wrong["cases"], wrong["ensembles"])
    failed = [check for check in check_file(path) if check.complaints]
    assert len(failed) == 1
    assert complaint in failed[0].complaints[0]


@pytest.mark.parametrize(
    ("where", "value", "complaint"),
    [
        ("cases.0.name", 5, r"cases\[0\].name: expected a string"),
        ("cases.0.vocab", 4, r"cases\[0\]: expected distributions over 4 tokens"),
        ("cases.0.Mb", None, r"cases\[0\].Mb is missing"),
        ("cases.0.Mb.0,1", [1.5, -0.5, 0.0], r"cases\[0\]: expected distributions"),
        ("cases.0.Mb.0,1", ["0.5", 0.5, 0.0], r"cases\[0\].Mb.0,1\[0\]: expected a number"),
        ("cases.0.Mb.0,2", None, "KeyError: '0,2'"),
        ("cases.0.tree.parent.2", 5, r"cases\[0\].tree: .* below an earlier parent"),
        ("cases.0.tree.parent.0", 0, "below an earlier parent"),
        ("cases.0.tree.children_in_verification_order.0", [1], "below an earlier parent"),
        ("cases.0.tree.proposal_Q.3", [0.0, 0.0, 1.0], "proposal_Q: expected the distribution"),
        ("cases.0.tree.token.3", 3, "do not fit one another"),
        ("cases.0.traversal_visit_order", [0, 1, 2], "every node once"),
        ("cases.0.traversal_accept_prob_when_reached", [1.0], "6 values"),
        ("cases.0.traversal.bonus", [], "do not fit one another"),
        ("cases.0.rrsw.expected_accepted", 10**400, "OverflowError"),
        ("cases.0.runs_with_given_uniforms_by_node_id.0.u", [0.5], "6 values"),
        ("ensembles.0.shape", "a forest", "the shape 'a forest'"),
        ("ensembles.0.Ms", {"": [1.0]}, r"ensembles\[0\]: expected distributions"),
        ("ensembles.0.length", None, r"ensembles\[0\].length is missing"),
    ],
)
def test_malformed_files_are_refused(
    tmp_path: Path, where: str, value: object, complaint: str
) -> None:
    wrong = copy.deepcopy(STORED)
    change(wrong, where, value)
    path = write(tmp_path / "g.json", wrong["cases"], wrong["ensembles"])
    with pytest.raises(DraftwoodError, match=rf"g\.json: .*{complaint}"):
        check_file(path)


def test_a_certain_child_may_not_repeat_a_sibling(tmp_path: Path) -> None:
    wrong = copy.deepcopy(STORED["cases"][3])
    wrong["tree"]["token"][3] = 0
    wrong["tree"]["proposal_Q"][3] = [1.0, 0.0, 0.0]
    with pytest.raises(DraftwoodError, match="node 3 was not drawn and repeats"):
        check_file(write(tmp_path / "g.json", [wrong], []))

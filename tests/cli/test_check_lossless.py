"""``draftwood check-lossless``: its lines, its JSON, its exit codes."""

import json

import pytest

from draftwood.cli.check_lossless import line, verdict
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless import pairs
from draftwood.lab.lossless.exact import ExactCheck
from draftwood.lab.lossless.pairs import Refusal
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.protocols import Policy
from tests.factories.command_line import run
from tests.factories.enumerable_policies import Sorted
from tests.factories.literal_verifiers import Rejection


def check(*argv: str) -> tuple[int, list[str], str]:
    code, out, err = run("check-lossless", *argv)
    return code, out.splitlines(), err


def test_methods_are_enumerated_and_sampled(checkpoint: str) -> None:
    code, lines, err = check(
        "goose:budget=6", "sd", "--draft", checkpoint, "--model", checkpoint, "--samples=150"
    )
    assert code == 2
    assert "goose drafts without a model" in err
    flags = ("--model", checkpoint, "--samples", "150", "--prompt", "abc abc abc ab")
    code, lines, err = check("goose:budget=6", "pld", *flags)
    assert code == 0, err
    starts = ["exact probabilities", "sampled", "greedy"]
    assert [text.split(": ")[:2] for text in lines[:-1]] == [
        [f"  ok  {name}", start] for name in ("goose:budget=6", "pld") for start in starts
    ]
    assert lines[-1] == "lossless: all 6 checks passed (2 exact, 2 sampled, 2 greedy)"


def test_settings_are_flags(checkpoint: str) -> None:
    flags = ("--draft", checkpoint, "--budget=3", "--model", checkpoint, "--samples", "150")
    code, lines, err = check("sd", *flags, "--json")
    assert code == 0, err
    (text,) = lines
    found = json.loads(text)
    assert found["lossless"] is True
    origin = found["provenance"]
    assert origin["model"] == {"name": checkpoint, "dtype": "float32"}
    assert origin["settings"]["samples"] == 150
    assert [entry["kind"] for entry in found["checks"]] == ["exact", "sampled", "greedy"]
    exact, sampled, greedy = found["checks"]
    assert exact["subject"] == "sd"
    assert exact["difference"] < 1e-12
    assert exact["budget"] == 3
    assert sampled["samples"] == 150
    assert sampled["p_value"] > 1e-3
    assert sampled["degrees"] > 2
    assert greedy["differs"] is None
    assert all(entry["passed"] is True and entry["text"] for entry in found["checks"])


def test_without_samples_no_model_is_loaded() -> None:
    code, lines, _ = check("pld", "--samples", "0", "--model", "/nowhere")
    assert code == 0
    assert lines[-1] == "lossless: all 1 checks passed (1 exact)"
    assert check("pld", "--model", "/nowhere")[0] == 2


def test_every_pair_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"plain": method("ar").policy, "chain": method("pld").policy}
    monkeypatch.setattr(pairs, "registered_policies", lambda: few)
    code, lines, _ = check("--all")
    assert code == 0
    subjects = [text[6:].split(":")[0] for text in lines[:-1]]
    assert {"plain + walk", "chain + walk"} <= set(subjects)
    assert len(subjects) == len(set(subjects)) >= 2


def test_a_wrong_pair_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ("sorted + literal", Sorted(), "literal")
    monkeypatch.setattr("draftwood.methods.registry.load", lambda kind, name: Rejection)
    monkeypatch.setattr("draftwood.lab.lossless.pairs.registered_pairs", lambda: [wrong])
    code, lines, err = check("--all")
    assert code == 1
    assert lines[0].startswith("FAIL  sorted + literal: exact probabilities: off by")
    assert lines[1] == "NOT lossless: 1 of 1 checks failed"
    assert not err
    code, lines, _ = check("--all", "--json")
    assert code == 1
    assert json.loads(lines[0])["lossless"] is False


def test_refused_pairs_are_neither_right_nor_wrong() -> None:
    refused = Refusal("a + b", "they do not match")
    assert line(refused) == "  -   a + b: refused: they do not match"
    good = ExactCheck("a + c", passed=True)
    assert verdict([refused, good]) == "lossless: all 1 checks passed (1 exact)"
    bad = ExactCheck("a + d", passed=False, complaint="no law")
    assert line(bad) == "FAIL  a + d: exact probabilities: no law"
    assert verdict([refused, good, bad]) == "NOT lossless: 1 of 2 checks failed"


def test_refusals_alone_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ("sampled + walk", method("traversal").policy, "walk")
    monkeypatch.setattr(pairs, "registered_pairs", lambda: [refused])
    code, lines, _ = check("--all")
    assert code == 1
    assert lines[-1] == "NOT lossless: every pair is refused, so that no check ran"
    code, lines, _ = check("--all", "--json")
    assert code == 1
    assert json.loads(lines[0])["lossless"] is False


def test_the_refusal_of_a_methods_own_pair_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"plain": method("ar").policy, "chain": method("pld").policy}
    whole = pairs.paired

    def refusing(name: str, policy: Policy, verifier: str) -> Method:
        if name == "chain + walk":
            raise DraftwoodError("its drafters cannot be canned")
        return whole(name, policy, verifier)

    monkeypatch.setattr(pairs, "registered_policies", lambda: few)
    monkeypatch.setattr(pairs, "paired", refusing)
    code, lines, _ = check("--all")
    assert code == 1
    assert "FAIL  chain + walk: refused: its drafters cannot be canned" in lines
    assert lines[-1].startswith("NOT lossless: 1 of ")


def test_methods_and_flags_may_stand_in_any_order() -> None:
    flags = ("--budget", "4", "goose", "--spine=off", "goose:rho=0.25", "--samples", "0", "--json")
    code, (text,), err = check(*flags)
    assert code == 0, err
    found = json.loads(text)["checks"]
    assert [(entry["subject"], entry["budget"]) for entry in found] == [
        ("goose", 4),
        ("goose:rho=0.25", 4),
    ]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "give a METHOD or --all"),
        (["nope"], "unknown method 'nope'"),
        (["goose", "--colour", "3"], "No such option '--colour'"),
        (["goose", "--budget"], "'--budget' requires an argument"),
        (["--budget", "3"], "setting of a METHOD"),
        (["--all", "--model", "embedded"], "--model says nothing to --all alone"),
        (["--all", "--json", "--top-k", "3"], "--top-k says nothing to --all alone"),
        (["goose:verifier=nope"], "no 'nope' among verifiers"),
        (["pld", "--temperature", "0"], "above 0"),
        (["pld", "--top-k", "0"], "top_k from 2 to 16"),
        (["pld", "--seed", "-1"], "seed"),
        (["pld", "--samples", "-1"], "--samples"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(argv: list[str], complaint: str) -> None:
    code, lines, err = check(*argv)
    assert code == 2
    assert complaint in err
    assert len(err.strip().splitlines()) == 1
    assert not lines

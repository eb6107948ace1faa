"""Which contenders a run has, and with which settings."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench import peers
from draftwood.lab.bench.contenders import (
    OwnContender,
    PeerChoice,
    Stage,
    WarmContender,
    choose,
    chosen,
    decode_with,
    unnamed_peers,
)
from draftwood.lab.bench.defaults import Defaults
from draftwood.lab.bench.measure import Contender, Decode
from draftwood.methods import method, shipped_models
from draftwood.models import Loaded, fingerprint_of
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.shipped_model import ship_tiny
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer


def test_the_reference_always_runs_and_comes_first() -> None:
    assert [c.name for c in choose(["goose", "hf"])] == ["ar", "goose", "hf"]
    assert [c.name for c in choose(["goose", " ar"])] == ["ar", "goose"]


def test_a_budget_is_for_those_who_have_one_and_do_not_set_it() -> None:
    found = choose(["ar", "goose", "goose:budget=7", "hf"], Defaults(budget=16))
    assert [c.settings.get("budget") for c in found] == [0, 16, 7, None]
    assert found[1].name == "goose"


def test_settings_name_the_drafters_and_the_verifier() -> None:
    settings = choose(["goose:bypass=off"])[1].settings
    assert settings["bypass"] == "off"
    assert settings["verifier"] == "Walk"
    assert "adjacency.bigram" in settings
    tuned = choose(["auto"])[1].settings
    assert tuned["calibration"] == ""


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["nonsense"], "unknown method 'nonsense'"),
        (["goose:nonsense=1"], "no setting 'nonsense'"),
        (["goose:budget=x"], "expected an integer"),
        (["hf:tokens=3"], "peer 'hf' has no setting"),
        (
            ["hf-lookup:budget=3"],
            "'hf-lookup' has no setting 'budget=3': write one of tokens, ngram",
        ),
        (["hf-lookup:tokens=x"], "expected an integer"),
        (["hf-lookup:tokens=0"], "tokens is 0"),
        (["hf-assistant:tokens"], "'hf-assistant' has no setting 'tokens'"),
        (["pld", "pld"], "named twice"),
        (["ar", "", "goose"], "--methods has an empty item"),
        (["goose", " "], "--methods has an empty item"),
    ],
)
def test_refuses_what_it_does_not_know(specs: list[str], said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        choose(specs)


def test_peers_are_found_by_file_name() -> None:
    assert {"hf", "hf-assistant", "hf-lookup"} <= set(peers.names())
    for name in peers.names():
        assert callable(peers.load(name).enter)


def test_settings_of_peers_are_spelt_as_those_of_methods() -> None:
    specs = ["hf-lookup:tokens=20", "hf-assistant:draft=some/draft:tokens=5"]
    found = choose(specs, Defaults(budget=16))
    assert [c.name for c in found[1:]] == [
        "hf-lookup:tokens=20",
        "hf-assistant:draft=some/draft:tokens=5",
    ]
    assert found[1].settings == {"tokens": 20, "ngram": 2}
    assert found[2].settings == {"draft": "some/draft", "tokens": 5}
    assert not any(c.same_tokens(0.8) for c in found[1:])
    assert all(c.same_tokens(0.0) for c in found)


def test_quantised_peers_are_not_expected_to_say_the_same() -> None:
    class Quantised:
        weights = "q8_0"

        def enter(self, stock: Loaded) -> Contender:
            raise NotImplementedError

    assert not PeerChoice("llamacpp:weights=q8_0", Quantised()).same_tokens(0.0)


def test_peers_that_are_named_with_settings_are_not_added_again() -> None:
    assert unnamed_peers(["pld"]) == peers.names()
    left = unnamed_peers(["hf-lookup:tokens=20", "hf"])
    assert set(peers.names()) - set(left) == {"hf", "hf-lookup"}
    assert chosen("hf-lookup").settings == {"tokens": 10, "ngram": 2}


def test_a_peer_whose_library_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "draftwood.lab.bench.peers.hf_lookup", None)
    with pytest.raises(
        DraftwoodError, match="peer 'hf-lookup' needs a library that is not installed"
    ):
        choose(["hf-lookup"])


def test_answers_come_in_the_order_of_the_requests_with_their_steps() -> None:
    target = MarkovTarget()
    requests = [Request([1, 2, 3], max_new_tokens=n) for n in (9, 1, 5)]
    answers = decode_with(Engine(target, method("pld"), max_batch=3), requests)
    for request, answer in zip(requests, answers, strict=True):
        assert answer.completion.tokens == target.greedy([1, 2, 3], request.max_new_tokens)
        assert len(answer.steps) == answer.completion.tally.steps


def test_every_group_has_cold_drafters() -> None:
    target = MarkovTarget()
    contender = OwnContender(target, method("tr"), FakeHost(target.info))
    request = Request([1, 2, 3, 1, 2], max_new_tokens=24)
    accepted = [
        contender.begin(1)([request])[0].completion.tally.accepted_by_source for _ in range(3)
    ]
    assert accepted[0].total() > 0
    assert accepted[0] == accepted[1] == accepted[2]


def test_what_is_kept_begins_once_and_goes_on_learning() -> None:
    target = MarkovTarget()
    request = Request([1, 2], max_new_tokens=24)

    def accepted(text: str) -> list[int]:
        contender = OwnContender(target, method(text), FakeHost(target.info))
        kept = WarmContender(contender, 2)
        assert kept.begin(1) is kept.begin(2)
        return [kept.begin(1)([request])[0].completion.tally.accepted for _ in range(3)]

    first, *later = accepted("tr:adjacency.shared=on")
    assert all(count > first for count in later)
    alone = accepted("tr")
    assert alone[0] > 0
    assert len(set(alone)) == 1  # an engine that is kept has nothing to remember


def test_what_is_kept_counts_the_steps_that_its_tuner_has_seen() -> None:
    target = MarkovTarget()
    contender = OwnContender(target, method("auto"), FakeHost(target.info))
    request = Request([1, 2, 3], max_new_tokens=20)

    def numbers(decode: Decode) -> list[int]:
        (answer,) = decode([request])
        found = [step.prediction.step for step in answer.steps if step.prediction is not None]
        assert found == list(range(found[0], found[0] + len(found)))
        return [found[0], len(answer.steps)]

    assert [numbers(contender.begin(1))[0] for _ in range(2)] == [1, 1]
    kept = WarmContender(contender, 1)
    first, steps = numbers(kept.begin(1))
    assert first == 1
    assert numbers(kept.begin(1))[0] == 1 + steps


def test_what_is_kept_is_got_ready_for_the_largest_group() -> None:
    sizes: list[int] = []
    counting: Any = SimpleNamespace(begin=sizes.append)
    kept = WarmContender(counting, 4)
    kept.begin(1)
    kept.begin(3)
    assert sizes == [4]


@pytest.mark.parametrize("same", [True, False])
def test_a_model_takes_the_calibration_of_one_that_it_computes_as(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_models, "ASSETS", tmp_path)
    home = ship_tiny(tmp_path)
    loaded = Loaded("other", tiny_llama(seed=1), tiny_tokenizer(), frozenset())
    stage = Stage(lambda: loaded, fingerprint_of(tiny_llama()) if same else None)
    found = stage.equipped(method("auto")).method
    taken = f":calibration={home / 'calibration.json'}" if same else ""
    assert found == method(f"auto{taken}:shipped=off"), "and no head"

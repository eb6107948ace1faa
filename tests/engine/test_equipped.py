"""``auto`` takes what is shipped for a model, says so, is told not to, and changes no token."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from draftwood.costs.curve import Curve, StepCosts
from draftwood.drafters.adjacency.drafter import Adjacency
from draftwood.drafters.eagle3.drafter import Eagle3
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request, Stepped
from draftwood.lab.replay.hosts import PricedHost
from draftwood.methods import equip, method, shipped_models
from draftwood.methods.equip import Equipped, equipped
from draftwood.methods.recipe import Method
from draftwood.models import fingerprint_of, vocabulary_digest
from draftwood.policies.auto.policy import Auto
from draftwood.runner.attach import attach
from draftwood.sampling.params import SamplingParams
from tests.factories.prepared_tables import ANY, prepared_table, save_table
from tests.factories.shipped_model import NAME, ship_tiny
from tests.factories.tiny_llama import VOCAB, tiny_llama, tiny_tokenizer

CHEAP = Curve((1, 64), (1.0, 1.2))
COSTS = StepCosts(CHEAP, {"draft": Curve((1, 64), (0.01, 0.02))})
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the tiny model's shipped parts."""
    monkeypatch.setattr(shipped_models, "ASSETS", tmp_path)
    return ship_tiny(tmp_path)


def for_tiny(text: str, seed: int = 0, without: Sequence[str] = ()) -> Equipped:
    return equipped(method(text), fingerprint_of(tiny_llama(seed=seed)), without=without)


def auto_of(found: Method) -> Auto:
    assert isinstance(found.policy, Auto)
    return found.policy


def test_auto_takes_head_and_calibration_and_says_so(home: Path) -> None:
    found = for_tiny("auto")
    policy = auto_of(found.method)
    assert (policy.neural, policy.calibration) == (("draft",), str(home / "calibration.json"))
    assert found.method.drafters["draft"] == Eagle3(str(home / "head"))
    assert found.note == (
        f"auto uses what is shipped for {NAME}: head and calibration (shipped=off: nothing)"
    )
    spelt = f"auto:head={home / 'head'}:calibration={home / 'calibration.json'}:shipped=off"
    assert found.method == method(spelt), "it is a method like any other"
    assert equipped(found.method, fingerprint_of(tiny_llama())) == Equipped(found.method)


def test_a_cast_of_the_model_is_the_model(home: Path) -> None:
    half = nn.Module.half(tiny_llama())
    assert equipped(method("auto"), fingerprint_of(half)) == for_tiny("auto")


def test_near_weights_take_the_parts_too_and_say_so(home: Path) -> None:
    model = tiny_llama()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.0 + 0.1 * torch.randn_like(weight))
    found = equipped(method("auto"), fingerprint_of(model))
    assert found.method == for_tiny("auto").method
    assert f"shipped for {NAME}, whose weights are near this model's: head" in found.note


def test_it_is_told_not_to(home: Path) -> None:
    assert for_tiny("auto:shipped=off") == Equipped(method("auto:shipped=off"))
    for level in ("table", "calibration"):
        only = for_tiny(f"auto:shipped={level}").method
        assert auto_of(only).neural == (), "the head is left out"
        assert auto_of(only).calibration
    assert auto_of(for_tiny("auto", without=["head"]).method).neural == ()


def test_explicit_settings_win(home: Path) -> None:
    given = for_tiny("auto:head=mine:calibration=own.json").method
    assert given == method("auto:head=mine:calibration=own.json:shipped=off")
    assert for_tiny("auto:drafter=model").method.drafters["draft"] != Eagle3(str(home / "head"))


def test_parts_that_are_missing_are_not_named(home: Path) -> None:
    shutil.rmtree(home / "head")
    shipped_models.shipped_models.cache_clear()
    found = for_tiny("auto")
    assert auto_of(found.method).neural == ()
    assert found.note.endswith("the tiny model: calibration (shipped=off: nothing)")


def test_other_models_and_methods_are_unaffected(home: Path) -> None:
    assert for_tiny("auto", seed=1).method == method("auto:shipped=off")
    assert for_tiny("auto", seed=1).note == ""
    assert equipped(method("auto"), None).method == method("auto:shipped=off")
    assert for_tiny("goose") == Equipped(method("goose"))


def test_a_model_that_nothing_is_shipped_for_begins_with_the_common_calibration(
    home: Path, tmp_path: Path
) -> None:
    common = ship_tiny(tmp_path, "smollm2") / "calibration.json"
    assert auto_of(for_tiny("auto", seed=1).method).calibration == str(common)
    assert auto_of(for_tiny("auto", seed=1).method).neural == ()
    assert auto_of(for_tiny("auto:shipped=off", seed=1).method).calibration == ""


@pytest.fixture
def table(home: Path) -> str:
    """A shipped table, of which every token has one successor."""
    rows = {(ANY, token): {(token + 1) % VOCAB: 0.9} for token in range(VOCAB)}
    shipped_models.shipped_models.cache_clear()
    return save_table(home / "table.safetensors", prepared_table(rows, VOCAB))


def table_of(found: Equipped) -> object:
    spec = found.method.drafters["adjacency"]
    assert isinstance(spec, Adjacency)
    return spec.table


def test_a_table_is_given_to_the_drafter_that_takes_one(table: str) -> None:
    found = for_tiny("auto")
    assert table_of(found) == table
    assert f"{NAME}: head, table and calibration (" in found.note
    assert table_of(for_tiny("auto:shipped=table")) == table
    assert table_of(for_tiny("auto:shipped=calibration")) is None
    assert for_tiny("auto:adjacency=context").method.drafters == {
        **method("auto:adjacency=context").drafters,
        "draft": found.method.drafters["draft"],
    }


def test_a_table_that_does_not_fit_is_left_out(table: str, tmp_path: Path) -> None:
    own = save_table(tmp_path / "own.safetensors", prepared_table({(ANY, 1): {2: 0.5}}, VOCAB))
    assert table_of(for_tiny(f"auto:adjacency.table={own}")) == own
    wider = for_tiny("auto:adjacency.width=11")
    assert table_of(wider) is None
    assert "table" not in wider.note
    weights = fingerprint_of(tiny_llama())
    tokens = vocabulary_digest(tiny_tokenizer())
    assert table_of(equipped(method("auto"), weights, lambda: tokens)) == table
    assert table_of(equipped(method("auto"), weights, lambda: "of other tokens")) is None


def test_a_vocabulary_is_digested_only_where_a_table_is_offered(table: str) -> None:
    def never() -> str:
        raise AssertionError("the digest of a vocabulary that nothing is compared with")

    assert table
    weights = fingerprint_of(tiny_llama())
    with pytest.raises(AssertionError):
        equipped(method("auto"), weights, never)
    for text in ("ar", "goose", "auto:shipped=off", "auto:shipped=calibration"):
        assert equipped(method(text), weights, never).note == for_tiny(text).note
    assert equipped(method("auto"), None, never).note == ""


def test_an_engine_drafts_with_the_table_from_the_first_step(table: str) -> None:
    target = attach(tiny_llama(), self_test=False)
    host = PricedHost(target, tiny_tokenizer(), COSTS)
    engine = Engine(target, "auto:shipped=table", host=host)
    steps = [e.stats for e in engine.stream([Request(PROMPT, 8)]) if isinstance(e, Stepped)]
    tree = steps[0].tree
    child = tree.child(0, (int(tree.tokens[0]) + 1) % VOCAB)
    assert child is not None
    assert tree.sources[child] == "adjacency"
    plain = Engine(target, "ar", host=host).generate([Request(PROMPT, 8)])[0].tokens
    assert engine.generate([Request(PROMPT, 8)])[0].tokens == plain


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.8, seed=3)])
def test_an_engine_drafts_with_the_head_and_changes_no_token(
    home: Path, sampling: SamplingParams, caplog: pytest.LogCaptureFixture
) -> None:
    target = attach(tiny_llama(), self_test=False)
    host = PricedHost(target, tiny_tokenizer(), COSTS)
    request = Request(PROMPT, 40, sampling, eos=())
    with caplog.at_level(logging.INFO, "draftwood.engine"):
        engine = Engine(target, "auto", host=host)
    assert engine.note in caplog.messages
    assert engine.note
    done = engine.generate([request])[0].checked()
    plain = Engine(target, "ar", host=host).generate([request])[0].checked()
    assert done.tokens == plain.tokens
    assert done.tally.drafted_by_source["draft"] > 0, "the head was asked"
    without = Engine(target, "auto:shipped=off", host=host)
    assert without.note == ""
    assert without.generate([request])[0].checked().tokens == plain.tokens


def test_each_shipped_manifest_can_be_read() -> None:
    names = {each.name for each in shipped_models.shipped_models(shipped_models.ASSETS)}
    assert {"the embedded model"} < names
    assert equip.equipped(method("auto"), None).note == ""

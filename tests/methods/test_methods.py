"""Recipes: settings by name, wrong pairs refused when they are built."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftwood.drafters.eagle3.drafter import Eagle3
from draftwood.drafters.medusa.drafter import Medusa
from draftwood.drafters.model import Model
from draftwood.errors import DraftwoodError
from draftwood.methods import method, recipes
from draftwood.methods.binding import kind_of
from draftwood.methods.recipe import Method, bound, build, settings_of
from draftwood.protocols import Recipe
from draftwood.protocols.settings import settings
from draftwood.tree import Draw


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_recipe_builds_with_its_defaults(name: str) -> None:
    built = method(name)
    assert built.name == name
    assert set(built.policy.sources) <= set(built.drafters)
    for flag, setting in settings_of(recipes()[name]).items():
        assert setting.help, f"--{flag} is not explained"


def test_settings_by_text_and_by_keyword() -> None:
    spelt = method("goose:budget=16:bypass=off:adjacency.bigram=false")
    given = method("goose", budget=16, bypass="off", adjacency__bigram=False)
    assert spelt == given
    assert spelt.policy.budget == 16
    assert method("goose") != spelt


def test_a_source_may_be_given_another_drafter() -> None:
    built = method("goose:adjacency=model:draft=some/name")
    assert built.drafters["adjacency"] == Model("some/name")
    assert built == method("goose", adjacency="model", draft="some/name")
    assert built == build(recipes()["goose"], {"adjacency": "model", "draft": "some/name"})
    # What Token Recycling decides about its table means nothing to another drafter.
    assert method("tr:adjacency=model").drafters["adjacency"] == Model()
    assert method("tr:adjacency=adjacency") == method("tr")


def test_the_drafter_of_a_directory_is_that_of_its_present_files(tmp_path: Path) -> None:
    head = tmp_path / "head"

    def bound_to() -> str:
        return type(method(f"auto:head={head}").drafters["draft"]).__name__

    assert bound_to() == "Eagle3", "nothing is there yet"
    head.mkdir()
    for config, name in (({"medusa_num_heads": 3}, "Medusa"), ({"hydra_num_heads": 33}, "Hydra")):
        (head / "config.json").write_text(json.dumps(config))
        assert bound_to() == name


def test_a_hub_that_was_not_reached_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, asked = False, 0
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 3}')

    def download(name: str, file: str) -> str:
        nonlocal asked
        asked += 1
        if not reached:
            raise OSError("no network")
        return str(tmp_path / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert kind_of("head", "of/medusa-heads") == "eagle3"
    reached = True
    assert kind_of("head", "of/medusa-heads") == "medusa"
    before = asked
    assert kind_of("head", "of/medusa-heads") == "medusa"
    assert asked == before, "what was found is kept"


def test_a_path_says_which_drafter_answers() -> None:
    for text, drafter in (
        ("talon:draft=some/name", Model("some/name")),
        ("talon:head=some/name", Eagle3("some/name")),
        ("talon:drafter=eagle3:head=some/name", Eagle3("some/name")),
        ("eagle3:draft=some/name", Model("some/name")),
        ("goose-eagle3:head=some/name", Eagle3("some/name")),
        ("auto:head=some/name", Eagle3("some/name")),
    ):
        assert method(text).drafters["draft"] == drafter, text
    given = object()
    assert method("talon", draft=given).drafters["draft"].model is given
    assert method("eagle3", draft=given).drafters["draft"].model is given


def test_each_path_goes_to_the_source_that_drafts_with_it() -> None:
    both = method("auto:adjacency=eagle3:draft=a:head=b").drafters
    assert (both["adjacency"], both["draft"]) == (Eagle3("b"), Model("a"))
    assert set(method("auto:adjacency=model:draft=a").drafters) == {"context", "adjacency"}
    twice = method("auto:adjacency=model:drafter=model:draft=a").drafters
    assert twice["adjacency"] == twice["draft"] == Model("a")


def test_an_optional_source_has_no_model_by_default() -> None:
    auto = recipes()["auto"]
    unbound, with_head = settings_of(auto), settings_of(bound(auto, {"head": "x"}))
    assert [unbound[name].default for name in ("drafter", "draft", "head")] == [None] * 3
    assert with_head["drafter"].default == "eagle3"
    assert with_head["head"].default == "embedded-eagle3"
    assert with_head["draft"].default is None
    assert "draft" not in settings_of(recipes()["goose"])


def test_sources_that_the_policy_does_not_ask_are_not_built() -> None:
    idle = Recipe("idle", "-", "-", "plain", {"context": "context"})
    assert not build(idle).drafters


def test_presets_reach_the_parts() -> None:
    assert "k" in {s.name for s in settings(type(method("iso5").policy))}
    assert method("iso3") != method("iso5")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nope", r"unknown method 'nope'.*goose"),
        ("goose:nope=1", r"no setting 'nope' \('draftwood methods goose' lists them\)"),
        ("goose:budget", "write a setting as name=value, such as goose:budget="),
        ("goose:budget=x", "expected an integer"),
        ("gose", "unknown method 'gose': did you mean 'goose'\\?"),
        ("goose:bugdet=3", "no setting 'bugdet': did you mean 'budget'\\?"),
        ("goose:budget=-1", "budget"),
        ("goose:budget=1000000000", "budget is 1000000000; at most 16384"),
        ("talon:budget=1000000000", "budget is 1000000000; at most 16384"),
        ("ar:budget=4", "no setting"),
        ("goose:adjacency=nope", "no 'nope' among drafters"),
        ("goose:adjacency=model:adjacency.width=3", "no setting 'adjacency.width'"),
        ("goose:verifier=nope", "no 'nope' among verifiers"),
        (
            "goose:verifier=block",
            "verifier block is lossless for chains only, and method goose .*: use .*walk",
        ),
        (
            "traversal:verifier=walk",
            "walk is not lossless for the nodes that method traversal .*traversal",
        ),
        (
            "traversal:drafter=adjacency",
            "Sampled samples its nodes, but no drafter among draft can",
        ),
        ("auto:calibrations=1", r"no setting 'calibrations'.*calibration"),
        ("goose:calibration=x", r"no setting 'calibration'"),
        ("auto:neural=nope", "there is no 'nope' among drafters"),
        ("auto:neural=suffix", "neural=suffix: the drafter 'suffix' has no model: name it in also"),
        ("auto:also=eagle3", "has a model: write head=PATH, or name it in neural"),
        ("auto:neural=draft+eagle3:layout=drawn", "samples from one model, and neural names draft"),
        ("auto:neural=draft:draft=a:head=b", "head=b needs a source for eagle3, but neural=draft"),
        ("auto:drafter=model:draft=a:head=b", "head=b needs drafter=eagle3, but drafter=model"),
        ("auto:neural=adjacency", "name different ones"),
        ("auto:drafter=nope", "no 'nope' among drafters.*a model's path is draft=PATH, head=PATH"),
        ("talon:draft=eagle3", "'eagle3' is a kind of drafter, .*: write drafter=eagle3"),
        ("goose:adjacency=model:draft=context", "write drafter=context"),
        ("talon:draft=a:head=b", "draft= and head= were given, and talon drafts with one model"),
        ("talon:drafter=eagle3:draft=a", "draft=a needs drafter=model, but drafter=eagle3 was"),
        ("eagle3:drafter=model:head=b", "head=b needs drafter=eagle3, but drafter=model was"),
        (
            "goose:draft=a",
            "goose drafts without a model: use --method auto --draft a, "
            "or goose:adjacency=model:draft=a",
        ),
        ("ar:head=a", "ar drafts without a model: use --method auto --head a$"),
        ("pld:draft=a", "pld drafts without a model: use --method auto --draft a$"),
        ("talon:draft.model=a", "no setting 'draft.model'"),
        ("auto:draft.dtype=auto", "does not have here: give draft=PATH or head=PATH as well"),
        ("goose:adjacency=model:adjacency.model=a", "no setting 'adjacency.model'"),
        ("goose:drafter=model", "no setting 'drafter'"),
        (
            "traversal:context.max_tokens=5",
            "context.max_tokens is a setting of a drafter that method 'traversal' does not ask",
        ),
        ("talon:replacement=true", "replacement and draft_temperature are of drawn children"),
        ("dynatree:draft_temperature=0.5", "give children=drawn too"),
    ],
)
def test_refusals(text: str, complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        method(text)


def test_a_pair_that_is_not_lossless_is_refused() -> None:
    good = method("goose")

    @dataclass(frozen=True)
    class Picky:
        accepts: frozenset[Draw] = frozenset({Draw.IID})
        branching: bool = True
        verify = good.verifier.verify

    with pytest.raises(
        DraftwoodError, match=r"verifier Picky is not lossless .* method wrong draws"
    ):
        Method("wrong", good.policy, good.drafters, Picky())


def test_an_unbound_drafter_is_refused() -> None:
    good = method("goose")
    with pytest.raises(DraftwoodError, match="adjacency"):
        Method("wrong", good.policy, {"context": good.drafters["context"]}, good.verifier)


def test_the_verifier_is_a_setting() -> None:
    assert type(method("talon:verifier=traversal").verifier).__name__ == "Traversal"
    assert type(method("traversal", verifier="rejection").verifier).__name__ == "Rejection"
    assert type(method("sd:verifier=block").verifier).__name__ == "Block"
    assert type(method("traversal").verifier).__name__ == "Traversal"


def test_an_optional_source_is_bound_by_naming_its_drafter_or_one_of_its_settings() -> None:
    assert set(method("auto").drafters) == {"context", "adjacency"}
    assert method("auto").policy.sources == ("context", "adjacency")
    for text, drafter in (
        ("auto:drafter=model", Model()),
        ("auto:draft=some/name", Model("some/name")),
        ("auto:drafter=model:draft=some/name", Model("some/name")),
        ("auto:drafter=eagle3", Eagle3()),
    ):
        built = method(text)
        assert built.policy.sources == ("context", "adjacency", "draft")
        assert built.drafters["draft"] == drafter
        assert set(built.drafters) == {"context", "adjacency", "draft"}
    assert method("auto", draft="some/name") == method("auto:draft=some/name")
    assert method("auto:neural=draft") == method("auto:drafter=model")
    # Other sources' settings bind nothing.
    assert set(method("auto:adjacency.width=3:context=context").drafters) == {
        "context",
        "adjacency",
    }


def test_an_optional_source_needs_no_recipe_of_ours() -> None:
    mine = Recipe(
        "mine",
        "-",
        "-",
        "auto",
        {"context": "context", "adjacency": "adjacency", "mine": "eagle3"},
        verifier="traversal",
        optional={"mine": "neural"},
    )
    assert build(mine).policy.sources == ("context", "adjacency")
    assert build(mine, {"head": "some/name"}).drafters["mine"] == Eagle3("some/name")
    assert build(mine, {"mine": "model"}).drafters["mine"] == Model()


def test_several_models_draft_for_one_method() -> None:
    both = method("auto:draft=a:head=b")
    assert both.policy.sources == ("context", "adjacency", "draft", "eagle3")
    assert (both.drafters["draft"], both.drafters["eagle3"]) == (Model("a"), Eagle3("b"))
    assert method("auto", draft="a", head="b") == both
    assert method("auto:neural=draft+eagle3:draft=a:head=b") == both
    assert method("auto:neural=draft+eagle3:draft=a:head=b:shipped=off") == method(
        "auto:draft=a:head=b:shipped=off"
    )


def test_models_are_named_by_their_drafters() -> None:
    found = method("auto:neural=eagle3+model:draft=a:head=b:model.dtype=float32")
    assert found.policy.sources == ("context", "adjacency", "eagle3", "model")
    assert (found.drafters["model"], found.drafters["eagle3"]) == (
        Model("a", "float32"),
        Eagle3("b"),
    )
    assert set(found.drafters) == set(found.policy.sources)
    assert method("auto", neural=("eagle3", "model"), draft="a").drafters["model"] == Model("a")
    assert method("auto:neural=eagle3+model").drafters["eagle3"] == Eagle3()


def test_a_further_model_of_one_kind_is_named_behind_its_source() -> None:
    found = method("auto:neural=eagle3+medusa:head=a:medusa.head=b").drafters
    assert (found["eagle3"], found["medusa"]) == (Eagle3("a"), Medusa("b"))
    found = method("auto:neural=medusa+draft:drafter=eagle3:head=a:draft.head=b").drafters
    assert (found["medusa"], found["draft"]) == (Medusa("a"), Eagle3("b"))
    found = method("auto:neural=one+two:one=model:two=model:draft=a:two.draft=b").drafters
    assert (found["one"], found["two"]) == (Model("a"), Model("b"))
    assert method("auto:neural=eagle3+medusa:head=a").missing == ("medusa.head",)
    known = settings_of(bound(recipes()["auto"], {"neural": "eagle3+medusa"}))
    assert {"head", "medusa.head"} <= set(known)

"""Settings that a run gives to its contenders: who gets which, and whose text wins."""

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contenders import chosen
from draftwood.lab.bench.defaults import Defaults


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sd", {"draft": "some/draft"}),
        ("sd:budget=3", {"draft": "some/draft"}),
        ("sd:draft=other", {}),
        ("sd:drafter=eagle3", {"head": "some/head"}),
        ("eagle3", {"head": "some/head"}),
        ("eagle3:drafter=model", {"draft": "some/draft"}),
        ("goose", {}),
        ("goose:adjacency=model", {"draft": "some/draft"}),
        # As generate --method auto --draft --head does.
        ("auto", {"draft": "some/draft", "head": "some/head"}),
        ("auto:budget=8", {"draft": "some/draft", "head": "some/head"}),
        ("auto:neural=eagle3+model", {"draft": "some/draft", "head": "some/head"}),
        ("auto:neural=eagle3", {"head": "some/head"}),
        ("auto:neural=draft", {"draft": "some/draft"}),
        ("auto:neural=", {}),
        ("auto:drafter=eagle3", {"head": "some/head"}),
        ("auto:drafter=model", {"draft": "some/draft"}),
        ("auto:draft=other", {}),
        ("goose-eagle3", {"head": "some/head"}),
        ("ar", {}),
        ("hf", {}),
        ("hf-assistant:tokens=5", {"draft": "some/draft"}),
        ("hf-assistant:draft=other", {}),
        ("talon:head=other", {}),
        ("goose:adjacency=eagle3", {"head": "some/head"}),
    ],
)
def test_models_fall_to_those_who_have_one_and_do_not_spell_it(
    text: str, wanted: dict[str, object]
) -> None:
    defaults = Defaults(draft="some/draft", head="some/head")
    assert defaults.of(text) == wanted
    settings = chosen(text, defaults).settings
    assert {key: settings[key] for key in wanted} == wanted


def test_names_may_hold_what_separates_settings() -> None:
    settings = chosen("sd:budget=3", Defaults(draft="C:/drafts,a=b")).settings
    assert (settings["draft"], settings["budget"]) == ("C:/drafts,a=b", 3)


def test_tables_are_shared_where_the_text_does_not_say_otherwise() -> None:
    warm = Defaults(warm=True)
    assert warm.of("tr") == warm.of("goose") == {"adjacency.shared": True}
    assert warm.of("goose:adjacency.shared=off") == {}
    assert warm.of("pld") == warm.of("goose:adjacency=model") == warm.of("hf-lookup") == {}
    assert chosen("goose", warm).settings["adjacency.shared"] is True
    assert chosen("goose").settings["adjacency.shared"] is False


@pytest.mark.parametrize(
    ("defaults", "names", "said"),
    [
        (Defaults(draft="d"), ["ar", "goose", "eagle3", "sd:draft=x"], "--draft d: no"),
        (Defaults(head="h"), ["ar", "sd", "hf-assistant"], "--head h: no contender of this run"),
        (Defaults(draft="d", head="h", budget=3, warm=True), ["sd"], "as eagle3 does, or leave"),
    ],
)
def test_a_model_that_nobody_would_draft_with_is_refused(
    defaults: Defaults, names: list[str], said: str
) -> None:
    with pytest.raises(DraftwoodError, match=said):
        defaults.check(names)


def test_one_that_drafts_with_it_is_enough() -> None:
    Defaults(draft="d").check(["ar", "hf-assistant"])
    Defaults(draft="d").check(["ar", "auto"])
    assert Defaults(head="h").of("auto") == {"head": "h"}
    Defaults(head="h").check(["ar", "talon:drafter=eagle3"])
    Defaults(budget=3, warm=True).check(["ar"])

"""Defaults of sampling: the API's, a model's, and a request's own."""

from dataclasses import replace
from typing import Any

import pytest
from transformers import GenerationConfig

from draftwood.server.errors import ApiError
from draftwood.server.sampling import Wanted, requests_of
from draftwood.server.schemas.completion import CompletionRequest
from draftwood.server.settings import ServeSettings, model_defaults


def config(**given: Any) -> GenerationConfig:
    """A generation config, whose constructor has no annotations."""
    made: Any = GenerationConfig
    found: GenerationConfig = made(**given)
    return found


WANTED = Wanted(None, None, None, "prompt")


def settings(given: GenerationConfig | None) -> ServeSettings:
    sampling, max_tokens = model_defaults(given)
    return ServeSettings(("tiny",), "tiny", 64, sampling=sampling, max_tokens=max_tokens)


def test_the_apis_defaults() -> None:
    [found] = requests_of(
        CompletionRequest(prompt=""), [[1, 2]], WANTED, settings(None), frozenset({7})
    )
    assert (found.sampling.temperature, found.sampling.top_p, found.sampling.top_k) == (1, 1, 0)
    assert found.max_new_tokens == 62
    assert found.eos == {7}


def test_a_models_defaults_give_way_to_a_requests() -> None:
    given = settings(
        config(do_sample=True, temperature=0.6, top_p=0.9, top_k=20, repetition_penalty=1.1)
    )
    [found] = requests_of(CompletionRequest(prompt=""), [[1]], WANTED, given, frozenset())
    sampling = found.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.6, 0.9, 20)
    assert sampling.repetition_penalty == 1.1
    body = CompletionRequest(prompt="", temperature=0.0, top_k=-1, top_p=0.5)
    [found] = requests_of(body, [[1]], WANTED, given, frozenset())
    sampling = found.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0, 0.5, 0)


@pytest.mark.parametrize(
    ("wanted", "asked", "skips", "shown"),
    [
        (WANTED, True, True, ()),
        (WANTED, False, False, ()),
        (replace(WANTED, tags={5}), True, True, ()),
        (replace(WANTED, parses=True, tags={5}), True, True, {5}),
        (replace(WANTED, parses=True, tags=frozenset()), True, True, ()),
        (replace(WANTED, parses=True), True, False, ()),
    ],
)
def test_special_tokens_of_a_text_that_is_parsed(
    wanted: Wanted, asked: bool, skips: bool, shown: object
) -> None:
    body = CompletionRequest(prompt="", skip_special_tokens=asked)
    [found] = requests_of(body, [[1]], wanted, settings(None), frozenset())
    assert (found.skip_special_tokens, found.shown_special_tokens) == (skips, shown)


def test_a_models_limit_of_new_tokens_is_known() -> None:
    assert model_defaults(config(max_new_tokens=33))[1] == 33
    assert model_defaults(config()) == ({}, None)


@pytest.mark.parametrize(("seed", "seeds"), [(-1, [2**64 - 1, 0]), (5, [5, 6])])
def test_seeds_of_choices(seed: int, seeds: list[int]) -> None:
    body = CompletionRequest(prompt="", n=2, seed=seed)
    found = requests_of(body, [[1]], WANTED, settings(None), frozenset())
    assert [each.sampling.seed for each in found] == seeds


def test_equal_prompts_have_one_seed_only_if_it_is_given() -> None:
    def seeds(seed: int | None) -> set[int]:
        body = CompletionRequest(prompt=["a", "a"], seed=seed)
        found = requests_of(body, [[1], [1]], WANTED, settings(None), frozenset())
        return {each.sampling.seed for each in found}

    assert seeds(5) == {5}
    assert len(seeds(None)) == 2


def test_end_tokens_of_a_request() -> None:
    body = CompletionRequest(prompt="", ignore_eos=True, stop_token_ids=[3])
    [found] = requests_of(body, [[1]], WANTED, settings(None), frozenset({7}))
    assert found.eos == {3}


def test_a_users_texts_are_kept_under_a_short_name() -> None:
    def namespace(user: str | None, owner: str = "") -> str:
        body = CompletionRequest(prompt="", user=user)
        [found] = requests_of(body, [[1]], WANTED, settings(None), frozenset(), owner)
        return found.namespace

    assert namespace(None) == namespace("") == ""
    users = [namespace("alice"), namespace("bob"), namespace("x" * 10**6), namespace("y" * 10**6)]
    owned = [namespace(each, "key") for each in (None, "alice", "bob")]
    assert len({*users, *owned}) == 7
    assert max(map(len, [*users, *owned])) <= 40
    assert namespace("alice") == users[0]


def test_a_form_and_a_least_length_are_not_asked_for_together() -> None:
    body = CompletionRequest(prompt="", min_tokens=3, response_format={"type": "json_object"})
    with pytest.raises(ApiError, match="min_tokens is not supported: a text of a given form"):
        requests_of(body, [[1]], WANTED, settings(None), frozenset())


@pytest.mark.parametrize("stop", [["x"] * 65, "x" * 1025, ["a", "x" * 1025]])
def test_stop_strings_are_bounded(stop: list[str] | str) -> None:
    body = CompletionRequest(prompt="", stop=stop)
    with pytest.raises(ApiError, match="stop"):
        requests_of(body, [[1]], WANTED, settings(None), frozenset())

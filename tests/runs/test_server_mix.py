"""Mixed requests to a server: none has other tokens than alone, and a wrong server is found out."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from draftwood import models
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.lab.bench.margins import Margin
from runs.mixed_answers import Alone, Answer, Choice, Difference, differences
from runs.mixed_requests import CHAT, KINDS, TEXTS, Mixed, mixed, request_of
from runs.server_mix import Run, ask, figures, main
from tests.factories.running_server import EOS, running
from tests.factories.tiny_llama import save_tiny, tiny_tokenizer

pytest.importorskip("llguidance")

SAMPLING = {"temperature": 0.7, "seed": 3, "top_p": 0.9, "top_k": 0, "min_p": 0.0}
SAMPLING |= {"repetition_penalty": 1.0, "max_tokens": 12}


def test_requests_are_the_same_for_the_same_seed_and_of_all_kinds() -> None:
    tokenizer = tiny_tokenizer()
    found = mixed(200, 0, tokenizer)
    assert found == mixed(200, 0, tokenizer) != mixed(200, 1, tokenizer)
    assert {kind for asked in found for kind in asked.kinds} == {*KINDS}
    assert sum("cancelled" in asked.kinds for asked in found) == 20
    assert all(8 <= asked.body["max_tokens"] <= 96 for asked in found)
    assert all(("chat" in a.kinds) != ("completion" in a.kinds) for a in found)


def test_a_request_alone_has_the_fields_of_the_body() -> None:
    body = {
        **SAMPLING,
        "messages": [{"role": "user", "content": "ab"}],
        "logit_bias": {"7": 2},
        "frequency_penalty": 0.5,
        "stop": ["x"],
        "min_tokens": 2,
        "structured_outputs": {"choice": ["yes", "no"]},
    }
    found = request_of(Mixed(CHAT, body), 1, tiny_tokenizer(), EOS)
    assert tiny_tokenizer().decode([*found.ids]) == "User: ab\n\nAssistant:"
    assert (found.sampling.seed, found.sampling.logit_bias) == (4, {7: 2.0})
    assert (found.sampling.top_p, found.sampling.frequency_penalty) == (0.9, 0.5)
    assert (found.stop, found.min_new_tokens, found.eos) == (("x",), 2, EOS)
    assert found.grammar is not None
    assert found.grammar.text == '["yes", "no"]'


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(str(save_tiny(tmp_path_factory.mktemp("tiny"))))


def answered(alone: Alone, asked: Mixed) -> Answer:
    """What a right server answers."""
    plain = [alone.decode(asked, i) for i in range(asked.body.get("n", 1))]
    choices = {i: Choice(p.text, list(p.names), p.reason) for i, p in enumerate(plain)}
    return Answer(choices, sum(len(p.tokens) for p in plain))


ASKED = Mixed(TEXTS, {**SAMPLING, "prompt": "abcabc", "logprobs": 0, "n": 2})
WRONG: dict[str, Callable[[Answer], object]] = {
    "a token": lambda a: a.choices[1].names.__setitem__(4, "?"),
    "the text": lambda a: setattr(a.choices[0], "text", "?"),
    "the reason of the end": lambda a: setattr(a.choices[0], "reason", "stop"),
    "number of tokens": lambda a: setattr(a, "tokens", 3),
    "an error": lambda a: setattr(a, "error", "429"),
    "choices: [0] of 2": lambda a: a.choices.pop(1),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_is_a_fault(alone: Alone, what: str) -> None:
    answer = answered(alone, ASKED)
    assert not differences(ASKED, answer, alone)
    WRONG[what](answer)
    [found] = differences(ASKED, answer, alone)
    assert found.what == what
    assert not found.near_tie
    if what == "a token":
        assert (found.choice, found.position, found.found) == (1, 4, "?")
        assert found.margin is not None
        assert found.margin.gap > 1e-3


def test_an_answer_that_ends_early_is_a_fault(alone: Alone) -> None:
    answer = answered(alone, ASKED)
    answer.choices[0].names.pop()
    [found] = differences(ASKED, answer, alone)
    assert (found.what, found.found, found.near_tie) == ("a token", None, False)
    answer = answered(alone, ASKED)
    answer.choices[0].names += "a"
    assert differences(ASKED, answer, alone)


def test_a_cancelled_answer_is_the_beginning_of_one(alone: Alone) -> None:
    asked = Mixed(TEXTS, {**SAMPLING, "prompt": "abc", "logprobs": 0, "stream": True}, 2)
    whole = answered(alone, asked).choices[0]
    cut = Answer({0: Choice(whole.text[:0], whole.names[:5])}, cancelled=True)
    assert not differences(asked, cut, alone)
    cut.choices[0].names[3] = "?"
    assert differences(asked, cut, alone)
    assert differences(asked, Answer({0: Choice("?")}, cancelled=True), alone)


def test_what_rounding_decides_is_a_near_tie(alone: Alone) -> None:
    """A bias makes two tokens equally likely."""
    body = {**SAMPLING, "temperature": 0, "top_p": 1.0, "prompt": "abcabc", "logprobs": 0}
    greedy = Mixed(TEXTS, body)
    plain = alone.decode(greedy, 0)
    name = next(each for each in "qz" if each != plain.names[0])
    [other] = tiny_tokenizer().encode(name)
    gap = alone.margin(plain, 0, name)
    assert gap is not None
    tied = Mixed(TEXTS, {**body, "logit_bias": {str(other): gap.gap}, "max_tokens": 1})
    told = [
        each
        for shown in (name, plain.names[0])
        for each in differences(tied, Answer({0: Choice(shown, [shown], "length")}, 1), alone)
    ]
    assert [each.near_tie for each in told] == [True], "one of the two is the plain one"
    assert differences(greedy, Answer({0: Choice(name, [name], "length")}, 1), alone)


def test_figures() -> None:
    requests = [Mixed(TEXTS, {**SAMPLING, "prompt": "a"}), Mixed(CHAT, {**SAMPLING, "n": 2}), ASKED]
    tie, fault = Difference(0, "a token", 1, "a", "b", Margin(0.0, 1.0)), Difference(1, "the text")
    found = figures(
        requests,
        Run([Answer(), Answer(error="429"), Answer(cancelled=True)], 3, 0, STATS),
        [[tie], [tie, fault], []],
        5,
    )
    assert [found[name] for name in ("equal", "near_ties", "faults")] == [1, 1, 1]
    assert [found[name] for name in ("finished", "errors", "cancelled")] == [1, 1, 1]
    assert found["kinds"]["two_choices"] == {
        "requests": 2,
        "equal": 1,
        "near_ties": 0,
        "faults": 1,
    }
    [told] = found["first_faults"]
    assert (told["request"], told["choice"], told["what"]) == (1, 1, "the text")


STATS = dict.fromkeys(
    (
        *("method", "request_steps", "committed_tokens", "accepted_draft_tokens", "sources"),
        "prefix_hits",
    )
)


def test_the_client_goes_away_in_the_middle_and_tells_errors() -> None:
    chunks = [
        {"choices": [{"index": 0, "text": text, "logprobs": {"tokens": [text]}}]}
        for text in "abcdef"
    ]
    lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)

    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.path == TEXTS:
            return httpx.Response(200, text=lines + "data: [DONE]\n\n", request=request)
        return httpx.Response(429, json={"error": {"message": "busy"}}, request=request)

    async def asked(path: str, after: int) -> Answer:
        transport = httpx.MockTransport(serve)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await ask(client, Mixed(path, {"stream": True}, after))

    cut = asyncio.run(asked(TEXTS, 3))
    assert (cut.cancelled, cut.choices[0].text, cut.choices[0].names) == (True, "abc", [*"abc"])
    whole = asyncio.run(asked(TEXTS, 0))
    assert (whole.cancelled, whole.choices[0].text) == (False, "abcdef")
    assert "busy" in asyncio.run(asked(CHAT, 0)).error


class Reseeded(Engine):
    """Wrong: samples with another seed."""

    def add(self, request: Request) -> int:
        sampling = replace(request.sampling, seed=(request.sampling.seed + 1) % 2**64)
        return super().add(replace(request, sampling=sampling))


@cache
def embedded() -> models.Loaded:
    return models.load("embedded")


def run(engine: Engine, count: int) -> Any:
    """What the script prints of a server of the embedded model."""
    with running(engine, eos=embedded().eos) as server:
        done = CliRunner().invoke(main, [server.root, "--requests", str(count)])
        assert done.exit_code == 0, done.output
        assert server.idle()
    return json.loads(done.stdout)


@pytest.mark.slow
def test_forty_requests_to_the_embedded_model_have_the_tokens_of_each_alone() -> None:
    loaded = embedded()
    engine = Engine(loaded.model, "auto", loaded.tokenizer, max_batch=12, prefix_cache="50MB")
    found = run(engine, 40)
    assert found["faults"] == found["errors"] == 0, found["first_faults"]
    assert found["equal"] + found["near_ties"] == 40
    assert found["near_ties"] <= 1
    assert found["cancelled"] >= 2
    assert found["held_in_the_end"] == 0
    assert all(counts["requests"] for counts in found["kinds"].values()), found["kinds"]
    assert found["most_at_once"] > 4
    assert found["server"]["accepted_draft_tokens"] > 100


@pytest.mark.slow
def test_a_server_that_samples_with_another_seed_is_found_out() -> None:
    loaded = embedded()
    found = run(Reseeded(loaded.model, "auto", loaded.tokenizer, max_batch=12), 16)
    sampled, greedy = found["kinds"]["sampled"], found["kinds"]["greedy"]
    assert sampled["faults"] > sampled["requests"] / 2
    assert greedy["faults"] == 0
    assert greedy["equal"] > 2
    assert found["first_faults"][0]["what"] == "a token"
    assert found["first_faults"][0]["gap"] > found["first_faults"][0]["bound"]

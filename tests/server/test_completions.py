"""``/v1/completions`` as OpenAI's client sees it: the tokens are those of plain decoding."""

from typing import Any

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.sampling.params import SamplingParams
from tests.factories.running_server import EOS, Running

PROMPT = "abcabcabcabcabc"
SAMPLED: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "seed": 11}


def alone(plain: Engine, prompt: str, tokens: int, **sampling: Any) -> Completion:
    """A request decoded plainly, with nothing beside it."""
    [found] = plain.generate([Request(prompt, tokens, SamplingParams(**sampling), eos=EOS)])
    return found


def test_greedy_text_usage_and_finish_reason(server: Running, plain: Engine) -> None:
    found = server.client().completions.create(
        model="tiny", prompt=PROMPT, max_tokens=40, temperature=0
    )
    expected = alone(plain, PROMPT, 40)
    assert found.object == "text_completion"
    assert found.id.startswith("cmpl-")
    assert found.choices[0].text == expected.text
    assert found.choices[0].finish_reason == "length"
    assert found.usage is not None
    usage = found.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (15, 40, 55)


def test_choices_are_sampled_with_consecutive_seeds(server: Running, plain: Engine) -> None:
    found = server.client().completions.create(
        model="tiny", prompt=PROMPT, max_tokens=24, n=3, **SAMPLED
    )
    expected = [alone(plain, PROMPT, 24, **{**SAMPLED, "seed": 11 + i}).text for i in range(3)]
    assert [choice.text for choice in found.choices] == expected
    assert len(set(expected)) == 3
    assert found.usage is not None
    assert found.usage.prompt_tokens == 15


def test_the_choices_of_a_prompt_compute_it_once(server: Running) -> None:
    engine = server.service.thread.engine
    before = engine.prefix_tokens
    body = {"prompt": "abcabcabc" * 20, "n": 3, "max_tokens": 4}
    assert server.post("/v1/completions", body).is_success
    after = engine.prefix_tokens
    assert [new - old for new, old in zip(after, before, strict=True)] == [3 * 180, 2 * 180]


def test_without_a_seed_answers_differ(server: Running) -> None:
    create = server.client().completions.create
    texts = {create(model="tiny", prompt=PROMPT, max_tokens=30).choices[0].text for _ in range(3)}
    assert len(texts) == 3, "temperature is 1 by default, and each request has a seed of its own"


def test_prompts_in_all_forms(server: Running, plain: Engine) -> None:
    ids = server.post("/tokenize", {"prompt": PROMPT}).json()["tokens"]
    expected = alone(plain, PROMPT, 8).text
    other = alone(plain, "hello", 8).text
    create = server.client().completions.create
    for prompt in (PROMPT, [PROMPT], ids, [ids]):
        found = create(model="tiny", prompt=prompt, max_tokens=8, temperature=0)
        assert [choice.text for choice in found.choices] == [expected]
    found = create(model="tiny", prompt=[PROMPT, "hello"], max_tokens=8, n=2, temperature=0)
    assert [choice.text for choice in found.choices] == [expected, expected, other, other]
    assert found.usage is not None
    assert found.usage.prompt_tokens == 15 + 5


def test_echo_begins_with_the_prompt(server: Running, plain: Engine) -> None:
    expected = PROMPT + alone(plain, PROMPT, 8).text
    create = server.client().completions.create
    ids = server.post("/tokenize", {"prompt": PROMPT}).json()["tokens"]
    for prompt in (PROMPT, ids):
        found = create(model="tiny", prompt=prompt, max_tokens=8, temperature=0, echo=True)
        assert found.choices[0].text == expected
    chunks = create(
        model="tiny", prompt=PROMPT, max_tokens=8, temperature=0, echo=True, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected


def test_sixteen_tokens_by_default(server: Running) -> None:
    found = server.client().completions.create(model="tiny", prompt=PROMPT, temperature=0)
    assert found.usage is not None
    assert found.usage.completion_tokens == 16


def test_a_stop_string_ends_the_text_and_is_not_in_it(server: Running, plain: Engine) -> None:
    whole = alone(plain, PROMPT, 40).text
    stop = next(whole[i : i + 2] for i in range(8, 40) if whole.find(whole[i : i + 2]) == i)
    found = server.client().completions.create(
        model="tiny", prompt=PROMPT, max_tokens=40, temperature=0, stop=[stop, "never there"]
    )
    assert found.choices[0].text == whole[: whole.index(stop)]
    assert found.choices[0].finish_reason == "stop"


def test_end_tokens(server: Running, plain: Engine) -> None:
    tokens = alone(plain, PROMPT, 40).tokens
    end = next(token for i, token in enumerate(tokens) if i > 5 and token not in tokens[:i])
    place = tokens.index(end)
    ask = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "stop_token_ids": [end]}
    found = server.post("/v1/completions", ask).json()
    [choice] = found["choices"]
    assert found["usage"]["completion_tokens"] == place + 1
    assert choice["finish_reason"] == "stop"
    before = server.post("/v1/completions", ask | {"stop_token_ids": [], "max_tokens": place})
    assert choice["text"] == before.json()["choices"][0]["text"], "the end is not in the text"
    found = server.post("/v1/completions", ask | {"min_tokens": place + 3}).json()
    assert found["usage"]["completion_tokens"] > place + 3


def test_a_penalty_and_a_bias_change_the_text(server: Running, plain: Engine) -> None:
    for field, value in (
        ("repetition_penalty", 1.8),
        ("presence_penalty", 1.5),
        ("frequency_penalty", 1.5),
        ("logit_bias", {97: 90.0}),
    ):
        body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, field: value}
        text = server.post("/v1/completions", body).json()["choices"][0]["text"]
        assert text == alone(plain, PROMPT, 20, **{field: value}).text
        assert text != alone(plain, PROMPT, 20).text


@pytest.mark.parametrize("field", ["top_k", "min_p"])
def test_filters(server: Running, plain: Engine, field: str) -> None:
    value = {"top_k": 3, "min_p": 0.3}[field]
    sampling = {"temperature": 1.2, "seed": 5, field: value}
    body = {"prompt": PROMPT, "max_tokens": 20, **sampling}
    text = server.post("/v1/completions", body).json()["choices"][0]["text"]
    assert text == alone(plain, PROMPT, 20, **sampling).text
    off = {**body, field: {"top_k": -1, "min_p": 0}[field]}
    assert server.post("/v1/completions", off).json()["choices"][0]["text"] != text


def test_logprobs_have_a_column_for_each_token(server: Running, plain: Engine) -> None:
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 2}
    [choice] = server.post("/v1/completions", body).json()["choices"]
    found = choice["logprobs"]
    [expected] = plain.generate([Request(PROMPT, 12, eos=EOS, logprobs=2)])
    assert found["token_logprobs"] == pytest.approx(
        [each.logprob for each in expected.logprobs], abs=1e-4
    )
    assert len(found["tokens"]) == len(found["text_offset"]) == 12
    for tops, own, logprob in zip(
        found["top_logprobs"], found["tokens"], found["token_logprobs"], strict=True
    ):
        assert len(tops) == 2
        assert max(tops.values()) == tops[own] == logprob
    streamed = server.client().completions.create(
        model="tiny", prompt=PROMPT, max_tokens=12, temperature=0, logprobs=2, stream=True
    )
    parts = [chunk.choices[0].logprobs for chunk in streamed if chunk.choices[0].logprobs]
    assert [t for part in parts for t in part.tokens or ()] == found["tokens"]
    assert [o for part in parts for o in part.text_offset or ()] == found["text_offset"]
    zero = server.post("/v1/completions", body | {"logprobs": 0}).json()["choices"][0]
    assert zero["logprobs"]["top_logprobs"] is None


def test_statistics_of_drafting(server: Running) -> None:
    body = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0}
    found = server.post("/v1/completions", body).json()
    stats = found["choices"][0]["speculative_decoding_stats"]
    assert found["metrics"] == {"speculative_decoding": stats}
    histogram = stats["acceptance_histogram"]
    assert sum(histogram) == stats["num_spec_steps"]
    accepted = sum(j * steps for j, steps in enumerate(histogram))
    assert accepted == stats["num_accepted_draft_tokens"] == sum(stats["sources"].values()) > 0
    assert stats["mean_acceptance_length"] == pytest.approx(59 / stats["num_spec_steps"])
    assert stats["num_spec_tokens"] == 12
    assert stats["draft_acceptance_rate"] == pytest.approx(accepted / stats["num_draft_tokens"])
    plainly = server.post("/v1/completions", body | {"speculate": False}).json()["choices"][0]
    assert plainly["text"] == found["choices"][0]["text"]
    assert plainly["speculative_decoding_stats"]["num_spec_steps"] == 59
    assert plainly["speculative_decoding_stats"]["num_draft_tokens"] == 0

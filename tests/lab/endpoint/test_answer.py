"""Answers in all forms that servers write."""

from typing import Any

import pytest

from draftwood.lab.endpoint.answer import MalformedError, answer_of, spelt, streamed

COLUMNS: dict[str, Any] = {
    "choices": [
        {
            "index": 0,
            "text": " the é",
            "finish_reason": "length",
            "logprobs": {
                "tokens": [" the", " ", "bytes:\\xc3", "bytes:\\xa9"],
                "token_logprobs": [-0.5, -1.0, -0.1, 0.0],
                "top_logprobs": [{" the": -0.5, " a": -1.5}, None, None, None],
                "text_offset": None,
            },
        }
    ],
    "usage": {"completion_tokens": 4},
}


def test_columns() -> None:
    answer = answer_of(COLUMNS)
    assert (answer.first.text, answer.first.reason, answer.generated) == (" the é", "length", 4)
    tokens = answer.first.tokens
    assert [token.start for token in tokens] == [0, 4, 5, 5]
    assert tokens[0].top == ((" the", -0.5), (" a", -1.5))
    assert not tokens[0].ordered
    assert answer.drafted is None


def test_offsets_of_a_server_begin_anywhere() -> None:
    choice = COLUMNS["choices"][0]
    logprobs = choice["logprobs"] | {"text_offset": [15, 19, 20, 20]}
    [token, *_] = answer_of({"choices": [choice | {"logprobs": logprobs}]}).first.tokens
    assert token.start == 0
    *_, token = answer_of({"choices": [choice | {"logprobs": logprobs}]}).first.tokens
    assert token.start == 5


def test_a_chat_and_entries() -> None:
    entries = [
        {
            "token": " é",
            "logprob": -0.3,
            "bytes": list(" é".encode()),
            "top_logprobs": [{"token": " é", "logprob": -0.3}, {"token": "x", "logprob": -2.0}],
        },
        {"token": "!", "logprob": -0.2, "bytes": None, "top_logprobs": []},
    ]
    message = {"role": "assistant", "content": " é!", "reasoning_content": "hm"}
    stats = {"num_draft_tokens": 9, "num_accepted_draft_tokens": 4}
    choice = {
        "message": message,
        "logprobs": {"content": entries},
        "speculative_decoding_stats": stats,
    }
    answer = answer_of({"choices": [choice]})
    assert answer.first.text == "hm é!"
    assert [token.start for token in answer.first.tokens] == [0, 2]
    assert answer.first.tokens[0].ordered
    assert (answer.drafted, answer.accepted) == (9, 4)
    timings = {"draft_n": 7, "draft_n_accepted": 3}
    found = answer_of({"choices": [{"text": "x"}], "timings": timings})
    assert (found.drafted, found.accepted) == (7, 3)


def test_choices_are_sorted_by_index() -> None:
    answer = answer_of({"choices": [{"index": 1, "text": "b"}, {"index": 0, "text": "a"}]})
    assert answer.indices == (0, 1)
    assert [choice.text for choice in answer.choices] == ["a", "b"]


def test_log_probabilities_that_are_missing_are_none() -> None:
    logprobs = {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": None}
    assert answer_of({"choices": [{"text": "a", "logprobs": logprobs}]}).first.tokens == ()
    assert answer_of({"choices": [{"text": "a", "logprobs": None}]}).first.tokens == ()


@pytest.mark.parametrize("body", [[], {}, {"choices": []}, {"choices": [3]}, "no", None])
def test_what_is_no_answer(body: Any) -> None:
    with pytest.raises(MalformedError):
        answer_of(body)


def test_a_stream() -> None:
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": "one "}}]},
        {"choices": [{"delta": {"content": "two"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"completion_tokens": 2}},
    ]
    answer = streamed(chunks)
    assert (answer.first.text, answer.first.reason, answer.generated) == ("one two", "stop", 2)
    with pytest.raises(MalformedError, match="out of memory"):
        streamed([*chunks, {"error": {"message": "out of memory"}}])


def test_bytes_of_tokens() -> None:
    assert spelt("bytes:\\xe2\\x80") == b"\xe2\x80"
    assert spelt("bytes:") == b"bytes:"
    assert spelt("é") == "é".encode()

"""The latency of an engine that serves: what is measured, by what the engine is asked."""

import draftwood
from draftwood import Engine
from runs.while_serving import chat, joining


def test_a_long_prompt_and_a_chat() -> None:
    loaded = draftwood.load("embedded")
    ids = [7 + i * i % 90 for i in range(900)]
    engine = Engine(loaded.model, "goose", loaded.tokenizer, prefix_cache="10MB")
    found = joining(engine, ids, 700, 2)
    assert not engine.busy
    assert found["joining"]["steps"] == 14 + 4, "636 new tokens in pieces of 48, and four steps"
    assert 0 < found["usual"]["median"] <= found["usual"]["most"]
    assert found["first_token"] > 0 < found["alone"]
    turns = chat(engine, ids, 3, 40)
    assert [turn["prompt"] for turn in turns] == [40, 112, 184]
    assert [turn["new"] for turn in turns] == [40, 41, 41]
    assert all(turn["milliseconds"] > 0 for turn in turns)
    # The long prompts share their first tokens with nothing else; the chat's turns do.
    assert engine.prefix_tokens[1] >= 71 + 143

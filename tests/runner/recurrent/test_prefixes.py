"""Prompts that begin like earlier texts, on models with recurrent layers: states are kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from draftwood import Engine, Request
from draftwood.engine.engine import _MARGIN
from draftwood.engine.memory import MemoryLimit, Size
from draftwood.engine.request import Finished
from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.recurrent import states
from draftwood.runner.recurrent.states import RecurrentStates
from draftwood.runner.runner import Runner
from tests.factories.hybrid_families import HYBRIDS, VOCAB
from tests.factories.path_logits import random_prompts

pytestmark = pytest.mark.skipif(
    not {"qwen3_5_text", "kimi_linear", "lfm3"} <= HYBRIDS.keys(),
    reason="this version of transformers lacks some of the models",
)

FEW = ("qwen3_5_text", "kimi_linear", "granitemoehybrid", "jamba", "lfm3")
NEW = 12
"""Tokens of an answer."""


def attached(name: str, **settings: Any) -> Runner:
    return attach(HYBRIDS[name](), self_test=False, **settings)


def texts(seed: int, *lengths: int) -> list[list[int]]:
    return random_prompts(np.random.default_rng(seed), lengths, VOCAB)


def answer(engine: Engine, prompt: Sequence[int]) -> list[int]:
    return list(engine.generate([Request(list(prompt), max_new_tokens=NEW, eos=())])[0].tokens)


def taken(engine: Engine) -> int:
    return engine.prefix_tokens[1]


@pytest.mark.parametrize("method", ["ar", "goose:budget=8"])
@pytest.mark.parametrize("name", FEW)
def test_the_next_turn_continues_the_states_of_the_last(name: str, method: str) -> None:
    runner = attached(name)
    plain, engine = Engine(runner, method), Engine(runner, method, prefix_cache="10MB")
    prompt, question = texts(0, 40, 7)
    first = answer(engine, prompt)
    assert first == answer(plain, prompt)
    assert taken(engine) == 0
    # The next turn: all that was cached, the answer's last token not, or those behind its end too.
    second = prompt + first + question
    assert answer(engine, second) == answer(plain, second)
    known = taken(engine)
    assert known in (len(prompt) - 1, len(prompt) + len(first) - 1)
    # Another answer to the first prompt, but for its last token, which gives the logits.
    assert answer(engine, prompt) == first
    assert taken(engine) - known == len(prompt) - 1
    # And the third turn.
    third = second + answer(plain, second) + question
    before = taken(engine)
    assert answer(engine, third) == answer(plain, third)
    assert taken(engine) - before >= len(second) - 1
    runner.detach()


def test_the_states_that_are_restored_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    runner = attached("qwen3_5_text")
    engine = Engine(runner, "ar", prefix_cache="10MB")
    [prompt] = texts(0, 40)
    first = answer(engine, prompt)
    assert answer(engine, prompt) == first
    monkeypatch.setattr(RecurrentStates, "restore", lambda *_: None)
    assert answer(engine, prompt) != first
    assert taken(engine) == 2 * (len(prompt) - 1)
    runner.detach()


def test_several_answers_to_one_prompt_share_it() -> None:
    runner = attached("granitemoehybrid")
    [prompt] = texts(1, 50)
    requests = [Request(prompt, max_new_tokens=NEW, eos=()) for _ in range(3)]
    engine = Engine(runner, "ar", prefix_cache="10MB")
    found = {done.tokens for done in engine.generate(requests)}
    assert found == {tuple(answer(Engine(runner, "ar"), prompt))}
    assert taken(engine) == 2 * (len(prompt) - 1)
    runner.detach()


def test_prompts_that_part_before_a_known_state_share_nothing_and_do_not_wait() -> None:
    runner = attached("lfm3")
    start, one, other = texts(2, 30, 9, 9)
    engine = Engine(runner, "ar", prefix_cache="10MB")
    requests = [Request(start + end, max_new_tokens=NEW, eos=()) for end in (one, other)]
    for request in requests:
        engine.add(request)
    engine.step()
    assert engine.running == 2
    found: dict[int, tuple[int, ...]] = {}
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Finished):
                found[event.request_id] = event.completion.tokens
    plain = Engine(runner, "ar")
    assert list(found[0]) == answer(plain, start + one)
    assert list(found[1]) == answer(plain, start + other)
    assert taken(engine) == 0
    runner.detach()


def test_states_are_kept_within_long_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_EVERY", 32)
    runner = attached("qwen3_5_text", chunk=16)
    start, one, other = texts(3, 70, 40, 20)
    plain, engine = Engine(runner, "ar"), Engine(runner, "ar", prefix_cache="10MB")
    answer(engine, start + one)
    assert answer(engine, start + other) == answer(plain, start + other)
    # Behind 32, 64, 96 and 109 tokens.
    assert taken(engine) == 64
    runner.detach()


def test_few_states_are_kept_of_a_text_and_they_lie_apart() -> None:
    kept = RecurrentStates(torch.device("cpu"))
    kept.cached(0, 5000)
    assert not kept.saved(0, 9000, 9000 - 1), "nobody asked for them"
    kept.remembers = True
    for length in range(512, 16 * 1024 + 1, 512):
        kept.cached(0, length)
    kept.cached(0, length + 7, ended=True)
    lengths = sorted(kept.saved(0, 1 << 20, 0))
    assert len(lengths) == states._MOST
    assert lengths[-1] == length + 7
    assert np.diff([0, *lengths]).max() <= length // 2
    # Those of a longer text are no beginning of a shorter one.
    assert max(kept.saved(0, lengths[1], 0)) == lengths[1]
    kept.release(0)
    assert not kept.saved(0, 1 << 20, 0)


def test_saved_tokens_know_where_a_slot_can_begin() -> None:
    runner = attached("lfm2")
    assert runner.remember() == states._MOST * runner.info.slot_bytes
    [text] = texts(4, 24)
    slot, other = runner.open(40), runner.open(40)
    needs = Needs()
    runner.prefill_piece([slot], [text[:-1]], needs, [24])
    runner.prefill_piece([slot], [text[-1:]], needs, [24])
    saved = runner.saved(slot, 24)
    assert saved is not None
    assert [saved.restorable(n) for n in (30, 24, 23, 22)] == [24, 24, 23, 0]
    assert saved.bytes == sum(each.nbytes for each in saved.tensors) + 2 * runner.info.slot_bytes
    assert runner.saved(slot, 22) is None
    runner.restore(other, saved, 23)
    [wanted], [found] = (runner.prefill([each], [[5]], needs) for each in (slot, other))
    assert not torch.equal(wanted.logits, found.logits)
    runner.restore(runner.open(40), saved, 24)
    runner.detach()


def test_the_memory_of_kept_states_is_counted() -> None:
    runner = attached("qwen3_5_text")
    entries = MemoryLimit(None, 1, 1, 1 + _MARGIN)._entries(Size(3, 4))
    room = runner.info.slot_bytes + entries * runner.info.token_bytes
    request = Request([5, 6, 7], max_new_tokens=4, eos=())
    Engine(runner, "ar", memory=room).add(request)
    with pytest.raises(DraftwoodError, match="ask for fewer tokens"):
        Engine(runner, "ar", memory=room, prefix_cache="10MB").add(request)
    room += states._MOST * runner.info.slot_bytes
    Engine(runner, "ar", memory=room, prefix_cache="10MB").add(request)
    runner.detach()

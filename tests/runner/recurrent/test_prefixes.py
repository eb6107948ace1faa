"""Prompts that begin like earlier texts, on models with recurrent layers: states are kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from draftwood import Engine, Request, SamplingParams, method
from draftwood.engine.prefix_cache import SHORTEST
from draftwood.engine.request import Finished
from draftwood.protocols import Needs
from draftwood.runner import prefill
from draftwood.runner.attach import attach
from draftwood.runner.recurrent import states
from draftwood.runner.recurrent.states import TAIL, RecurrentStates
from draftwood.runner.runner import Runner
from tests.factories.hybrid_families import FEW, HYBRIDS, VOCAB
from tests.factories.path_logits import random_prompts

NEW = 12
"""Tokens of an answer."""


def attached(name: str, **settings: Any) -> Runner:
    return attach(HYBRIDS[name](), self_test=False, **settings)


def with_small_steps(name: str) -> Runner:
    """A model whose prompts have larger time steps than its answers."""
    model = HYBRIDS[name]()
    for key, value in model.state_dict().items():
        if key.endswith("dt_bias"):
            value.fill_(-8.0)
    return attach(model, self_test=False)


def texts(seed: int, *lengths: int) -> list[list[int]]:
    return random_prompts(np.random.default_rng(seed), lengths, VOCAB)


def answer(engine: Engine, prompt: Sequence[int]) -> list[int]:
    return list(engine.generate([Request(list(prompt), max_new_tokens=NEW, eos=())])[0].tokens)


def taken(engine: Engine) -> int:
    return engine.prefix_tokens[1]


@pytest.mark.parametrize("drafted_by", ["ar", "goose:budget=8"])
@pytest.mark.parametrize("name", FEW)
def test_the_next_turn_continues_the_states_of_the_last(name: str, drafted_by: str) -> None:
    runner = attached(name)
    plain, engine = Engine(runner, drafted_by), Engine(runner, drafted_by, prefix_cache="10MB")
    prompt, question = texts(0, 40, 7)
    first = answer(engine, prompt)
    assert first == answer(plain, prompt)
    assert taken(engine) == 0
    # The next turn: all that was cached, the answer's last token not, or those behind its end too.
    second = prompt + first + question
    assert answer(engine, second) == answer(plain, second)
    known = taken(engine)
    assert known in (len(prompt) - TAIL, len(prompt) + len(first) - 1)
    # Another answer to the first prompt, but for its end.
    assert answer(engine, prompt) == first
    assert taken(engine) - known == len(prompt) - TAIL
    # And the third turn.
    third = second + answer(plain, second) + question
    before = taken(engine)
    assert answer(engine, third) == answer(plain, third)
    assert taken(engine) - before >= len(second) - TAIL
    runner.detach()


@pytest.mark.parametrize("name", ["zamba2", "nemotron_h"])
def test_answers_are_read_again_where_prompts_leave_other_states(name: str) -> None:
    """Their prompts have time steps of a least size, and their answers have not."""
    runner = with_small_steps(name)
    for seed in range(3):
        plain, engine = Engine(runner, "ar"), Engine(runner, "goose:budget=8", prefix_cache="10MB")
        prompt, question = texts(seed, 40, 7)
        second = prompt + answer(engine, prompt) + question
        assert answer(engine, second) == answer(plain, second)
        # What its prompts have left behind is known.
        assert taken(engine) == len(prompt) - TAIL
        assert answer(engine, second + question) == answer(plain, second + question)
        assert taken(engine) == len(prompt) - TAIL + len(second) - TAIL
    runner.detach()


def test_states_of_answers_would_be_wrong_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    runner = with_small_steps("zamba2")
    monkeypatch.setattr(RecurrentStates, "_is_prompt", lambda self, slot, n, cached: n == cached)
    differ = []
    for seed in range(3):
        plain, engine = Engine(runner, "ar"), Engine(runner, "ar", prefix_cache="10MB")
        prompt, question = texts(seed, 40, 7)
        second = prompt + answer(engine, prompt) + question
        differ.append(answer(engine, second) != answer(plain, second))
    assert any(differ)
    runner.detach()


def test_an_answer_that_ends_within_a_path_is_continued() -> None:
    """Nodes that were accepted behind its end token leave no states."""
    runner = attached("qwen3_5_text")
    plain = Engine(runner, "ar")
    prompt, question = texts(0, 40, 7)
    whole = answer(plain, prompt)
    end = next(token for i, token in enumerate(whole) if i >= 2 and token not in whole[:i])
    drafts = method("sd:budget=9", draft=HYBRIDS["qwen3_5_text"]())  # all of them are right
    engine = Engine(runner, drafts, prefix_cache="10MB")
    [first] = engine.generate([Request(prompt, max_new_tokens=NEW, eos=(end,))])
    assert first.reason == "eos"
    assert first.tokens == tuple(whole[: whole.index(end) + 1])
    assert first.tally.accepted > len(first.tokens)
    second = [*prompt, *first.tokens, *question]
    assert answer(engine, second) == answer(plain, second)
    assert taken(engine) == len(prompt) + len(first.tokens)
    runner.detach()


@pytest.mark.parametrize("cache", [None, "10MB"])
@pytest.mark.parametrize("name", FEW)
def test_answers_to_one_prompt_begin_with_its_states(name: str, cache: str | None) -> None:
    runner = attached(name)
    engine = Engine(runner, "goose:budget=8", prefix_cache=cache)
    [prompt] = texts(0, 40)
    requests = [
        Request(prompt, NEW, SamplingParams(float(seed > 0), seed=seed), eos=())
        for seed in range(3)
    ]
    found = engine.generate(requests)
    assert taken(engine) == 2 * len(prompt)
    alone = [Engine(runner, "ar").generate([each])[0] for each in requests]
    assert [each.tokens for each in found] == [each.tokens for each in alone]
    if cache is None:
        assert runner.recurrent is not None
        assert not runner.recurrent._snapshots
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
    assert taken(engine) == 2 * (len(prompt) - TAIL)
    runner.detach()


def test_a_state_that_cannot_be_kept_ends_no_prompt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory for a snapshot")

    runner = attached("qwen3_5_text")
    engine, plain = Engine(runner, "goose:budget=8", prefix_cache="10MB"), Engine(runner, "ar")
    monkeypatch.setattr(RecurrentStates, "_snapshot", full)
    prompt, other = texts(0, 40, 30)
    assert answer(engine, prompt) == answer(plain, prompt)
    assert "no memory for a snapshot" in caplog.text
    assert answer(engine, [*prompt, *other]) == answer(plain, [*prompt, *other])
    assert taken(engine) == 0
    runner.detach()


def test_the_newest_states_of_a_long_text_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all of them take more than there may be."""
    monkeypatch.setattr(states, "_EVERY", 32)
    runner = attached("qwen3_5_text", chunk=32)
    [prompt] = texts(0, 130)
    whole = (len(prompt) + NEW) * (8 + runner.info.token_bytes)
    engine = Engine(runner, "ar", prefix_cache=whole + 2 * runner.info.slot_bytes)
    first = answer(engine, prompt)
    assert answer(engine, [*prompt, *first]) == answer(Engine(runner, "ar"), [*prompt, *first])
    assert taken(engine) == len(prompt) + NEW - 1
    runner.detach()


def test_several_answers_to_one_prompt_share_it() -> None:
    runner = attached("granitemoehybrid")
    [prompt] = texts(1, 50)
    requests = [Request(prompt, max_new_tokens=NEW, eos=()) for _ in range(3)]
    engine = Engine(runner, "ar", prefix_cache="10MB")
    found = {done.tokens for done in engine.generate(requests)}
    assert found == {tuple(answer(Engine(runner, "ar"), prompt))}
    assert taken(engine) == 2 * len(prompt)
    runner.detach()


def test_answers_whose_states_cannot_be_copied_compute_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory for a snapshot")

    runner = attached("granitemoehybrid")
    [prompt] = texts(1, 50)
    alone = answer(Engine(runner, "ar"), prompt)
    monkeypatch.setattr(RecurrentStates, "_snapshot", full)
    requests = [Request(prompt, max_new_tokens=NEW, eos=()) for _ in range(3)]
    engine = Engine(runner, "ar")
    assert {done.tokens for done in engine.generate(requests)} == {tuple(alone)}
    assert taken(engine) == 0
    runner.detach()


def test_prompts_that_part_before_a_known_state_share_nothing_and_do_not_wait() -> None:
    runner = attached(FEW[-1])
    start, one, other = texts(2, 30, 29, 29)
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


@pytest.mark.parametrize("chunk", [16, None])
def test_states_are_kept_within_long_prompts(
    chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_EVERY", 32)
    monkeypatch.setattr(prefill, "CHUNK", 16)
    runner = attached("qwen3_5_text", chunk=chunk)
    start, one, other = texts(3, 70, 40, 20)
    plain, engine = Engine(runner, "ar"), Engine(runner, "ar", prefix_cache="10MB")
    answer(engine, start + one)
    assert answer(engine, start + other) == answer(plain, start + other)
    # Behind 32, 64 and 94 tokens.
    assert taken(engine) == 64
    runner.detach()


def test_a_short_text_stays_where_a_longer_one_forgot_its_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "_EVERY", 32)
    runner = attached("qwen3_5_text", chunk=16)
    plain, engine = Engine(runner, "ar"), Engine(runner, "ar", prefix_cache="10MB")
    prompt, question = texts(5, 40, 30)
    chat = prompt + answer(engine, prompt)
    for _ in range(5):
        chat += question
        chat += answer(engine, chat)
    before = taken(engine)
    assert answer(engine, prompt) == answer(plain, prompt)
    assert taken(engine) - before == len(prompt) - TAIL
    runner.detach()


def test_a_prompt_does_not_wait_for_a_few_tokens() -> None:
    runner = attached("lfm2")
    engine = Engine(runner, "ar", prefix_cache="10MB")
    [prompt] = texts(6, TAIL + SHORTEST - 1)
    for ids in (prompt, prompt[:-1]):
        engine.add(Request(ids, max_new_tokens=4, eos=()))
    engine.step()
    assert engine.running == 2
    while engine.busy:
        engine.step()
    assert taken(engine) == 0
    runner.detach()


def test_texts_that_give_nothing_are_not_refreshed() -> None:
    runner = attached("lfm2")
    engine = Engine(runner, "ar", prefix_cache="10MB")
    start, *ends = texts(7, 20, 9, 9, 9)
    for end in ends[:2]:
        answer(engine, start + end)
    assert engine._prefixes is not None
    order = [*engine._prefixes._cache._kept]
    answer(engine, start + ends[2])
    assert [*engine._prefixes._cache._kept] == [*order, 2]
    assert engine._prefixes._cache.longest(start + ends[2][:3], "") == (None, 0)
    runner.detach()


def test_only_engines_that_keep_texts_keep_states() -> None:
    runner = attached("lfm2")
    engine, other = Engine(runner, "ar", prefix_cache="10MB"), Engine(runner, "ar")
    assert runner.recurrent is not None
    [prompt] = texts(8, 40)
    for each, kept in ((other, []), (engine, [40 - TAIL])):
        each.add(Request(prompt, max_new_tokens=4, eos=()))
        while not any(s.tokens for s in each._active.values()):
            each.step()
        [slot] = (s.slot for s in each._active.values())
        assert sorted(runner.recurrent._snapshots.get(slot, {})) == kept
        while each.busy:
            each.step()
    assert not runner.recurrent._snapshots
    # The memory that they take is known when none of it is held, too.
    runner.trim()
    again = Engine(runner, "ar", prefix_cache="10MB")
    answer(again, prompt)
    answer(again, prompt)
    assert taken(again) == len(prompt) - TAIL
    runner.detach()


def test_a_slot_that_is_released_keeps_no_states_of_its_text() -> None:
    runner = attached("lfm2")
    assert runner.recurrent is not None
    slot = runner.open(40)
    runner.remember(slot)
    [text] = texts(9, 20)
    runner.prefill_piece([slot], [text[:-TAIL]], Needs(), [20])
    assert runner.recurrent._snapshots[slot]
    runner.release(slot)
    assert slot not in runner.recurrent._snapshots
    assert not runner.savable(runner.open(40), 20)
    runner.detach()


def test_few_states_are_kept_of_a_text_and_they_lie_apart() -> None:
    kept = RecurrentStates(torch.device("cpu"))
    kept.cached(0, 5000)
    assert not kept.savable(0, 9000, 9000 - 1), "nobody asked for them"
    kept.remember(0)
    for length in range(512, 16 * 1024 + 1, 512):
        kept.cached(0, length)
    kept.cached(0, length + 7, ended=True)
    whole = length + 20
    for lengths in (sorted(kept.saved(0, whole, 0)), sorted(kept.saved(0, whole, whole))):
        assert len(lengths) == states.MOST_SNAPSHOTS
        assert np.diff([0, *lengths]).max() <= length // 2
    assert lengths[-1] == kept.savable(0, whole, whole) == whole
    assert kept.savable(0, whole, whole + 1) == length + 7
    # Those of a longer text are no beginning of a shorter one.
    lengths = sorted(kept.saved(0, whole, 0))
    assert max(kept.saved(0, lengths[1], 0)) == kept.savable(0, lengths[1], 0) == lengths[1]
    kept.release(0)
    assert not kept.savable(0, 1 << 20, 0)


def test_saved_tokens_know_where_a_slot_can_begin() -> None:
    runner = attached("lfm2")
    assert runner.remembered_bytes == states.MOST_SNAPSHOTS * runner.info.slot_bytes
    [text] = texts(4, 24)
    slot, other, third, fourth = (runner.open(40) for _ in range(4))
    needs = Needs()
    runner.remember(slot)
    runner.prefill_piece([slot], [text[:-TAIL]], needs, [24])
    runner.prefill_piece([slot], [text[-TAIL:]], needs, [24])
    assert [runner.savable(slot, n) for n in (24, 23, 8, 7)] == [24, 8, 8, 0]
    saved = runner.saved(slot, 24)
    assert [saved.restorable(n) for n in (30, 24, 23, 7)] == [24, 24, 8, 0]
    assert saved.bytes == sum(each.nbytes for each in saved.tensors) + 2 * runner.info.slot_bytes
    runner.restore(other, saved, 8)
    runner.restore(third, saved, 24)
    runner.lend(slot, fourth, 24)
    first, shorter, same, lent = (
        runner.prefill([each], [[5]], needs)[0].logits for each in (slot, other, third, fourth)
    )
    assert torch.equal(first, same)
    assert torch.equal(first, lent)
    assert not torch.equal(first, shorter)
    runner.detach()


def test_further_answers_to_a_long_prompt_begin_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_EVERY", 32)
    runner = attached("qwen3_5_text", chunk=32)
    engine = Engine(runner, "ar", prefix_cache="10MB")
    [prompt] = texts(0, 130)
    first = answer(engine, prompt)
    assert taken(engine) == 0
    assert answer(engine, prompt) == first
    assert taken(engine) == len(prompt) - TAIL
    runner.detach()


def test_states_that_texts_share_count_once() -> None:
    runner = attached("qwen3_5_text")
    engine = Engine(runner, "ar", prefix_cache="10MB")
    [prompt] = texts(1, 50)
    for seed in range(4):
        sampled = SamplingParams(1.0, seed=seed)
        engine.generate([Request(prompt, max_new_tokens=NEW, sampling=sampled, eos=())])
    assert engine._prefixes is not None
    kept = engine._prefixes._cache._kept.values()
    assert len(kept) > 1
    tensors = {
        id(tensor): tensor.nbytes
        for each in kept
        for states in (each.saved.states or {}).values()
        for tensor in states.values()
    }
    rest = sum(tensor.nbytes for each in kept for tensor in each.saved.tensors)
    rest += sum(each.tokens.nbytes for each in kept)
    assert engine.prefix_bytes == sum(tensors.values()) + rest
    engine._prefixes._cache.clear()
    assert engine.prefix_bytes == 0
    assert not engine._prefixes._cache._holders
    runner.detach()


def test_the_next_turn_may_leave_out_the_end_of_a_prompt() -> None:
    """As templates do that begin a thought, and drop it when the answer is there."""
    runner = attached("qwen3_5_text")
    plain, engine = Engine(runner, "ar"), Engine(runner, "ar", prefix_cache="10MB")
    prompt, thought, question = texts(2, 60, 4, 9)
    first = answer(engine, [*prompt, *thought])
    second = [*prompt, *first, *question]
    assert answer(engine, second) == answer(plain, second)
    assert taken(engine) == len(prompt) + len(thought) - TAIL
    runner.detach()

"""Requests with one prompt that begin together cache it once."""

from typing import Any

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.joining import BETWEEN, WITHIN
from draftwood.engine.request import Completion, Finished, Request
from draftwood.methods import method
from draftwood.runner.attach import attach
from draftwood.sampling.sampler import SamplingParams
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.tiny_llama import tiny_llama

TEXT = tuple(1 + i * i % 11 for i in range(40))
LONG = tuple(1 + i * i % 11 for i in range(2 * BETWEEN + 7))


class Counting(MarkovTarget):
    """Counts the prompt tokens that are computed."""

    computed = 0

    def prefill(self, slots: Any, prompts: Any, *rest: Any, **named: Any) -> Any:
        self.computed += sum(map(len, prompts))
        return super().prefill(slots, prompts, *rest, **named)

    def submit_with_pieces(self, slots: Any, trees: Any, needs: Any, pieces: Any) -> Any:
        self.computed += sum(map(len, pieces.values()))
        return super().submit_with_pieces(slots, trees, needs, pieces)


def engine_of(target: MarkovTarget, name: str, **options: Any) -> Engine:
    return Engine(target, method(name), host=FakeHost(target.info), **options)


def ends(engine: Engine) -> dict[int, Completion]:
    done: dict[int, Completion] = {}
    while engine.busy:
        done |= {e.request_id: e.completion for e in engine.step() if isinstance(e, Finished)}
    return done


@pytest.mark.parametrize("cache", [None, "1MB"])
@pytest.mark.parametrize("name", ["ar", "goose", "talon", "eagle3", "tr", "medusa"])
def test_answers_to_one_prompt_compute_it_once(name: str, cache: str | None) -> None:
    [alone] = engine_of(MarkovTarget(context_limit=1024), name).generate([Request(TEXT, 20)])
    target = Counting(context_limit=1024)
    engine = engine_of(target, name, prefix_cache=cache)
    requests = [Request(TEXT, 20), Request(TEXT[1:], 20), *[Request(TEXT, 20)] * 2]
    found = engine.generate(requests)
    assert target.computed == len(TEXT) + len(TEXT) - 1
    assert engine.prefix_tokens == (4 * len(TEXT) - 1, 2 * len(TEXT))
    for each in (found[0], *found[2:]):
        assert each.tokens == target.greedy(TEXT, 20)
        # Drafters begin as they do after a prompt that is computed.
        if name != "medusa":  # its trees depend on the batch
            assert (each.tally.steps, each.tally.drafted) == (
                alone.tally.steps,
                alone.tally.drafted,
            )


def test_namespaces_share_nothing() -> None:
    target = Counting(context_limit=1024)
    engine = engine_of(target, "goose")
    engine.generate([Request(TEXT, 20, namespace=name) for name in "ab"])
    assert target.computed == 2 * len(TEXT)


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("ended", ["leader", "follower"])
def test_one_that_ends_early_leaves_the_others(ended: str, *, within: bool) -> None:
    target = Counting(context_limit=2048)
    target.reads_within = within
    engine = engine_of(target, "goose")
    running = engine.add(Request(TEXT, 60))
    engine.step()
    numbers = [engine.add(Request(LONG, 10)) for _ in range(3)]
    engine.step()
    gone = numbers.pop(0 if ended == "leader" else 1)
    assert engine.cancel(gone) is not None
    before = target.computed
    done = ends(engine)
    assert done[running].tokens == target.greedy(TEXT, 60)
    assert [done[number].tokens for number in numbers] == [target.greedy(LONG, 10)] * 2
    if ended == "follower":
        assert target.computed - before == len(LONG) - (WITHIN if within else BETWEEN)
    assert not target.cached


def test_a_slot_that_cannot_be_saved_is_not_copied() -> None:
    class Unsavable(Counting):
        def savable(self, slot: int, length: int) -> int:
            return length if length < 2 else 0

    target = Unsavable(context_limit=1024)
    engine = engine_of(target, "ar")
    found = engine.generate([Request(TEXT, 5)] * 3)
    assert [each.tokens for each in found] == [target.greedy(TEXT, 5)] * 3
    assert target.computed == 3 * len(TEXT)


@pytest.mark.parametrize("cache", [None, "1MB"])
def test_a_copy_that_fails_ends_nobody(cache: str | None) -> None:
    class Lending(Counting):
        fails = 2

        def lend(self, lender: int, slot: int, length: int) -> None:
            if slot == self.fails:
                raise MemoryError
            super().lend(lender, slot, length)

    target = Lending(context_limit=1024)
    engine = engine_of(target, "goose", prefix_cache=cache)
    running = engine.add(Request(LONG[:15], 60))
    engine.step()
    numbers = [engine.add(Request(TEXT, 20)) for _ in range(3)]
    target.computed = 0
    done = ends(engine)
    assert done[running].tokens == target.greedy(LONG[:15], 60)
    assert [done[number].tokens for number in numbers] == [target.greedy(TEXT, 20)] * 3
    assert target.computed == 2 * len(TEXT)
    assert engine.prefix_tokens[1] == len(TEXT)


@pytest.mark.parametrize("name", ["ar", "goose", "auto", "traversal"])
def test_choices_of_a_model_are_those_of_each_alone(name: str) -> None:
    given = {"draft": tiny_llama(seed=1)} if name == "traversal" else {}
    runner = attach(tiny_llama())
    engine = Engine(runner, method(name, **given))
    plain = Engine(runner, "ar")
    prompt = [5, *range(9, 60)]
    temperature = 0.0 if name == "traversal" else 0.9
    requests = [
        Request(prompt, 15, SamplingParams(temperature, seed=seed), eos=()) for seed in range(3)
    ]
    found = engine.generate(requests)
    assert engine.prefix_tokens[1] == 2 * len(prompt)
    assert [each.tokens for each in found] == [plain.generate([r])[0].tokens for r in requests]
    runner.detach()

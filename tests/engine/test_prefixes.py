"""Prompts that begin like a text that was cached are cached from there on."""

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.engine.engine import Engine
from draftwood.engine.prefix_cache import SHORTEST, Prefix, PrefixCache, common
from draftwood.engine.prefixes import Prefixes
from draftwood.engine.request import Completion, Delta, Finished, Request
from draftwood.engine.token_rows import TokenRows
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.protocols import Needs, Outcome, SavedTokens, TargetOutput
from draftwood.runner.attach import attach
from draftwood.runner.to_host import unread
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import tree_of
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.tiny_llama import tiny_llama

TEXT = tuple(1 + i * i % 11 for i in range(40))


def engine_of(target: MarkovTarget, name: str, **options: Any) -> Engine:
    options = {"prefix_cache": "1MB"} | options
    return Engine(target, method(name), host=FakeHost(target.info), **options)


def reused(engine: Engine) -> int:
    return engine.prefix_tokens[1]


@pytest.mark.parametrize("name", ["ar", "goose", "talon", "eagle3", "tr", "auto", "medusa"])
def test_the_next_turn_computes_only_what_is_new(name: str) -> None:
    counts = []
    for kept in ("1MB", None):
        target = MarkovTarget(context_limit=1024)
        engine = engine_of(target, name, prefix_cache=kept)
        text, before = TEXT, 0
        for turn in range(3):
            answer = engine.generate([Request(text, 20)])[0]
            assert answer.tokens == target.greedy(text, 20)
            if name != "auto":  # its trees depend on times
                counts.append((turn, answer.tally.steps, answer.tally.drafted))
            if kept and turn:
                # All but the newest token of the turn before, or what came beyond its end.
                assert len(text) - 4 <= reused(engine) - before <= len(text) - 3
            before = reused(engine) if kept else 0
            text = (*text, *answer.tokens, 3, 1, 4)
    # Drafters begin as they do after the whole prompt.
    assert counts[: len(counts) // 2] == counts[len(counts) // 2 :]


def test_several_answers_to_one_prompt_share_it() -> None:
    target = MarkovTarget(context_limit=1024)
    engine = engine_of(target, "goose")
    requests = [Request(TEXT, 20, SamplingParams(1.0, seed=seed)) for seed in range(4)]
    found = engine.generate(requests)
    assert reused(engine) == 3 * len(TEXT)
    plain = engine_of(MarkovTarget(context_limit=1024), "ar", prefix_cache=None)
    assert [c.tokens for c in found] == [c.tokens for c in plain.generate(requests)]
    assert len({c.tokens for c in found}) > 1


def test_nobody_waits_for_tokens_that_cannot_be_saved() -> None:
    class Unsavable(MarkovTarget):
        def savable(self, slot: int, length: int) -> int:
            return 0

    engine = engine_of(Unsavable(context_limit=1024), "ar")
    for _ in range(3):
        engine.add(Request(TEXT, 5))
    engine.step()
    assert engine.running == 3
    assert reused(engine) == 0


def test_nobody_waits_for_tokens_that_a_running_request_has() -> None:
    engine = engine_of(MarkovTarget(context_limit=1024), "ar")
    engine.add(Request((*TEXT, 1), 50))
    engine.step()
    engine.step()
    long = tuple(1 + i * i * i % 11 for i in range(700))
    for last in (2, 3):  # prompts that take several steps
        engine.add(Request((*TEXT, last, *long), 5))
    engine.step()
    assert engine.running == 3
    assert engine.waiting == 0


def test_nobody_waits_for_a_few_tokens_more_than_are_cached() -> None:
    engine = engine_of(MarkovTarget(context_limit=2048), "ar")
    engine.generate([Request(TEXT, 5)])
    long = tuple(1 + i * i * i % 11 for i in range(700))
    for last in (2, 3):  # they share one token more with each other than with the first one
        engine.add(Request((*TEXT, 4, last, *long), 5))
    engine.add(Request(long, 5, namespace="other"))
    engine.step()
    assert engine.running == 3


def test_a_request_waits_for_a_beginning_that_saves_more_than_it_takes_to_come() -> None:
    target = MarkovTarget(context_limit=2048)
    engine = engine_of(target, "ar")
    engine.add(Request((5, 6), 90))
    engine.step()
    long = tuple(1 + i * i * i % 11 for i in range(700))
    numbers = [
        engine.add(Request(ids, 5))
        for ids in (
            long,
            (*long[:600], 3, 3, 4),  # waits for the first one
            long[::-1],  # does not wait for the second one
            (*long[:30], 3, 3, 4),  # does not wait for 700 tokens, for 30 of them
        )
    ]
    engine.step()
    assert (engine.running, engine.waiting) == (4, 1)
    assert numbers[1] not in engine._active
    while engine.busy:
        engine.step()
    assert reused(engine) >= 600


def test_namespaces_share_nothing() -> None:
    engine = engine_of(MarkovTarget(context_limit=1024), "goose")
    engine.generate([Request(TEXT, 20, namespace="one")])
    engine.generate([Request(TEXT, 20, namespace="other")])
    assert reused(engine) == 0
    engine.generate([Request(TEXT, 20, namespace="one")])
    assert reused(engine) == len(TEXT) - 1


def test_short_prompts_share_nothing() -> None:
    engine = engine_of(MarkovTarget(), "goose")
    engine.generate([Request((*TEXT[: SHORTEST - 1], last), 20) for last in (3, 4)])
    assert reused(engine) == 0


def test_cancelled_requests_are_kept_and_failed_ones_are_not() -> None:
    class Failing(MarkovTarget):
        fails = False

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if self.fails:
                raise RuntimeError("out of memory")
            return super().forward(*args, **kwargs)

    target = Failing(context_limit=1024)
    engine = engine_of(target, "ar")
    target.fails = True
    with pytest.raises(RuntimeError):
        engine.generate([Request(TEXT, 20)])
    target.fails = False
    list(engine.step())
    number = engine.add(Request(TEXT, 20))
    engine.step()
    assert reused(engine) == 0
    engine.cancel(number)
    engine.generate([Request(TEXT, 20)])
    assert reused(engine) == len(TEXT) - 1


def prefix(*tokens: int, size: int = 100) -> Prefix:
    keys = torch.zeros(size, dtype=torch.uint8)
    return Prefix(np.array(tokens, dtype=np.int64), SavedTokens(len(tokens), (keys,)), None)


def test_the_least_recently_used_texts_go_first() -> None:
    texts = [tuple(range(n, n + SHORTEST)) for n in range(4)]
    one = 100 + 8 * SHORTEST
    cache = PrefixCache(3 * one)
    for text in texts[:3]:
        cache.add(prefix(*text), "")
    assert (len(cache), cache.bytes) == (3, 3 * one)
    cache.longest(texts[0], "")
    cache.add(prefix(*texts[3]), "")
    assert [cache.longest(text, "")[1] for text in texts] == [SHORTEST, 0, SHORTEST, SHORTEST]
    cache.add(prefix(*range(50, 50 + SHORTEST), size=4 * one), "")
    assert (len(cache), cache.bytes) == (3, 3 * one)


def test_a_text_that_goes_on_replaces_its_beginning() -> None:
    cache = PrefixCache(10_000)
    cache.add(prefix(*range(20)), "")
    cache.add(prefix(*range(20)), "other")
    cache.add(prefix(*range(18), 99, 98), "")
    cache.add(prefix(*range(25)), "")
    assert len(cache) == 3
    assert cache.longest(range(30), "")[1] == 25
    assert cache.longest([*range(18), 99, 1], "")[1] == 19
    assert cache.longest(range(30), "other")[1] == 20


def test_common() -> None:
    assert common(np.array([1, 2, 3]), np.array([1, 2, 4, 5])) == 2
    assert common(np.array([1, 2]), np.array([1, 2, 4, 5])) == 2
    assert common(np.array([], dtype=np.int64), np.array([1])) == 0


@pytest.mark.parametrize("name", ["ar", "goose", "auto", "talon", "traversal"])
def test_chats_with_a_model(name: str) -> None:
    """Turns of four chats, interleaved, sampled and greedy: the tokens are plain decoding's."""
    runner = attach(tiny_llama(context=2048))
    given = {"draft": tiny_llama(seed=1, context=2048)} if name in ("talon", "traversal") else {}
    engine = Engine(runner, method(name, **given), prefix_cache="50MB")
    plain = Engine(runner, method("ar"))
    texts = [[5 + chat, *range(9, 60)] for chat in range(4)]
    for turn in range(3):
        requests = [
            Request(
                text,
                15,
                SamplingParams(float(chat % 2 and name != "traversal"), seed=turn),
                eos=(),
                namespace=str(chat // 2),
            )
            for chat, text in enumerate(texts)
        ]
        found = [c.tokens for c in engine.generate(requests)]
        assert found == [c.tokens for c in plain.generate(requests)]
        texts = [[*text, *new, 11, 12] for text, new in zip(texts, found, strict=True)]
    # Two turns after the first one, of which only the newest token and two more are computed.
    assert reused(engine) >= 4 * (52 + 14 + 52 + 31)
    runner.detach()


def test_a_running_request_lends_its_prompt() -> None:
    target = MarkovTarget(context_limit=1024)
    engine = engine_of(target, "goose")
    first = engine.add(Request(TEXT, 30))
    engine.step()
    second = engine.add(Request((*TEXT, 1, 2), 30))
    done: dict[int, Completion] = {}
    while engine.busy:
        events = engine.step()
        done |= {e.request_id: e.completion for e in events if isinstance(e, Finished)}
    assert reused(engine) == len(TEXT)
    assert done[first].tokens == target.greedy(TEXT, 30)
    assert done[second].tokens == target.greedy((*TEXT, 1, 2), 30)


class Short(MarkovTarget):
    """A target without memory for copies, or for slots."""

    copies = slots = 1 << 20

    def lend(self, lender: int, slot: int, length: int) -> None:
        self.copies -= 1
        if self.copies < 0:
            raise MemoryError("no memory for a copy")
        super().lend(lender, slot, length)

    def open(self, capacity: int) -> int:
        self.slots -= 1
        if self.slots < 0:
            raise MemoryError("no memory for a slot")
        return super().open(capacity)


def ends_of(engine: Engine) -> dict[int, Completion]:
    """What the requests end with."""
    done: dict[int, Completion] = {}
    while engine.busy:
        events = engine.step()
        done |= {e.request_id: e.completion for e in events if isinstance(e, Finished)}
    return done


@pytest.mark.parametrize("slots", [1 << 20, 2])
def test_a_prompt_that_cannot_be_copied_is_computed(slots: int) -> None:
    """The running request goes on, and the other one waits for it if it has no slot now."""
    target = Short(context_limit=1024)
    target.copies, target.slots = 0, slots
    engine = engine_of(target, "goose")
    first = engine.add(Request(TEXT, 30))
    engine.step()
    second = engine.add(Request((*TEXT, 1, 2), 30))
    engine.step()
    assert engine.running == 2 - (slots == 2)
    target.slots = 1 << 20
    done = ends_of(engine)
    assert done[first].tokens == target.greedy(TEXT, 30)
    assert done[second].tokens == target.greedy((*TEXT, 1, 2), 30)


def test_finished_texts_make_room_for_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Short(context_limit=1024)
    engine = engine_of(target, "ar")
    engine.generate([Request(TEXT, 20)])
    assert engine._prefixes is not None
    assert engine.prefix_bytes

    told: list[str] = []
    clear = engine._prefixes.clear

    def cleared() -> bool:
        told.append("cleared")
        target.slots = 1
        return clear()

    monkeypatch.setattr(engine._prefixes, "clear", cleared)
    target.slots, other = 0, tuple(reversed(TEXT))
    assert engine.generate([Request(other, 5)])[0].tokens == target.greedy(other, 5)
    assert "cleared" in told


def test_a_failed_step_gives_finished_texts_back() -> None:
    target = MarkovTarget(context_limit=1024)
    engine = engine_of(target, "ar")
    engine.generate([Request(TEXT, 20)])
    assert engine.prefix_bytes
    target.forward = lambda *_, **__: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        engine.generate([Request(TEXT, 20)])
    assert engine.prefix_bytes == 0


def test_texts_make_room_before_another_one_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    target = MarkovTarget(context_limit=1024)
    monkeypatch.setattr(target, "info", replace(target.info, token_bytes=8))
    size = 16 * (len(TEXT) + 19)
    engine = engine_of(target, "ar", prefix_cache=size + 100)
    prefixes = engine._prefixes
    assert prefixes is not None
    engine.generate([Request(TEXT, 20)])
    assert prefixes.bytes == size
    held: list[int] = []
    saved = target.saved

    def copied(slot: int, length: int) -> SavedTokens:
        held.append(prefixes.bytes)
        return saved(slot, length)

    monkeypatch.setattr(target, "saved", copied)
    engine.generate([Request(tuple(reversed(TEXT)), 20)])
    assert held == [0]
    assert prefixes.bytes == size


def test_rows_of_a_kept_text_keep_no_others_alive() -> None:
    rows = TokenRows(Needs(taps=(0,), prompt_rows=True))
    given = TargetOutput(
        logits=torch.zeros(0, 5),
        argmax=np.arange(100),
        top_tokens=np.zeros((100, 2), dtype=np.int64),
        top_probs=np.zeros((100, 2), dtype=np.float32),
        features=torch.arange(400.0).view(100, 4),
    )
    assert given.features is not None
    rows.begin(given)
    found = rows.copied(10)
    assert found is not None
    assert found.features is not None
    assert found.features.untyped_storage().nbytes() == 160
    assert found.top_tokens.base is None
    assert torch.equal(found.features, torch.arange(40.0).view(10, 4))
    whole = rows.copied(100)
    assert whole is not None
    assert whole.features is not None
    assert whole.features.data_ptr() == given.features.data_ptr(), "a whole one is not copied"


def step_of(rows: TargetOutput, path: tuple[int, ...], picked: bool) -> Outcome:
    """A step with a tree of one or four nodes."""
    assert rows.features is not None
    size = len(rows.features)
    tree = tree_of(range(size), [-1, 0, 0, 2][:size])
    features = rows.features[[0, *path]] if picked else None
    return Outcome(tree, path, (0,) * (len(path) + 1), rows, features)


@pytest.mark.parametrize("prompt_rows", [True, False])
def test_rows_of_steps_are_those_of_the_roots_and_the_accepted_nodes(prompt_rows: bool) -> None:
    rng = np.random.default_rng(0)
    rows = TokenRows(Needs(taps=(0,), prompt_rows=prompt_rows))
    nodes = [()] * 70 + [(), (2,), (2, 3), (), (1,)]
    texts = []
    for number, path in enumerate([(1, 2, 3), *nodes]):
        size = 4 if path else 1
        given = TargetOutput(
            logits=torch.zeros(size, 5),
            argmax=rng.integers(5, size=size),
            top_tokens=rng.integers(5, size=(size, 2)),
            top_probs=rng.random((size, 2), dtype=np.float32),
            features=torch.from_numpy(rng.random((size, 4))),
        )
        if number:
            rows.add(step_of(given, path, picked=number % 2 == 0))
        else:
            rows.begin(given)
        texts.append((given, [0, *path]))
    found = rows.first(83)
    assert found is not None
    assert found.features is not None
    expected = [g.features[own] for g, own in texts if g.features is not None]
    assert torch.equal(found.features, torch.cat(expected))
    if prompt_rows:
        for name in ("argmax", "top_tokens", "top_probs"):
            kept = np.concatenate([getattr(given, name)[own] for given, own in texts])
            assert np.array_equal(getattr(found, name), kept)


def test_rows_of_many_steps_keep_no_other_requests_alive() -> None:
    """The features of a step are part of those of all requests."""
    rows = TokenRows(Needs(taps=(0,)))
    alive = []

    def output() -> TargetOutput:
        every = np.zeros((32, 4), dtype=np.float32)
        alive.append(weakref.ref(every))
        return TargetOutput(torch.zeros(0, 5), *unread(), torch.from_numpy(every)[3:4])

    rows.begin(output())
    for _ in range(1000):
        rows.add(step_of(output(), (), picked=False))
    assert 0 < sum(found() is not None for found in alive) < 100


def test_features_of_running_requests_count_as_memory() -> None:
    target = MarkovTarget(context_limit=1024)
    tokens = [engine_of(target, "eagle3", prefix_cache=n)._memory._token for n in (0, "1MB")]
    taps = engine_of(target, "eagle3")._phases.needs.taps
    assert taps
    assert tokens[1] - tokens[0] == len(taps) * target.info.hidden_size * 4


def test_weights_are_looked_at_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(MarkovTarget):
        asked = 0

        @property
        def weights_version(self) -> int:  # type: ignore[override]
            self.asked += 1
            return 0

    target = Counted(context_limit=1024)
    engine = engine_of(target, "ar")
    engine.generate([Request((*TEXT, last), 3) for last in range(5)])
    before = target.asked
    for last in range(5):
        engine.add(Request((*TEXT, 9, last), 2))
    engine.step()
    assert target.asked == before + 1


def test_few_texts_with_one_beginning_are_compared() -> None:
    cache = PrefixCache(10**9)
    header = tuple(range(SHORTEST))
    for last in range(100):
        cache.add(prefix(*header, last), "")
        cache.longest((*header, 0), "")  # the first one is used
    assert len(cache) == 64
    assert [cache.longest((*header, last), "")[1] for last in (0, 1, 99)] == [17, 16, 17]


def test_what_is_no_number_of_bytes_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="prefix_cache is 'much'"):
        engine_of(MarkovTarget(), "ar", prefix_cache="much")


def test_events_of_a_request_that_waits_for_another_come_in_order() -> None:
    target = MarkovTarget(context_limit=1024)
    events = list(engine_of(target, "goose").stream([Request(TEXT, 5)] * 3))
    firsts = [e.request_id for e in events if isinstance(e, Delta)]
    assert sorted(set(firsts), key=firsts.index) == [0, 1, 2]


def test_a_text_that_outgrows_the_cache_leaves_its_beginning_there() -> None:
    cache = PrefixCache(100 + 8 * 20)
    cache.add(prefix(*range(20)), "")
    cache.add(prefix(*range(25)), "")
    assert cache.longest(range(30), "")[1] == 20


def test_a_text_that_cannot_be_kept_fails_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(MarkovTarget(context_limit=1024), "goose")
    monkeypatch.setattr(Prefixes, "keep", lambda *given: 1 / 0)
    [done] = engine.generate([Request(TEXT, 5)])
    assert done.reason == "length"
    number = engine.add(Request(TEXT, 5))
    engine.step()
    ended = engine.cancel(number)
    assert ended is not None
    assert ended.completion.reason == "cancelled"


def test_texts_of_other_weights_are_not_taken() -> None:
    target = MarkovTarget(context_limit=1024)
    engine = engine_of(target, "goose")
    engine.generate([Request(TEXT, 20)])
    target.weights_version = 1
    engine.generate([Request(TEXT, 20)])
    assert reused(engine) == 0
    engine.generate([Request(TEXT, 20)])
    assert reused(engine) == len(TEXT) - 1, "of the same weights they are"


def test_a_request_that_runs_while_weights_change_lends_nothing() -> None:
    target = MarkovTarget(context_limit=1024)
    engine = engine_of(target, "ar")
    engine.add(Request(TEXT, 40))
    for _ in range(4):
        engine.step()
    target.weights_version = 1
    engine.generate([Request(TEXT, 5)])
    assert reused(engine) == 0
    engine.generate([Request(TEXT, 40)])
    assert reused(engine) == len(TEXT) - 1, "from the second one, and not from the first"


def test_a_change_that_is_undone_before_the_next_request_is_noticed() -> None:
    target = MarkovTarget(context_limit=1024)
    engine = engine_of(target, "ar")
    before = target.weights_version
    engine.add(Request(TEXT, 20))
    engine.step()
    target.weights_version = 1
    while engine.busy:
        engine.step()
    target.weights_version = before
    engine.generate([Request(TEXT, 5)])
    assert reused(engine) == 0
    engine.generate([Request(TEXT, 5)])
    assert reused(engine) == len(TEXT) - 1


def test_tokens_are_those_of_the_new_weights() -> None:
    model = tiny_llama()
    engine = Engine(model, "goose", prefix_cache="10MB")
    first = engine.generate([Request(TEXT, 20)])[0].tokens
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.05 * torch.randn_like(parameter))
    expected = Engine(model, "ar").generate([Request(TEXT, 20)])[0].tokens
    assert engine.generate([Request(TEXT, 20)])[0].tokens == expected != first


@pytest.mark.parametrize("steps", [40, 12])
def test_an_interrupt_leaves_no_half_of_a_text(steps: int) -> None:
    """In the step that ends a request, or as it is cancelled before."""

    class Interrupting(dict[int, Any]):
        def pop(self, *given: Any) -> Any:
            raise KeyboardInterrupt

    target = MarkovTarget(context_limit=1024)
    engine = engine_of(target, "ar")
    engine.generate([Request(TEXT, 5)])
    cache = engine._prefixes._cache  # type: ignore[union-attr]
    cache._keys = Interrupting(cache._keys)
    number = engine.add(Request(TEXT, 30))  # its text takes the place of the first one

    def end() -> None:
        for _ in range(steps):
            engine.step()
        engine.cancel(number)

    with pytest.raises(KeyboardInterrupt):
        end()
    assert not target.cached
    while engine.busy:
        engine.step()
    assert (len(cache), cache.bytes) == (0, 0)
    for _ in range(2):
        assert engine.generate([Request(TEXT, 9)])[0].tokens == target.greedy(TEXT, 9)
    assert reused(engine) == 2 * (len(TEXT) - 1)

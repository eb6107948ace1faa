"""The order of a run, and that a contender starts anew for every group."""

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from draftwood.engine.request import Completion, Request, failure
from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.document import Excerpt
from draftwood.lab.bench.measure import Answer, Decode, Decoding, Item
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.rows import Run
from draftwood.lab.bench.runs import WARM_UP_TOKENS, Job, execute, grouped, items, plan, warm_up
from draftwood.sampling.sampler import SamplingParams
from tests.factories.tiny_llama import tiny_tokenizer

DECODING = Decoding(4, frozenset({256}))


def prompts(count: int, name: str = "s") -> list[Prompt]:
    return [Prompt(f"{name}/{i}", "t", name, ("hello",)) for i in range(count)]


def contexts() -> Contexts:
    return Contexts(tiny_tokenizer(), 256, 4)


class Echo:
    """Answers with the last tokens of the context, and remembers how it was used."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.begun = 0
        self.requests: list[Request] = []
        self.collecting: list[bool] = []
        self.stop_after = stop_after

    def begin(self, batch: int) -> Decode:
        self.begun += 1
        if self.begun > self.stop_after:
            raise KeyboardInterrupt
        return self.decode

    def decode(self, requests: Sequence[Request]) -> list[Answer]:
        self.collecting.append(gc.isenabled())
        self.requests += requests
        return [
            Answer(Completion(tuple(r.ids[-3:]), "", "length", Tally(), len(r.prompt), 0.0, 0.0))
            for r in requests
        ]


def ignore(job: Job, timed: bool) -> None:
    """Nobody watches."""


def test_groups_keep_order_and_never_span_sets() -> None:
    members = items([*prompts(5, "a"), *prompts(2, "b")], SamplingParams())
    names = [[i.prompt.id for i in group] for group in grouped(members, 2)]
    assert names == [["a/0", "a/1"], ["a/2", "a/3"], ["a/4"], ["b/0", "b/1"]]


def test_every_prompt_has_its_own_seed() -> None:
    seeds = [item.sampling.seed for item in items(prompts(3), SamplingParams(seed=2**64 - 2))]
    assert seeds == [2**64 - 2, 2**64 - 1, 0]


def groups(count: int, *seeds: int) -> dict[int, list[tuple[Item, ...]]]:
    return {
        seed: grouped(items(prompts(count), SamplingParams(seed=seed)), 1) for seed in seeds or (0,)
    }


def run(jobs: Sequence[Job], contenders: dict[str, Any], **more: Any) -> Any:
    given: dict[str, Any] = {"device": torch.device("cpu"), "starting": ignore, **more}
    return execute(jobs, contenders, contexts(), DECODING, **given)


def test_methods_take_turns_on_every_prompt_in_shuffled_order() -> None:
    jobs = plan(groups(20, 3), ["x", "y", "z"], repeats=2)
    assert len(jobs) == 120
    chunks = [jobs[i : i + 3] for i in range(0, 120, 3)]
    assert all({job.method for job in chunk} == {"x", "y", "z"} for chunk in chunks)
    assert all(len({(job.group, job.repeat) for job in chunk}) == 1 for chunk in chunks)
    firsts = Counter(chunk[0].method for chunk in chunks)
    assert min(firsts.values()) >= 5
    assert jobs == plan(groups(20, 3), ["x", "y", "z"], repeats=2)
    others = plan(groups(20, 4), ["x", "y", "z"], repeats=2)
    assert [job.method for job in jobs] != [job.method for job in others]


def test_every_seed_runs_everything_before_the_next_repeat() -> None:
    jobs = plan(groups(2, 7, 3), ["x"], repeats=2)
    order = [(j.repeat, j.run_seed, j.group, j.items[0].sampling.seed) for j in jobs]
    assert order == [(k, seed, i, seed + i) for k in (0, 1) for seed in (7, 3) for i in (0, 1)]
    assert len({job.key for job in jobs}) == 8


def test_the_first_seed_alone_shuffles() -> None:
    def order(*seeds: int) -> list[str]:
        return [job.method for job in plan(groups(9, *seeds), ["x", "y", "z"], repeats=1)]

    assert order(5, 1)[:27] == order(5, 2)[:27] == order(5)
    assert order(5, 1)[:27] != order(6, 1)[:27]


def test_warm_up_is_not_counted_and_every_group_begins_anew() -> None:
    echo, other = Echo(), Echo()
    contenders = {"x": echo, "y": other}
    jobs = plan(groups(3), ["x", "y"], 2)
    seen: list[bool] = []

    def starting(job: Job, timed: bool) -> None:
        seen.append(timed)

    warm_up(contenders, jobs[-1].items, contexts(), DECODING, starting)
    assert echo.begun == other.begun == 1
    runs = list(run(jobs, contenders, starting=starting))
    assert len(runs) == 12
    assert echo.begun == other.begun == 7
    assert seen == [False, False] + [True] * 12
    assert {(r.method, r.prompt.id, r.repeat) for found in runs for r in found} == {
        (m, f"s/{i}", k) for m in "xy" for i in range(3) for k in range(2)
    }


@pytest.mark.parametrize("most", [WARM_UP_TOKENS, 3 * WARM_UP_TOKENS])
def test_a_warm_up_takes_the_room_of_the_longest_answers_with_fewer_tokens(most: int) -> None:
    short, long = Echo(), Echo()
    item = items([Prompt("d/0", "t", "d", ("hello", "and then?"))], SamplingParams())[0]
    tokens = 5 * WARM_UP_TOKENS
    decoding = replace(DECODING, max_new_tokens=tokens)
    room = Contexts(tiny_tokenizer(), 2000, tokens)
    given = () if most == WARM_UP_TOKENS else (most,)
    warm_up({"x": short}, [item], room, decoding, ignore, *given)
    (warm,) = short.requests
    assert warm.max_new_tokens == most
    list(run([Job("x", 0, 0, 0, (item,))], {"x": long}))
    assert warm.prompt[-len(long.requests[0].prompt) :] == long.requests[0].prompt
    assert len(warm.prompt) + most == room.most_tokens(item.prompt) + tokens


def test_a_warm_up_stays_within_what_longer_contexts_are_cut_to() -> None:
    echo = Echo()
    item = items([Prompt("d/0", "t", "d", ("hello",) * 9)], SamplingParams())[0]
    cut = Contexts(tiny_tokenizer(), 300, 100, truncate=150)
    warm_up({"x": echo}, [item], cut, replace(DECODING, max_new_tokens=100), ignore)
    assert [len(r.prompt) + r.max_new_tokens for r in echo.requests] == [250]


def test_a_run_says_which_seed_it_is_of_and_what_memory_it_took() -> None:
    found = [r for runs in run(plan(groups(2, 7, 3), ["x"], 1), {"x": Echo()}) for r in runs]
    assert [(r.run_seed, r.seed) for r in found] == [(7, 7), (7, 8), (3, 3), (3, 4)]
    for one in found:  # a process with torch in it, or a machine that cannot tell
        assert one.peak_memory_mb is None or one.peak_memory_mb > 50


def test_only_the_answers_that_are_to_be_quoted_are() -> None:
    quoted = Excerpt("x", "a", "a", "test", "prompt", (), ())

    def quote(job: Job, *given: Any) -> Excerpt | None:
        return None if job.repeat else quoted

    jobs = plan(groups(1), ["x"], 2)
    (first,), (second,) = run(jobs, {"x": Echo()}, quote=quote)
    assert first.turns[0].excerpt is quoted
    assert second.turns[0].excerpt is None


def test_the_collector_rests_while_the_clock_runs_and_wakes_up_again() -> None:
    echo = Echo()
    jobs = plan(groups(1), ["x"], 1)
    warm_up({"x": echo}, jobs[-1].items, contexts(), DECODING, ignore)
    list(run(jobs, {"x": echo}))
    assert echo.collecting == [False, False]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_was_done_before_an_interrupt_is_kept() -> None:
    done: list[list[Run]] = []
    running = run(plan(groups(5), ["x"], 1), {"x": Echo(stop_after=2)})
    with pytest.raises(KeyboardInterrupt):
        done.extend(running)
    assert [r.prompt.id for (r,) in done] == ["s/0", "s/1"]
    assert gc.get_freeze_count() == 0


class Failing(Echo):
    """Fails on the second prompt."""

    def decode(self, requests: Sequence[Request]) -> list[Answer]:
        answers = super().decode(requests)
        if len(self.requests) == 2:
            failed = failure(0, ValueError("spoilt"))
            answers = [Answer(replace(a.completion, reason="error", error=failed)) for a in answers]
        return answers


def test_a_prompt_that_failed_is_named_and_what_was_done_before_it_is_kept() -> None:
    done: list[list[Run]] = []
    running = run(plan(groups(5), ["x"], 1), {"x": Failing()})
    with pytest.raises(DraftwoodError, match=r"^x: prompt 's/1' failed in turn 1: .*spoilt$"):
        done.extend(running)
    assert [r.prompt.id for (r,) in done] == ["s/0"]
    group = items(prompts(2), SamplingParams())
    with pytest.raises(DraftwoodError, match=r"^x: prompt 's/0' failed in turn 1: .*spoilt$"):
        warm_up({"x": Failing()}, group, contexts(), DECODING, ignore)


def test_dialogues_of_a_group_go_turn_by_turn() -> None:
    echo = Echo()
    talks = [
        Prompt("d/0", "t", "d", ("ab", "cd", "ef"), dialogue=True),
        Prompt("d/1", "t", "d", ("gh",), dialogue=True),
    ]
    jobs = plan({0: grouped(items(talks, SamplingParams()), 2)}, ["x"], 1)
    ((first, second),) = run(jobs, {"x": echo})
    assert [len(first.turns), len(second.turns)] == [3, 1]
    assert len(echo.requests) == 4  # two, one, one
    said = tiny_tokenizer().decode(list(first.turns[2].context.ids))
    assert said == (
        "User: ab\n\nAssistant: nt:\n\nUser: cd\n\nAssistant: nt:\n\nUser: ef\n\nAssistant:"
    )


class Saying(Echo):
    """Answers with one token, again and again."""

    def __init__(self, letter: str) -> None:
        super().__init__()
        (self.token,) = tiny_tokenizer().encode(letter)

    def decode(self, requests: Sequence[Request]) -> list[Answer]:
        answers = super().decode(requests)
        return [Answer(replace(a.completion, tokens=(self.token,) * 3)) for a in answers]


TALK = Prompt("d/0", "t", "d", ("ab", "cd", "ef"), dialogue=True)


def asked(contender: Echo) -> list[str]:
    """The contexts that a contender had, as text."""
    return [str(tiny_tokenizer().decode(list(r.ids))) for r in contender.requests]


def test_all_methods_continue_the_answers_of_plain_decoding() -> None:
    methods = {"x": Saying("x"), "ar": Saying("a"), "y": Saying("y")}
    jobs = plan({5: grouped(items([TALK], SamplingParams()), 1)}, list(methods), 2)
    assert jobs[0].method == "ar"
    list(run(jobs, methods))
    for contender in methods.values():
        assert asked(contender) == asked(methods["ar"])
    assert "Assistant: aaa" in asked(methods["x"])[2]


def test_a_resumed_run_continues_the_answers_that_it_has() -> None:
    jobs = plan({5: grouped(items([TALK], SamplingParams()), 1)}, ["ar", "x"], 1)
    ((plain,),) = run(jobs[:1], {"ar": Saying("a")})
    other = Saying("x")
    list(run(jobs[1:], {"x": other}, ended=[plain]))
    assert "Assistant: aaa" in asked(other)[2]
    # Another seed has other answers.
    list(run([replace(jobs[1], run_seed=6)], {"x": other}, ended=[plain]))
    assert "Assistant: xxx" in asked(other)[-1]


def test_the_order_stays_shuffled_without_dialogues() -> None:
    jobs = plan(groups(20), ["ar", "x", "y"], 1)
    assert {job.method for job in jobs[::3]} == {"ar", "x", "y"}

"""The order of a run, and that a contender starts anew for every group."""

import gc
from collections import Counter
from collections.abc import Sequence

import pytest

from draftwood.bench.contexts import Contexts
from draftwood.bench.measure import Answer, Decode, Decoding
from draftwood.bench.prompts import Prompt
from draftwood.bench.rows import Run
from draftwood.bench.runs import Job, execute, grouped, items, plan
from draftwood.requests import Completion, Request
from draftwood.sampling import SamplingParams
from draftwood.stats import Tally
from tests.tiny import tiny_tokenizer

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
            Answer(Completion(tuple(r.prompt[-3:]), "", "length", Tally(), len(r.prompt), 0.0, 0.0))
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


def test_methods_take_turns_on_every_prompt_in_shuffled_order() -> None:
    groups = grouped(items(prompts(20), SamplingParams()), 1)
    jobs = plan(groups, ["x", "y", "z"], repeats=2, seed=3)
    assert len(jobs) == 120
    chunks = [jobs[i : i + 3] for i in range(0, 120, 3)]
    assert all({job.method for job in chunk} == {"x", "y", "z"} for chunk in chunks)
    assert all(len({(job.group, job.repeat) for job in chunk}) == 1 for chunk in chunks)
    firsts = Counter(chunk[0].method for chunk in chunks)
    assert min(firsts.values()) >= 5
    assert jobs == plan(groups, ["x", "y", "z"], repeats=2, seed=3)
    assert jobs != plan(groups, ["x", "y", "z"], repeats=2, seed=4)


def test_warm_up_is_not_counted_and_every_group_begins_anew() -> None:
    echo, other = Echo(), Echo()
    jobs = plan(grouped(items(prompts(3), SamplingParams()), 1), ["x", "y"], 2, seed=0)
    seen: list[bool] = []
    runs = list(
        execute(
            jobs,
            {"x": echo, "y": other},
            contexts(),
            DECODING,
            warm_up=jobs[-1].items,
            starting=lambda job, timed: seen.append(timed),
        )
    )
    assert len(runs) == 12
    assert echo.begun == other.begun == 7
    assert seen == [False, False] + [True] * 12
    # The first prompt answered is the warm-up's, which no run below comes from.
    assert len(echo.requests) == 7
    assert {(r.method, r.prompt.id, r.repeat) for found in runs for r in found} == {
        (m, f"s/{i}", k) for m in "xy" for i in range(3) for k in range(2)
    }


def test_the_collector_rests_while_the_clock_runs_and_wakes_up_again() -> None:
    echo = Echo()
    jobs = plan(grouped(items(prompts(1), SamplingParams()), 1), ["x"], 1, seed=0)
    list(execute(jobs, {"x": echo}, contexts(), DECODING, warm_up=jobs[-1].items, starting=ignore))
    assert echo.collecting == [False, False]
    assert gc.isenabled()


def test_what_was_done_before_an_interrupt_is_kept() -> None:
    jobs = plan(grouped(items(prompts(5), SamplingParams()), 1), ["x"], 1, seed=0)
    done: list[list[Run]] = []
    running = execute(
        jobs,
        {"x": Echo(stop_after=3)},
        contexts(),
        DECODING,
        warm_up=jobs[-1].items,
        starting=ignore,
    )
    with pytest.raises(KeyboardInterrupt):
        done.extend(running)
    assert [r.prompt.id for (r,) in done] == ["s/0", "s/1"]
    assert gc.get_freeze_count() == 0


def test_dialogues_of_a_group_go_turn_by_turn() -> None:
    echo = Echo()
    talks = [
        Prompt("d/0", "t", "d", ("ab", "cd", "ef"), dialogue=True),
        Prompt("d/1", "t", "d", ("gh",), dialogue=True),
    ]
    jobs = plan(grouped(items(talks, SamplingParams()), 2), ["x"], 1, seed=0)
    ((first, second),) = execute(
        jobs, {"x": echo}, contexts(), DECODING, warm_up=jobs[-1].items, starting=ignore
    )
    assert [len(first.turns), len(second.turns)] == [3, 1]
    # Asked per job: two, one, one; the warm-up asks the same.
    assert len(echo.requests) == 8
    said = tiny_tokenizer().decode(list(first.turns[2].context.ids))
    assert said == (
        "User: ab\n\nAssistant: nt:\n\nUser: cd\n\nAssistant: nt:\n\nUser: ef\n\nAssistant:"
    )

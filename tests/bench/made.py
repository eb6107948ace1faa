"""Runs and rows made by hand, so that figures can be checked by hand."""

from dataclasses import replace

from draftwood.bench.contexts import Context
from draftwood.bench.measure import Turn
from draftwood.bench.prompts import Prompt
from draftwood.bench.rows import Row, Run
from draftwood.requests import Completion
from draftwood.stats import Tally


def row(
    id: str = "a/0",
    *,
    group: int = 0,
    repeat: int = 0,
    tokens: int = 10,
    seconds: float = 1.0,
    tally: Tally | None = None,
    identical: bool | None = None,
    looping: bool = False,
    set: str = "a",
) -> Row:
    return Row(
        id=id,
        set=set,
        task="test",
        seed=0,
        repeat=repeat,
        group=group,
        turns=1,
        prompt_tokens=5,
        tokens=tokens,
        seconds=seconds,
        group_seconds=seconds,
        ttft=0.1,
        tpot=(seconds - 0.1) / (tokens - 1) if tokens > 1 else float("nan"),
        tally=tally or Tally(),
        other=0.0,
        overhead=float("nan"),
        looping=looping,
        truncated=False,
        reasons=("length",),
        identical=identical,
    )


def turn(
    tokens: tuple[int, ...], context: tuple[int, ...] = (1, 2), tally: Tally | None = None
) -> Turn:
    completion = Completion(tokens, "", "length", tally or Tally(), len(context), 0.5, 2.5)
    return Turn(Context(context), completion, overhead=(0.25, 0.75), other=0.1, group_seconds=3.0)


def run(*turns: Turn, id: str = "a/0", method: str = "ar", repeat: int = 0) -> Run:
    prompt = Prompt(id, "test", "a", ("x",) * len(turns))
    return Run(method, prompt, seed=0, repeat=repeat, group=0, turns=turns)


def cut(one: Turn) -> Turn:
    return replace(one, context=Context(one.context.ids, cut=True))

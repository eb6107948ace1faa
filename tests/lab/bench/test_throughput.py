"""Users that send prompts one after another, on a real engine of a tiny model and by hand."""

from itertools import count
from types import SimpleNamespace

import pytest

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.measure import Decoding
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.bench.runs import items
from draftwood.lab.bench.throughput import Served, Spread, figures, serve
from draftwood.methods import method
from draftwood.models import load
from draftwood.runner.attach import attach
from draftwood.sampling.params import SamplingParams
from tests.factories.tiny_llama import tiny_tokenizer

PROMPTS = [
    *(Prompt(f"p/{i}", "code" if i % 2 else "chat", "s", (f"abc {i} abc",)) for i in range(5)),
    Prompt("talk", "chat", "s", ("abc", "def"), dialogue=True),
]
DECODING = Decoding(6, frozenset())


class Watched(Engine):
    """Remembers how many requests were on their way at every step."""

    def step(self) -> list[object]:  # type: ignore[override]
        self.loads = [*getattr(self, "loads", ()), len(self._waiting) + len(self._active)]
        return list(super().step())


def engine(checkpoint: str, name: str, most: int = 64) -> Watched:
    return Watched(attach(load(checkpoint).model), method(name), max_batch=most)


@pytest.mark.parametrize("users", [1, 3, 64])
@pytest.mark.parametrize("heat", [0.0, 0.8])
def test_the_answers_do_not_depend_on_the_number_of_users(
    checkpoint: str, users: int, heat: float
) -> None:
    contexts, decoding = Contexts(tiny_tokenizer(chat=True), 256, 40), Decoding(40, frozenset())
    asked = items(PROMPTS, SamplingParams(temperature=heat, seed=3))
    alone, _ = serve(engine(checkpoint, "ar"), asked, contexts, decoding, 1)
    assert [each.id for each in alone] == [prompt.id for prompt in PROMPTS]
    assert [len(each.tokens) for each in alone] == [1] * 5 + [2]
    busy = engine(checkpoint, "pld", users)
    found, seconds = serve(busy, asked, contexts, decoding, users)
    assert [each.tokens for each in found] == [each.tokens for each in alone]
    assert seconds > 0
    assert busy.loads[0] == max(busy.loads) == min(users, len(PROMPTS))
    assert all(0 < each.ttft <= each.seconds for each in found)
    again = figures(found, seconds, users, alone)
    assert again.identical == 6
    assert again.all.output_tokens == 7 * 40
    assert again.all.mean_acceptance_length is not None
    assert again.all.mean_acceptance_length > 1 or heat


def test_a_request_that_fails_is_named() -> None:
    class Broken:
        busy = True

        def add(self, request: Request) -> int:
            raise DraftwoodError(f"{len(request.prompt)} tokens are too many")

    contexts = Contexts(tiny_tokenizer(), 256, 6)
    with pytest.raises(DraftwoodError, match="too many"):
        serve(Broken(), items(PROMPTS, SamplingParams()), contexts, DECODING, 2)  # type: ignore[arg-type]


def served(name: str, task: str, tokens: int, ttft: float, seconds: float) -> Served:
    return Served(name, task, ((7,) * tokens,), ttft, seconds, tokens, 2 * tokens, 3)


def test_figures_by_hand() -> None:
    answers = [served("a", "x", 10, 0.5, 5.0), served("b", "y", 1, 1.0, 1.0)]
    found = figures(answers, 4.0, 2, [answers[0]])
    assert found.tokens_per_second == 11 / 4
    assert found.ttft_ms.p50 == 750
    assert found.tpot_ms == Spread(500, 500, 500)
    assert found.latency_ms.p50 == 3000
    assert found.all.tokens_per_second_per_user == 1.5
    assert found.all.mean_acceptance_length == 2.0
    assert found.by_category["x"].tokens_per_second_per_user == 2.0
    assert list(found.by_category) == ["x", "y"]
    assert found.identical == 1
    assert figures(answers, 4.0, 2).identical is None


def test_without_later_tokens_or_steps_there_are_no_figures_of_them() -> None:
    single = [Served("a", "x", ((7,),), 1.0, 1.0, 0, 0, 3)]
    found = figures(single, 1.0, 1)
    assert found.tpot_ms == Spread(None, None, None)
    assert found.all.mean_acceptance_length is None


def test_the_clock_of_a_user_begins_with_the_first_turn(checkpoint: str) -> None:
    ticks = count()
    clock = SimpleNamespace(now=lambda: float(next(ticks)))
    contexts = Contexts(tiny_tokenizer(chat=True), 256, 6)
    asked = items(PROMPTS[-1:], SamplingParams())
    (found,), seconds = serve(engine(checkpoint, "ar"), asked, contexts, DECODING, 1, clock.now)
    assert (found.seconds, seconds) == (1.0, 3.0)

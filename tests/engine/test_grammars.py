"""Requests with grammars: the tokens of plain decoding, texts of the grammar, nothing wasted."""

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from draftwood import Engine, Grammar, Request, SamplingParams, method
from draftwood.engine.request import Completion, Finished, Stepped
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.grammars.constraint import constraint_of
from draftwood.methods import recipes
from draftwood.runner.attach import attach
from tests.factories.given_costs import drafting_pays
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer
from tests.factories.toy_constraint import ToyMatcher
from tests.simulated_cuda import SimulatedCuda, to_simulated

pytest.importorskip("llguidance")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "string", "maxLength": 3},
        "c": {"enum": ["red", "green", "grey"]},
        "s": {
            "type": "array",
            "items": {"type": "integer", "maximum": 99, "minimum": 0},
            "maxItems": 2,
        },
    },
    "required": ["n", "c", "s"],
    "additionalProperties": False,
}
PATTERN = r"(abc|abd){2,4}-[0-9]{2}"
CHOICES = ["red wine", "red tea", "green tea"]
GRAMMARS: list[Grammar | None] = [
    Grammar.json_schema(SCHEMA, fixed_spaces=True),
    Grammar.regex(PATTERN),
    None,
    Grammar.choice(CHOICES),
    Grammar.ebnf('root ::= "x" [0-9] [0-9] "y"'),
]
EOS = 256
VOCAB = 290
"""More rows of logits than tokens."""


@pytest.fixture(autouse=True)
def _given_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    drafting_pays(monkeypatch)


def target(**changed: Any) -> Any:
    return tiny_llama(vocab_size=VOCAB, **changed)


def drafts(name: str) -> dict[str, Any]:
    parts = set(recipes()[name.partition(":")[0]].drafters.values())
    if name == "auto":
        return {}
    found: dict[str, Any] = {}
    if "model" in parts:
        found["draft"] = target(seed=1, layers=1)
    return found


def asked(temperature: float, seed: int = 0) -> list[Request]:
    """One request for each grammar, and one without."""
    return [
        Request(
            f"The record {i}: ",
            50,
            SamplingParams(temperature, seed=seed + i, top_p=0.95 if temperature else 1.0),
            eos={EOS},
            grammar=grammar,
        )
        for i, grammar in enumerate(GRAMMARS)
    ]


def engine(name: str, **options: Any) -> Engine:
    runner = attach(target(), packing=False, self_test=False)
    return Engine(runner, method(name, **(options or drafts(name))), tiny_tokenizer())


def valid(completion: Completion, place: int) -> bool:
    """Whether a finished text is of its grammar."""
    text = completion.text
    if completion.reason != "eos" or GRAMMARS[place] is None:
        return GRAMMARS[place] is None
    if place == 0:
        found = json.loads(text)
        return (
            [*found] == [*SCHEMA["properties"]]
            and len(found["n"]) <= 3
            and found["c"] in SCHEMA["properties"]["c"]["enum"]
            and all(0 <= size <= 99 for size in found["s"])
        )
    if place == 3:
        return text in CHOICES
    return re.fullmatch(PATTERN if place == 1 else "x[0-9]{2}y", text) is not None


@pytest.fixture(scope="module")
def plain() -> dict[tuple[float, int], list[Completion]]:
    of = engine("ar")
    return {(t, seed): of.generate(asked(t, seed)) for t in (0.0, 1.0) for seed in range(1)}


METHODS = [
    "ar",
    "auto",
    "goose",
    "pld",
    "tr",
    "lookahead",
    "iso3",
    "talon",
    "dynatree",
    "opt-tree",
    "auto:drafter=model",
    "goose:context=forced",
]
SAMPLED = [
    "traversal",
    "block",
    "mixed",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("rrsw", "specinfer", "goose-sampled", "greedy-order")
    ),
    "auto:drafter=model:layout=drawn",
    "auto:drafter=model:layout=either",
]


@pytest.mark.parametrize("name", METHODS)
def test_the_tokens_are_plain_decodings(
    name: str, plain: dict[tuple[float, int], list[Completion]]
) -> None:
    of = engine(name)
    for (temperature, seed), expected in plain.items():
        found = of.generate(asked(temperature, seed))
        assert [done.tokens for done in found] == [done.tokens for done in expected]
        assert all(valid(done, place) for place, done in enumerate(found))


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_drafts_give_texts_of_the_grammar(
    name: str, plain: dict[tuple[float, int], list[Completion]]
) -> None:
    of = engine(name)
    greedy = of.generate(asked(0.0))
    assert [done.tokens for done in greedy] == [done.tokens for done in plain[0.0, 0]]
    for seed in range(2):
        found = of.generate(asked(1.0, seed))
        assert all(valid(done, place) for place, done in enumerate(found))


def steps(of: Engine, requests: Sequence[Request]) -> dict[int, list[StepStats]]:
    found: dict[int, list[StepStats]] = {}
    for event in of.stream(requests):
        if isinstance(event, Finished):
            event.completion.checked()
        if isinstance(event, Stepped):
            found.setdefault(event.request_id, []).append(event.stats)
    return found


def illegal_nodes(name: str, temperature: float) -> tuple[int, int]:
    """Nodes that were verified though the grammar forbids them, and all drafted ones."""
    tokenizer: PreTrainedTokenizerBase = tiny_tokenizer()
    wrong = drafted = 0
    requests = asked(temperature)
    for place, own in steps(engine(name), requests).items():
        grammar = GRAMMARS[place]
        if grammar is None:
            continue
        constraint = constraint_of(grammar, tokenizer, VOCAB, [EOS])
        for step in own:
            tree = step.tree
            if step is own[0]:
                constraint.advance([int(tree.tokens[0])])
            for node in range(1, len(tree)):
                above = tree.path_tokens(int(tree.parents[node]))
                wrong += not constraint.allows(above, [int(tree.tokens[node])])[0]
                drafted += 1
            committed = [int(tree.tokens[node]) for node in step.path]
            constraint.advance(committed)
            following = own[own.index(step) + 1 :][:1]
            constraint.advance([int(after.tree.tokens[0]) for after in following])
    return wrong, drafted


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["auto", "goose", "auto:drafter=model", "traversal", "talon"])
def test_no_illegal_node_is_verified(name: str, temperature: float) -> None:
    wrong, drafted = illegal_nodes(name, temperature)
    assert drafted > 10
    assert not wrong


def test_without_pruning_illegal_nodes_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setattr("draftwood.engine.lockstep.legal_answer", lambda answer, *rest: answer)
    wrong, _ = illegal_nodes("goose", 0.0)
    assert wrong


def test_what_the_grammar_forces_is_drafted_and_learnt() -> None:
    of, accepted, drafted = engine("auto"), 0, 0
    for seed in range(2):
        for place, own in steps(of, asked(1.0, seed)).items():
            for step in own:
                mine = [i for i, name in enumerate(step.tree.sources) if name == "forced"]
                assert GRAMMARS[place % len(GRAMMARS)] is not None or not mine
                drafted += len(mine)
                accepted += len(set(mine) & set(step.path))
    assert drafted > 30
    assert accepted > 0.9 * drafted, "llguidance spells a forced text in one way"
    tuner: Any = of._phases._tuner
    assert tuner.calibration.sources[-1].name == "forced"
    ((values, curvatures),) = tuner.calibration.at(1.0).learnt()
    assert max(curvatures) > 0.1
    assert max(values) > 1.0


def test_without_a_grammar_nothing_is_asked_or_learnt_of_it() -> None:
    of = engine("auto")
    of.generate([Request("abab", 20, eos={EOS})])
    tuner: Any = of._phases._tuner
    assert [source.name for source in tuner.calibration.sources] == ["copied", "table", "neural"]


def test_a_wrong_grammar_is_refused_before_any_work() -> None:
    of = engine("auto")
    with pytest.raises(DraftwoodError, match=r"the grammar \(regex\) is wrong"):
        of.add(Request("a", 5, eos={EOS}, grammar=Grammar.regex("(a")))
    with pytest.raises(DraftwoodError, match="this request has none: give eos"):
        of.add(Request("a", 5, eos=(), grammar=Grammar.regex("a")))
    with pytest.raises(DraftwoodError, match="grammar is dict"):
        of.add(Request("a", 5, grammar=SCHEMA))  # type: ignore[arg-type]
    of.tokenizer = None
    with pytest.raises(DraftwoodError, match="needs the model's tokenizer"):
        of.add(Request([1], 5, grammar=Grammar.regex("a")))
    assert not of.busy


@pytest.mark.parametrize("name", ["ar", "auto", "goose", "traversal"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_that_dies_ends_its_request_alone(
    name: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying:
        def start(self, grammar: Grammar) -> ToyMatcher:
            return ToyMatcher(lambda seen: {5, 6, 7} if len(seen) < 4 else set(), VOCAB)

    requests = asked(temperature)
    expected = engine(name).generate(requests)
    of = engine(name)
    numbers = [of.add(requests[i]) for i in (2, 0)]
    with monkeypatch.context() as patch:
        patch.setattr("draftwood.grammars.constraint.compiler_of", lambda *given: Dying())
        numbers.append(of.add(requests[1]))
    found: dict[int, Completion] = {}
    while of.busy:
        for event in of.step():
            if isinstance(event, Finished):
                found[event.request_id] = event.completion
    free, record, dead = (found[number] for number in numbers)
    assert dead.reason == "error"
    assert len(dead.tokens) <= 4
    assert dead.error is not None
    assert "the grammar allows none" in str(dead.error)
    if method(name, **drafts(name)).same_tokens(temperature):
        assert free.tokens == expected[2].tokens
        assert record.tokens == expected[0].tokens
    assert record.reason == "eos"


def test_a_library_that_fails_to_say_what_is_forced_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failing(ToyMatcher):
        def forced(self) -> list[int]:
            raise OSError("in the library")

    class Compiler:
        def start(self, grammar: Grammar) -> ToyMatcher:
            return Failing(lambda seen: {5, 6, 7}, VOCAB)

    requests = asked(0.0)
    expected = engine("auto").generate(requests)
    of = engine("auto")
    of.add(requests[0])
    with monkeypatch.context() as patch:
        patch.setattr("draftwood.grammars.constraint.compiler_of", lambda *given: Compiler())
        of.add(requests[1])
    done = [event.completion for event in of.stream([]) if isinstance(event, Finished)]
    assert sorted(each.reason for each in done) == ["eos", "error"]
    assert [each.tokens for each in done if each.reason == "eos"] == [expected[0].tokens]
    assert [str(each.error) for each in done if each.error] == [
        "request 1 failed: OSError: in the library"
    ]


def test_stop_strings_and_lengths_end_a_constrained_text() -> None:
    of = engine("auto")
    grammar = Grammar.regex("[0-9]{40}")
    [short] = of.generate([Request("a", 7, eos={EOS}, grammar=grammar)])
    assert (short.reason, len(short.text)) == ("length", 7)
    pair = Grammar.regex("ab[0-9]{9}")
    [stopped] = of.generate([Request("a", 20, eos={EOS}, grammar=pair, stop=("b",))])
    assert (stopped.reason, stopped.text) == ("stop", "a")


def test_penalties_and_biases_go_with_a_grammar() -> None:
    banned = tiny_tokenizer()("r")["input_ids"]
    params = SamplingParams(1.0, banned_tokens=tuple(banned), frequency_penalty=0.5, seed=1)
    request = Request("a", 20, params, eos={EOS}, grammar=Grammar.choice(["red", "blue"]))
    texts = {engine(name).generate([request])[0].text for name in ("ar", "auto", "goose")}
    assert texts == {"blue"}
    params = SamplingParams(banned_tokens=tuple(tiny_tokenizer()("rb")["input_ids"]))
    request = Request("a", 20, params, eos={EOS}, grammar=Grammar.choice(["red", "blue"]))
    [done] = engine("auto").generate([request])
    assert "ban fewer tokens or check the logits processors" in str(done.error)


A, B = tiny_tokenizer()("ab")["input_ids"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "change",
    [
        {"frequency_penalty": 2.0},
        {"frequency_penalty": 1.0, "presence_penalty": 0.5, "repetition_penalty": 1.5},
        {"logit_bias": {A: -3.0, B: 3.0}},
    ],
)
def test_penalties_and_biases_change_a_text_within_its_grammar(
    change: dict[str, Any], temperature: float
) -> None:
    free = Grammar.regex("[ab]{24}")

    def done(name: str, **changed: Any) -> Completion:
        params = SamplingParams(temperature, seed=1, **changed)
        [found] = engine(name).generate([Request("x", 30, params, eos={EOS}, grammar=free)])
        assert re.fullmatch("[ab]{24}", found.checked().text)
        return found

    plain = done("ar", **change)
    assert plain.text != done("ar").text
    for name in ("auto", "goose"):
        found = done(name, **change)
        assert found.text == plain.text
        assert found.tally.accepted > 0


@pytest.mark.parametrize(
    ("name", "temperature"),
    [
        ("goose", 1.0),
        ("auto", 0.0),
        *(
            pytest.param(name, temperature, marks=pytest.mark.slow)
            for name in ("ar", "traversal", "talon")
            for temperature in (0.0, 1.0)
        ),
    ],
)
def test_on_a_device_the_tokens_are_a_cpus(name: str, temperature: float) -> None:
    device = SimulatedCuda()
    found = []
    for where in (device, None):
        with where or nullcontext():
            options = drafts(name)
            model = target()
            for each in (model, *options.values()) if where else ():
                to_simulated(each)
            runner = attach(model, packing=False, self_test=False)
            of = Engine(runner, method(name, **options), tiny_tokenizer())
            device.work.clear()
            found.append([done.tokens for done in of.generate(asked(temperature)[3:])])
    assert found[0] == found[1]
    assert not device.work.faults


def test_on_a_device_a_step_still_waits_once() -> None:
    with SimulatedCuda() as device:
        model = to_simulated(target())
        of = Engine(attach(model, packing=False, self_test=False), "goose", tiny_tokenizer())
        of.add(asked(1.0)[0])
        for _ in range(3):
            of.step()
        device.work.clear()
        for _ in range(4):
            of.step()
        assert device.work.per(4)["waits"] == 1

"""Published shapes: what a row becomes, exactly, and how a shape is distinguished."""

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats import entries, formats, recognise
from draftwood.lab.bench.formats._entry import Entry, SourceRow, Values
from tests.lab.bench import dataset_rows


def rows(*values: Values) -> list[SourceRow]:
    return [SourceRow(f"f:{i + 1}", i, one) for i, one in enumerate(values)]


def found(values: list[dict[str, object]]) -> tuple[str, list[Entry]]:
    return entries(rows(*values), "file")


MBPP = (
    "You are an expert Python programmer, and here is your task: Write a function to {}. "
    "Your code should pass these tests:\n\n{}\n[BEGIN]\n"
)
HALVE = 'def halve(n: int) -> float:\n    """ Half of n.\n    """\n'
ODE = ("Write an ode.", "Now shorten it.")


@pytest.mark.parametrize(
    ("given", "name", "wanted"),
    [
        (
            dataset_rows.HUMANEVAL,
            "humaneval",
            [
                Entry("HumanEval/0", "code_completion", (HALVE,), False, True),
                Entry("HumanEval/1", "code_completion", ("def nothing():\n",), False, True),
            ],
        ),
        (
            dataset_rows.GSM8K[:1],
            "gsm8k",
            [
                Entry(
                    "gsm8k/0",
                    "math",
                    ("Question: Two crates hold 3 pears each. How many pears?\nAnswer:",),
                    False,
                )
            ],
        ),
        (
            dataset_rows.MBPP + dataset_rows.MBPP_SANITIZED,
            "mbpp",
            [
                Entry(
                    "mbpp/11",
                    "code_generation",
                    (
                        MBPP.format(
                            "double a number", "assert double(1) == 2\nassert double(0) == 0"
                        ),
                    ),
                    False,
                    True,
                ),
                Entry(
                    "mbpp/12",
                    "code_generation",
                    (MBPP.format("negate a number", "assert negate(1) == -1"),),
                    False,
                    True,
                ),
            ],
        ),
        (
            dataset_rows.MT_BENCH,
            "mt_bench",
            [
                Entry("mt_bench/81", "writing", ODE, True),
                Entry("mt_bench/111", "math", ("What is 2+2?", "And doubled?"), True),
            ],
        ),
        (
            dataset_rows.MT_BENCH_PROMPTS,
            "mt_bench",
            [Entry("mt_bench/20764998", "writing", ("Write a poem.", "Now rhyme it."), True)],
        ),
        (
            [{"question_id": "q1", "category": "odd", "turns": ["If?"]}, dataset_rows.MT_BENCH[0]],
            "file",
            [Entry("file/q1", "odd", ("If?",), True), Entry("file/81", "writing", ODE, True)],
        ),
        (
            dataset_rows.BARE,
            "file",
            [
                Entry("file/1", "file", ("Once upon a time",), False),
                Entry("file/2", "code", ("def f(x):",), False),
                Entry("mine", "file", ("Hello",), False),
            ],
        ),
        (
            [
                {"id": "a/0", "task": "t", "prompt": "hello"},
                {"id": "a/1", "task": "t", "turns": ["x", "y"]},
            ],
            "file",
            [Entry("a/0", "t", ("hello",), False), Entry("a/1", "t", ("x", "y"), True)],
        ),
        (
            [
                {"id": "a/0", "task": "prose_continuation", "prompt": "x"},
                {"id": "a/1", "task": "t", "prompt": "x", "completion": True},
                {"id": "a/2", "task": "code_completion", "prompt": "x", "completion": False},
            ],
            "file",
            [
                Entry("a/0", "prose_continuation", ("x",), False, True),
                Entry("a/1", "t", ("x",), False, True),
                Entry("a/2", "code_completion", ("x",), False, False),
            ],
        ),
        (
            dataset_rows.SPEED_BENCH,
            "speed_bench",
            [
                Entry("speed_bench/q1", "coding", ("Write it.", "Faster."), True),
                Entry("speed_bench/q2", "rag", ("Who?",), True),
            ],
        ),
        (
            [{**dataset_rows.SPEED_BENCH[0], "category": "low_entropy"}],
            "speed_bench_throughput",
            [Entry("speed_bench_throughput/q1", "low_entropy", ("Write it.", "Faster."), True)],
        ),
        # A rewritten row may keep its own keys.
        (
            [dataset_rows.GSM8K[0] | dataset_rows.OWN[0]],
            "file",
            [Entry("a/0", "t", ("hello",), False)],
        ),
    ],
)
def test_rows_become_the_prompts_of_their_set(
    given: list[dict[str, object]], name: str, wanted: list[Entry]
) -> None:
    assert found(given) == (name, wanted)


def test_spec_bench_counts_the_categories_of_mt_bench_as_one_of_its_six_tasks() -> None:
    name, made = found(dataset_rows.SPEC_BENCH)
    assert name == "spec_bench"
    assert [(e.id, e.task) for e in made] == [
        ("spec_bench/81", "mt_bench"),
        ("spec_bench/111", "mt_bench"),
        ("spec_bench/161", "translation"),
        ("spec_bench/241", "summarization"),
        ("spec_bench/321", "qa"),
        ("spec_bench/401", "math_reasoning"),
        ("spec_bench/481", "rag"),
    ]


@pytest.mark.parametrize(
    "category", ["writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem"]
)
def test_every_category_of_mt_bench_is_one_of_its_own(category: str) -> None:
    alone = {"question_id": 1, "category": category, "turns": ["x"]}
    beside = {"question_id": 2, "category": "humanities", "turns": ["x"]}
    assert found([alone, beside])[0] == "mt_bench"
    rag = {"question_id": 3, "category": "rag", "turns": ["x"]}
    assert [e.task for e in found([alone, beside, rag])[1]] == ["mt_bench", "mt_bench", "rag"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"]},
            "f:1: this is a placeholder, .* prepare.py",
        ),
        ({"turns": []}, "'turns' must be a list of texts"),
    ],
)
def test_a_speed_bench_row_without_its_text_is_refused(
    changed: dict[str, object], message: str
) -> None:
    with pytest.raises(DraftwoodError, match=message):
        found([dataset_rows.SPEED_BENCH[0] | changed])


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "must be a list of messages"),
        ([{"role": "system", "content": "x"}], "must be those of the user only"),
        ([{"role": "user"}], "must be a list of texts"),
    ],
)
def test_speed_bench_messages_are_the_users_turns(messages: list[object], message: str) -> None:
    with pytest.raises(DraftwoodError, match=message):
        found([dataset_rows.SPEED_BENCH[1] | {"messages": messages}])


def test_completion_must_be_a_truth_value() -> None:
    with pytest.raises(DraftwoodError, match="'completion' must be true or false"):
        found([{"id": "a", "task": "t", "prompt": "x", "completion": "yes"}])


def test_there_is_a_sample_of_every_format() -> None:
    assert list(dataset_rows.ALL) == list(formats())


@pytest.mark.parametrize("name", dataset_rows.ALL)
def test_every_sample_is_known_by_its_format_alone(name: str) -> None:
    for row in dataset_rows.ALL[name]:
        assert [n for n, form in formats().items() if form.knows(row)] == [name]


@pytest.mark.parametrize("name", dataset_rows.ALL)
def test_every_required_key_is_needed(name: str) -> None:
    form, row = formats()[name], dataset_rows.ALL[name][0]
    for key in form.required:
        assert key in form.shape
        assert not form.knows({k: v for k, v in row.items() if k != key})


def test_more_keys_do_no_harm() -> None:
    plus = dataset_rows.HUMANEVAL[0] | {"base_input": [[1]], "atol": 0}
    assert recognise(rows(plus)[0]) == "humaneval"


def test_an_unknown_shape_is_refused_with_its_keys_and_the_formats() -> None:
    with pytest.raises(DraftwoodError) as caught:
        found([{"text": "x", "label": 3}])
    message = str(caught.value)
    assert message.startswith("f:1: no format has the keys label, text: known are bare (prompt ")
    assert all(f"{name} ({form.shape})" in message for name, form in formats().items())


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"question": "How many?", "answer": "6"},
        {"question": "How many?", "answer": {"value": "6"}},
        dataset_rows.MBPP[0] | dataset_rows.MBPP_SANITIZED[0],
        {"prompt_id": 1, "category": "writing", "prompt": "one text"},
    ],
)
def test_what_only_looks_like_a_published_shape_is_unknown(row: dict[str, object]) -> None:
    with pytest.raises(DraftwoodError, match="f:1: no format has the keys"):
        found([row])


def test_a_row_of_two_formats_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="f:1: this is gsm8k and humaneval at once"):
        found([dataset_rows.GSM8K[0] | dataset_rows.HUMANEVAL[0]])


def test_a_set_has_one_format() -> None:
    with pytest.raises(DraftwoodError) as caught:
        found([*dataset_rows.HUMANEVAL, dataset_rows.GSM8K[0]])
    message = str(caught.value)
    assert message.startswith("f:3: 'task_id' is missing among the keys answer, question: ")
    assert "the rows before are humaneval (task_id, prompt, " in message
    with pytest.raises(DraftwoodError, match="f:2: found the keys answer, question"):
        found([dataset_rows.GSM8K[0], {"question": "x", "answer": "no result"}])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": ""}, "'prompt' is empty: write a text, or leave the"),
        ({"id": "a", "task": "t"}, "give either 'prompt' or 'turns'"),
        (dataset_rows.HUMANEVAL[0] | {"prompt": 3}, "'prompt' is missing or not a text"),
        (dataset_rows.HUMANEVAL[0] | {"task_id": None}, "'task_id' must be a number or a text"),
        (dataset_rows.HUMANEVAL[0] | {"task_id": ""}, "'task_id' must be a number or a text"),
        (dataset_rows.GSM8K[0] | {"question": ""}, "'question' is empty: write a text, or leave"),
        (dataset_rows.MBPP[0] | {"test_list": "assert"}, "'test_list' must be a list of texts"),
        (dataset_rows.MBPP[0] | {"test_list": []}, "'test_list' must be a list of texts"),
        (dataset_rows.MBPP[0] | {"task_id": True}, "'task_id' must be a number or a text"),
        (dataset_rows.MT_BENCH[0] | {"turns": ["x", ""]}, "list of texts, none of them empty"),
        (dataset_rows.MT_BENCH[0] | {"turns": ["x", 2]}, "'turns' must be a list of texts"),
        (dataset_rows.MT_BENCH[0] | {"category": ["a"]}, "'category' is missing or not a text"),
        (dataset_rows.MT_BENCH_PROMPTS[0] | {"prompt": []}, "'prompt' must be a list of texts"),
    ],
)
def test_refuses_members_that_cannot_be_used(row: dict[str, object], message: str) -> None:
    with pytest.raises(DraftwoodError) as caught:
        found([row])
    assert str(caught.value).startswith("f:1: ")
    assert message in str(caught.value)

"""Reading prompt sets: what is understood, and every refusal with its place."""

import gzip
import json
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench import sources as reading
from draftwood.lab.bench.formats._entry import SourceRow
from draftwood.lab.bench.prompts import Prompt, read, sources
from tests.lab.bench import dataset_rows


def lines(path: Path, *items: object) -> Path:
    path.write_text("\n".join(i if isinstance(i, str) else json.dumps(i) for i in items) + "\n")
    return path


def item(id: str, **more: object) -> dict[str, object]:
    return {"id": id, "task": "t", "prompt": "hello", **more}


def test_reads_prompts_and_dialogues(tmp_path: Path) -> None:
    turns = {"id": "m/0", "task": "chat", "turns": ["one", "two"], "extra": [1]}
    first = lines(tmp_path / "code.jsonl", item("c/0"), "", item("c/1"))
    second = lines(tmp_path / "mt.jsonl", turns)
    found = read([first, second])
    assert [(p.id, p.set, p.turns, p.dialogue) for p in found] == [
        ("c/0", "code", ("hello",), False),
        ("c/1", "code", ("hello",), False),
        ("m/0", "mt", ("one", "two"), True),
    ]


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    text = '{"id": "a", "task": "t", "prompt": "one\u2028two\x0bthree"}'
    path = tmp_path / "a.jsonl"
    path.write_text(text.replace("\x0b", "\\u000b"), encoding="utf-8")
    assert read([path])[0].turns == ("one\u2028two\x0bthree",)


def test_limit_takes_prompts_of_each_set_evenly(tmp_path: Path) -> None:
    first = lines(tmp_path / "a.jsonl", *(item(f"a/{i}") for i in range(10)))
    second = lines(tmp_path / "b.jsonl", *(item(f"b/{i}") for i in range(3)))
    ids = [p.id for p in read([first, second], limit=3)]
    assert ids == ["a/0", "a/3", "a/6", "b/0", "b/1", "b/2"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "a", ', "bad.jsonl:2: not a line of JSON"),
        ("[1]", "bad.jsonl:2: expected a JSON object"),
        ({"task": "t", "prompt": "x"}, "bad.jsonl:2: 'id' is missing"),
        (
            '{"id": "a", "task": "t", "prompt": "ab\\ud800"}',
            "bad.jsonl:2: the prompt has half a surrogate pair at character 2",
        ),
        (
            '{"id": "a", "task": "t", "turns": ["x", "\\udfff"]}',
            "bad.jsonl:2: the prompt has half a surrogate pair at character 0",
        ),
        ({"id": 7, "task": "t", "prompt": "x"}, "bad.jsonl:2: 'id' is missing"),
        ({"id": "a", "prompt": "x"}, "bad.jsonl:2: 'task' is missing"),
        ({"id": "a", "task": "t"}, "either 'prompt' or 'turns'"),
        ({"id": "a", "task": "t", "prompt": "x", "turns": ["y"]}, "either 'prompt' or 'turns'"),
        ({"id": "a", "task": "t", "prompt": ""}, "'prompt' is empty: write a text"),
        ({"id": "a", "task": "t", "turns": []}, "'turns' must be a list of texts"),
        ({"id": "a", "task": "t", "turns": ["x", 3]}, "'turns' must be a list of texts"),
        ({"id": "a", "task": "t", "turns": "xy"}, "'turns' must be a list of texts"),
        (item("fine"), "id 'fine' is taken by"),
    ],
)
def test_refuses_a_bad_line(tmp_path: Path, line: object, said: str) -> None:
    path = lines(tmp_path / "bad.jsonl", item("fine"), line)
    with pytest.raises(DraftwoodError) as caught:
        read([path])
    assert said in str(caught.value)


def test_refuses_unreadable_and_empty_files(tmp_path: Path) -> None:
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b"\xff\xfe\xe9")
    for path in (tmp_path / "missing.jsonl", tmp_path, latin):
        with pytest.raises(DraftwoodError, match="cannot read prompts"):
            read([path])
    with pytest.raises(DraftwoodError, match="has no prompts"):
        read([lines(tmp_path / "empty.jsonl", "")])
    with pytest.raises(DraftwoodError, match="no prompts"):
        read([])


def test_refuses_ids_and_sets_that_occur_twice(tmp_path: Path) -> None:
    first = lines(tmp_path / "a.jsonl", item("same"))
    with pytest.raises(DraftwoodError, match=r"taken by .*a\.jsonl:1"):
        read([first, lines(tmp_path / "b.jsonl", item("same"))])
    (tmp_path / "more").mkdir()
    with pytest.raises(DraftwoodError, match="both set 'a'"):
        read([first, lines(tmp_path / "more" / "a.jsonl", item("other"))])


def test_published_sets_are_read_under_any_name(tmp_path: Path) -> None:
    packed = tmp_path / "a.txt"
    content = "\n".join(json.dumps(row) for row in dataset_rows.HUMANEVAL)
    packed.write_bytes(gzip.compress(content.encode()))
    array = tmp_path / "sanitized-mbpp.json"
    array.write_text(json.dumps(dataset_rows.MBPP_SANITIZED, indent=1))
    chat = lines(tmp_path / "question.jsonl", *dataset_rows.MT_BENCH)
    found = read([packed, array, chat])
    assert [(p.id, p.task, p.set, p.dialogue) for p in found] == [
        ("HumanEval/0", "code_completion", "humaneval", False),
        ("HumanEval/1", "code_completion", "humaneval", False),
        ("mbpp/12", "code_generation", "mbpp", False),
        ("mt_bench/81", "writing", "mt_bench", True),
        ("mt_bench/111", "math", "mt_bench", True),
    ]


def test_ids_do_not_depend_on_the_limit(tmp_path: Path) -> None:
    path = lines(tmp_path / "test.jsonl", *(dataset_rows.GSM8K * 4))
    assert [p.id for p in read([path], limit=2)] == ["gsm8k/0", "gsm8k/4"]


def test_two_question_files_may_stand_side_by_side(tmp_path: Path) -> None:
    for name, rows in (("spec", dataset_rows.SPEC_BENCH), ("mt", dataset_rows.MT_BENCH)):
        (tmp_path / name).mkdir()
        lines(tmp_path / name / "question.jsonl", *rows)
    found = read([tmp_path / "spec" / "question.jsonl", tmp_path / "mt" / "question.jsonl"])
    assert {p.set for p in found} == {"spec_bench", "mt_bench"}
    assert len({p.id for p in found}) == len(found) == 9


def test_datasets_are_recognised_like_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def table(source: str) -> reading.SourceTable:
        rows = dataset_rows.OWN if source.endswith("mine") else dataset_rows.GSM8K
        name = source.removeprefix("hf:").partition(":")[0].rpartition("/")[2]
        return reading.SourceTable(
            name, tuple(SourceRow("", i, row) for i, row in enumerate(rows)), {}
        )

    monkeypatch.setattr(reading, "dataset", table)
    names = sources("hf:openai/gsm8k:main:test,hf:me/mine")
    assert names == ("hf:openai/gsm8k:main:test", "hf:me/mine")
    found = read(names)
    assert [(p.id, p.set) for p in found] == [
        ("gsm8k/0", "gsm8k"),
        ("gsm8k/1", "gsm8k"),
        ("a/0", "mine"),
    ]
    # A path of that name is the dataset too, so that callers may keep names as paths.
    assert read([Path("hf:me/mine")]) == [Prompt("a/0", "t", "mine", ("hello",))]


def test_sources_are_files_and_datasets() -> None:
    assert sources("a.jsonl,,hf:o/n:c:s,b/c.json") == (
        Path("a.jsonl"),
        "hf:o/n:c:s",
        Path("b/c.json"),
    )
    assert sources("") == ()

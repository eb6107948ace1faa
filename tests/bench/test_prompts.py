"""Reading prompt sets: what is understood, and every refusal with its place."""

import json
from pathlib import Path

import pytest

from draftwood.bench.prompts import evenly, read
from draftwood.errors import DraftwoodError


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
    second = lines(tmp_path / "b.jsonl", *(item(f"b/{i}") for i in range(2)))
    ids = [p.id for p in read([first, second], limit=3)]
    assert ids == ["a/0", "a/3", "a/6", "b/0", "b/1"]


def test_evenly_keeps_all_when_there_are_few(tmp_path: Path) -> None:
    prompts = read([lines(tmp_path / "a.jsonl", *(item(f"{i}") for i in range(7)))])
    assert evenly(prompts, 7) == prompts
    assert len({p.id for p in evenly(prompts, 6)}) == 6


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "a", ', "bad.jsonl:2: not a line of JSON"),
        ("[1]", "bad.jsonl:2: expected a JSON object"),
        ({"task": "t", "prompt": "x"}, "bad.jsonl:2: 'id' is missing"),
        ({"id": 7, "task": "t", "prompt": "x"}, "bad.jsonl:2: 'id' is missing"),
        ({"id": "a", "prompt": "x"}, "bad.jsonl:2: 'task' is missing"),
        ({"id": "a", "task": "t"}, "either 'prompt' or 'turns'"),
        ({"id": "a", "task": "t", "prompt": "x", "turns": ["y"]}, "either 'prompt' or 'turns'"),
        ({"id": "a", "task": "t", "prompt": ""}, "must be a text"),
        ({"id": "a", "task": "t", "turns": []}, "must be a text"),
        ({"id": "a", "task": "t", "turns": ["x", 3]}, "must be a text"),
        ({"id": "a", "task": "t", "turns": "xy"}, "must be a text"),
        (item("fine"), "id 'fine' is taken by"),
    ],
)
def test_refuses_a_bad_line(tmp_path: Path, line: object, said: str) -> None:
    path = lines(tmp_path / "bad.jsonl", item("fine"), line)
    with pytest.raises(DraftwoodError) as caught:
        read([path])
    assert said in str(caught.value)


def test_refuses_unreadable_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="cannot read prompts"):
        read([tmp_path / "missing.jsonl"])
    with pytest.raises(DraftwoodError, match="cannot read prompts"):
        read([tmp_path])
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe\xe9")
    with pytest.raises(DraftwoodError, match="cannot read prompts"):
        read([tmp_path / "latin.jsonl"])
    with pytest.raises(DraftwoodError, match="holds no prompts"):
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

"""Views: prompts made of published rows, with their texts, the same whatever the limit."""

import json
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.prompts import Prompt, read, sources
from draftwood.lab.bench.provenance import decisive, provenance
from tests.lab.bench import dataset_rows

CLASS: dict[str, object] = {
    "id": "c/0",
    "task": "t",
    "prompt": "Complete it.",
    "reference": "class Pear:\n    pass\n",
}
PARAGRAPHS: list[dict[str, object]] = [
    {
        "id": f"w/{i}",
        "task": "continuation",
        "title": "Du Fu",
        "prompt": "He fl",
        "reference": "ed.",
    }
    for i in range(40)
]
RAG: dict[str, object] = {
    "question_id": 481,
    "category": "rag",
    "turns": ["In 1066 William of Normandy came.\nHe won.\nWho came?"],
}
SQUAD: dict[str, object] = {
    "id": "q",
    "title": "t",
    "context": "A pear fell.",
    "question": "What fell?",
}


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def made(view: str, place: Path, *sets: list[dict[str, object]]) -> list[Prompt]:
    files = [write(place / f"{n}.jsonl", rows) for n, rows in enumerate(sets)]
    return read(sources(f"{view}:{'+'.join(files)}"))


def test_edit_gives_the_code_of_several_sets(tmp_path: Path) -> None:
    found = made("edit", tmp_path, dataset_rows.HUMANEVAL, dataset_rows.MBPP, [CLASS])
    assert {prompt.set for prompt in found} == {"edit"}
    assert [prompt.id for prompt in found] == [
        *("edit/HumanEval/0", "edit/HumanEval/1", "edit/11", "edit/c/0")
    ]
    codes = [
        "    return n / 2",
        "def nothing():\n    pass",
        "def double(n):\n  return",
        "class Pear",
    ]
    for prompt, code in zip(found, codes, strict=True):
        assert prompt.dialogue
        assert not prompt.completion
        assert prompt.task.startswith("edit_")
        assert len(prompt.turns) == (3 if prompt.task == "edit_dialogue" else 1)
        assert code in prompt.turns[0]
        assert "\r" not in prompt.turns[0]


def test_names_in_an_edit_are_those_of_the_code(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": str(i), "task": "t", "code": f"x = 1\ndef f{i}(): return {{}}"} for i in range(60)
    ]
    found = made("edit", tmp_path, rows)
    assert len({prompt.task for prompt in found}) == 7
    renamed = [prompt for prompt in found if prompt.task == "edit_rename"]
    assert renamed
    for prompt in renamed:
        number = prompt.id.rpartition("/")[2]
        assert f"`f{number}`" in prompt.turns[0]
        assert f"`revised_f{number}`" in prompt.turns[0]


def test_passages_are_summarised_answered_from_and_extracted_from(tmp_path: Path) -> None:
    found = made("passage", tmp_path, PARAGRAPHS)
    assert {p.task for p in found} == {"summarise", "answer", "extract", "passage_dialogue"}
    assert all("He fled." in prompt.turns[0] for prompt in found)
    assert all("Du Fu" in prompt.turns[0] for prompt in found if prompt.task == "answer")


def test_a_question_of_the_row_is_asked_and_rows_without_a_passage_are_left_out(
    tmp_path: Path,
) -> None:
    rag, squad = made("passage", tmp_path, [RAG, dataset_rows.MT_BENCH[0]], [SQUAD])
    assert (rag.task, squad.task) == ("answer", "answer")
    assert rag.turns[0].endswith("He won.\n\nWho came?")
    assert squad.turns[0].endswith("A pear fell.\n\nWhat fell?")


def test_a_limit_does_not_change_a_prompt_and_a_file_may_move(tmp_path: Path) -> None:
    name = write(tmp_path / "w.jsonl", PARAGRAPHS)
    whole = read(sources(f"passage:{name}"))
    assert set(read(sources(f"passage:{name}"), limit=7)) < set(whole)
    (tmp_path / "elsewhere").mkdir()
    moved = write(tmp_path / "elsewhere" / "w.jsonl", PARAGRAPHS)
    other = write(tmp_path / "elsewhere" / "v.jsonl", PARAGRAPHS[1:])

    def facts(file: str) -> dict[str, object]:
        return decisive(provenance(model={}, settings={}, sets=sources(f"passage:{file}")))

    assert facts(name) == facts(moved)
    assert facts(name)["prompts"] != facts(other)["prompts"]


@pytest.mark.parametrize(
    ("view", "rows", "message"),
    [
        ("edit", [{"id": "a", "task": "t", "prompt": "x"}], "no code to edit"),
        ("edit", [{"id": "a", "task": "t", "code": 3}], "'code' is missing or not a text"),
        ("passage", dataset_rows.MT_BENCH, "none of its rows suits the view 'passage'"),
    ],
)
def test_rows_that_a_view_cannot_use_are_refused(
    tmp_path: Path, view: str, rows: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(DraftwoodError, match=message):
        made(view, tmp_path, rows)


def test_a_name_that_only_begins_like_a_view_is_a_file() -> None:
    assert sources("edits:x,editorial") == (Path("edits:x"), Path("editorial"))

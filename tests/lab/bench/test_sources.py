"""Rows of files: lines, arrays and gzip, by content; errors name the place."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats._entry import SourceRow
from draftwood.lab.bench.sources import load

ITEMS: list[dict[str, object]] = [{"a": 1}, {"a": "é\u2028"}]


def rows(path: Path) -> tuple[SourceRow, ...]:
    return load(path).rows


def as_lines() -> bytes:
    return ("\n\n".join(json.dumps(i, ensure_ascii=False) for i in ITEMS) + "\r\n").encode()


def as_array() -> bytes:
    return b"\n " + json.dumps(ITEMS, indent=2).encode()


@pytest.mark.parametrize("content", [as_lines(), as_array()])
@pytest.mark.parametrize("file", ["x.jsonl", "x.json", "x.jsonl.gz", "x"])
def test_content_decides_and_not_the_name(tmp_path: Path, content: bytes, file: str) -> None:
    for data in (content, gzip.compress(content)):
        (tmp_path / file).write_bytes(data)
        assert [(row.number, row.values) for row in rows(tmp_path / file)] == [
            (0, {"a": 1}),
            (1, {"a": "é\u2028"}),
        ]


def test_rows_have_their_line_or_item(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(as_lines())
    assert [row.where for row in rows(path)] == [f"{path}:1", f"{path}:3"]
    path.write_bytes(as_array())
    assert [row.where for row in rows(path)] == [f"{path}, item 1", f"{path}, item 2"]


@pytest.mark.parametrize(
    ("file", "called"),
    [
        ("HumanEval.jsonl.gz", "HumanEval"),
        ("a.jsonl", "a"),
        ("a.b.json", "a.b"),
        ("plain", "plain"),
    ],
)
def test_names(tmp_path: Path, file: str, called: str) -> None:
    (tmp_path / file).write_bytes(as_lines())
    assert load(tmp_path / file).name == called


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": ', "x:2: not a line of JSON"),
        (b'{"a": 1}\n\n[1]', "x:3: expected a JSON object"),
        (b'[{"a": 1}, 2]', "x, item 2: expected a JSON object"),
        (b'[{"a": 1}', "x: begins like a JSON array and is none"),
        (b"\xff\xfe\xe9", "cannot read prompts from"),
        (gzip.compress(b'{"a": 1}', mtime=0)[:-9], "cannot read prompts from"),
        (b"\x1f\x8bno gzip", "cannot read prompts from"),
        (gzip.compress(b"\xff", mtime=0), "cannot read prompts from"),
        (gzip.compress(b"{", mtime=0), "x:1: not a line of JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "x:1: not a line of JSON"),
        (b"1" * 5000, "x:1: not a line of JSON"),
        (b"[" + b"1" * 5000 + b"]", "x: begins like a JSON array and is none"),
        (b"[" * 100_000, "x: begins like a JSON array and is none"),
        (b'{"a": ' * 100_000, "x:1: not a line of JSON"),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DraftwoodError) as caught:
        rows(tmp_path / "x")
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [as_lines(), as_array()])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbf" + content)
    assert [row.values for row in rows(tmp_path / "x")] == ITEMS


@pytest.mark.parametrize("content", [b"", b" \n\n", b"[]"])
def test_an_empty_file_has_no_rows(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert rows(tmp_path / "x") == ()


def test_the_digest_is_of_the_stored_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(as_lines()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert load(path).origin == {"file": str(path), "sha256": digest}


def test_plain_text_has_one_prompt_per_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes('def f(x):\n\n  He said "hi"\u2028so.\r\nTell {me}\n'.encode())
    found = rows(path)
    assert [row.values for row in found] == [
        {"prompt": "def f(x):"},
        {"prompt": '  He said "hi"\u2028so.'},
        {"prompt": "Tell {me}"},
    ]
    assert [(row.where, row.number) for row in found] == [
        (f"{path}:1", 0),
        (f"{path}:3", 1),
        (f"{path}:4", 2),
    ]


@pytest.mark.parametrize("first", ['{"prompt": ', '"a text"', "{oops}"])
def test_text_that_begins_like_json_is_not_plain_text(tmp_path: Path, first: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(first + "\nmore\n")
    with pytest.raises(DraftwoodError, match=r"x\.jsonl:1: "):
        rows(path)

"""Text files as documents, and documents as windows."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import DraftwoodError
from draftwood.lab.harvest.texts import read_texts
from draftwood.lab.harvest.windows import batches_of, shards_of, windows_of
from tests.factories.tiny_llama import tiny_tokenizer

_STORED = gzip.compress(b"".join(b"%d " % i for i in range(999)), mtime=0)
DOCUMENTS = ["one\n two", "three", " \n", "four <|endoftext|> five\n"]


def write(path: Path, content: str) -> Path:
    plain = content.encode()
    path.write_bytes(gzip.compress(plain) if path.suffix == ".gz" else plain)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.jsonl.gz"])
def test_documents_of_every_kind_of_file(tmp_path: Path, name: str) -> None:
    lines = [json.dumps({"text": text, "id": 3}) for text in DOCUMENTS]
    separated = "".join(f"{text}\n<|endoftext|>\n" for text in DOCUMENTS)
    content = "\n".join(lines) if ".jsonl" in name else separated
    (source,) = read_texts([write(tmp_path / name, content)])
    # A document without text is none; the numbers in messages count it all the same.
    assert [each.text for each in source.documents] == [DOCUMENTS[i] for i in (0, 1, 3)]
    assert source.documents[2].name == f"{tmp_path / name}, document 4"


def test_the_last_document_needs_no_separator(tmp_path: Path) -> None:
    (source,) = read_texts([write(tmp_path / "a.txt", "one\r\n<|endoftext|>\r\ntwo")])
    assert [each.text for each in source.documents] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"text", r"is no text file: give \.txt, \.txt\.gz, \.jsonl, \.jsonl\.gz"),
        ("a.txt", b"\n<|endoftext|>\n \n", "has no text"),
        ("a.txt", b"caf\xe9", "is damaged"),
        ("a.txt.gz", gzip.compress(b"text" * 99, mtime=0)[:-9], "is damaged"),
        ("a.txt.gz", b"text", "is damaged"),
        ("a.txt.gz", _STORED[:60] + bytes(10) + _STORED[70:], "is damaged"),
        ("a.jsonl", b'{"text": "a"}\n{"text"', "line 2, is not JSON"),
        ("a.jsonl", b'{"text": "a"}\n\n{"prompt": "a"}', 'line 3, has no "text"'),
        ("a.jsonl", b"3", 'line 1, has no "text"'),
        ("a.jsonl", b'{"text": ' * 100_000, "line 1, is not JSON"),
        ("a.jsonl", b'{"text": "a\\ud800"}', "line 1, has half a surrogate pair at character 1"),
        ("missing.txt", None, "cannot read"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DraftwoodError, match=said):
        read_texts([tmp_path / name])


def test_the_same_text_twice_is_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, "text") for name in ("a.txt", "b.txt")]
    with pytest.raises(DraftwoodError, match="are the same text: give it once"):
        read_texts(paths)


@given(st.lists(st.text("abc", min_size=1, max_size=30), max_size=20), st.integers(0, 99))
def test_windows_hold_every_token_in_an_order_of_their_own(texts: list[str], seed: int) -> None:
    tokenizer = tiny_tokenizer()
    found = [window.tolist() for window in windows_of(texts, tokenizer, 8, None)]
    cut = [tokenizer.encode(t)[at : at + 8] for t in texts for at in range(0, len(t), 8)]
    assert sorted(found) == sorted(cut)
    random.Random(seed).shuffle(texts)
    assert found == [window.tolist() for window in windows_of(texts, tokenizer, 8, None)]
    for limit in (1, 10, 1000):
        first = windows_of(texts, tokenizer, 8, limit)
        assert sum(map(len, first)) == min(limit, sum(map(len, texts)))


def test_a_rendered_chat_gets_no_second_beginning() -> None:
    class Beginning:
        bos_token = "<s>"

        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            return [0] * add_special_tokens + [1] * len(text.removeprefix("<s>"))

    windows = windows_of(["<s>ab", "abc"], Beginning(), 8, None)
    assert [window.tolist() for window in windows] == [[1, 1], [0, 1, 1, 1]]


@given(st.lists(st.text("abc", min_size=1, max_size=30), min_size=1, max_size=20))
def test_batches_and_shards_keep_the_order_and_their_sizes(texts: list[str]) -> None:
    windows = windows_of(texts, tiny_tokenizer(), 8, None)
    for parts in (list(batches_of(windows, 16)), shards_of(windows, 20)):
        assert [window.tolist() for part in parts for window in part] == [
            window.tolist() for window in windows
        ]
        assert all(parts)
    for batch in batches_of(windows, 16):
        assert max(map(len, batch)) * len(batch) <= 16
    assert all(sum(map(len, part)) < 20 + 8 for part in shards_of(windows, 20))

"""Documents, what is held out of them, and the cache of their tokens."""

import copy
import gzip
from pathlib import Path

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.lab.train.corpus import (
    find_sources,
    load_domain,
    read_documents,
    sample_texts,
    split_documents,
)
from tests.lab.train.conftest import write_domain


def test_sources_are_named_after_files(corpus: Path) -> None:
    sources = find_sources(corpus)
    assert [source.domain for source in sources] == ["code", "prose"]
    assert all(source.size == source.path.stat().st_size for source in sources)
    assert len({source.sha256 for source in sources}) == 2


def test_a_missing_or_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DraftwoodError, match="does not exist"):
        find_sources(tmp_path / "none")
    with pytest.raises(DraftwoodError, match=r"no \*\.txt\.gz"):
        find_sources(tmp_path)


def test_documents_end_at_the_separator(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wt", newline="") as file:
        file.write("one\r\n\n<|endoftext|>\ntwo\n<|endoftext|>\n\n<|endoftext|>\n")
    write_domain(tmp_path, "empty", [""])
    full, empty = find_sources(tmp_path)
    assert read_documents(full) == ["one\r\n", "two"]
    with pytest.raises(DraftwoodError, match="two or more"):
        read_documents(empty)


@pytest.mark.parametrize("fault", ["cut", "damaged", "latin-1", "plain"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, fault: str) -> None:
    stored = bytearray(gzip.compress(b"".join(b"%d\n<|endoftext|>\n" % i for i in range(999))))
    if fault == "damaged":
        stored[60:70] = bytes(10)
    content = {
        "cut": bytes(stored[:-20]),
        "damaged": bytes(stored),
        "latin-1": gzip.compress("café".encode("latin-1")),
        "plain": b"text",
    }[fault]
    (tmp_path / "a.txt.gz").write_bytes(content)
    (source,) = find_sources(tmp_path)
    with pytest.raises(DraftwoodError, match=rf"cannot read {source.path}: .* write it anew"):
        read_documents(source)


def test_the_last_half_percent_is_held_out() -> None:
    train, held_out = split_documents(["x" * 10] * 1000)
    assert (len(train), len(held_out)) == (995, 5)
    assert split_documents(["long " * 100, "b"]) == (["long " * 100], ["b"])
    assert split_documents(["a", "b", "c" * 999]) == (["a", "b"], ["c" * 999])
    assert split_documents(["a" * 999, "b", "c"]) == (["a" * 999], ["b", "c"])


def test_tokens_hold_every_document_and_its_end(
    corpus: Path, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    source = find_sources(corpus)[0]
    domain = load_domain(source, tokenizer, tmp_path)
    train, held_out = split_documents(read_documents(source))
    assert domain.train.dtype == np.uint16
    for tokens, documents in ((domain.train, train), (domain.held_out, held_out)):
        assert tokenizer.decode(tokens) == "<|endoftext|>".join([*documents, ""])


def test_the_cache_is_used_and_keyed_by_file(
    corpus: Path,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, prose = find_sources(corpus)
    first = load_domain(code, tokenizer, tmp_path)

    def refuse(source: object) -> list[str]:
        raise AssertionError("the file was read again")

    monkeypatch.setattr("draftwood.lab.train.corpus.read_documents", refuse)
    assert np.array_equal(load_domain(code, tokenizer, tmp_path).train, first.train)
    with pytest.raises(AssertionError, match="read again"):
        load_domain(prose, tokenizer, tmp_path)


def test_samples_follow_the_mixture(corpus: Path) -> None:
    sources = find_sources(corpus)
    texts = list(sample_texts(sources, {"code": 0.8, "prose": 0.2}, 10_000, seed=1))
    code = sum(len(text) for text in texts if "return" in text)
    assert abs(code / sum(map(len, texts)) - 0.8) < 0.1
    assert texts == list(sample_texts(sources, {"code": 0.8, "prose": 0.2}, 10_000, seed=1))
    everything = list(sample_texts(sources, {"code": 0.8, "prose": 0.2}, 10**9, seed=1))
    assert sum(map(len, everything)) < 100_000


def test_a_chat_that_begins_with_its_own_first_token_has_it_once(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    own = copy.deepcopy(tokenizer)
    own.add_special_tokens({"bos_token": "<s>"})
    pair = ("<s>", own.bos_token_id)
    own.backend_tokenizer.post_processor = TemplateProcessing("<s> $A", special_tokens=[pair])
    write_domain(tmp_path, "chat", ["<s>abc", "abc", "abc"])
    [source] = find_sources(tmp_path)
    tokens = load_domain(source, own, tmp_path / "cache").train.tolist()
    assert tokens.count(own.bos_token_id) == 2
    plain = load_domain(source, tokenizer, tmp_path / "cache").train.tolist()
    assert plain != tokens

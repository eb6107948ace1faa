"""Files of adjacency tables: of which target they are, and what a damaged one says."""

import dataclasses
import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from draftwood.drafters.adjacency import table_file
from draftwood.drafters.adjacency.drafter import Adjacency
from draftwood.drafters.adjacency.table import PreparedTable
from draftwood.drafters.adjacency.table_file import load
from draftwood.errors import DraftwoodError
from draftwood.protocols import Fingerprint, Host, TargetInfo
from tests.factories.markov_target import FakeHost
from tests.factories.prepared_tables import ANY, prepared_table, save_table

V, K = 9, 4
INFO = TargetInfo(V, 64, 1, 8, torch.device("cpu"), torch.float32)
ROWS = {(1, 2): {3: 0.5, 4: 0.25}, (ANY, 2): {5: 0.5}}
WEIGHTS = Fingerprint("llama", 2, 8, V, (0.5, 0.25))
OTHERS = Fingerprint("llama", 2, 8, V, (0.5, 0.75))
TABLE = prepared_table(ROWS, V, K, vocabulary="mine", fingerprint=WEIGHTS)


def host_of(vocabulary: str, info: TargetInfo = INFO) -> FakeHost:
    host = FakeHost(info)
    host.vocabulary = vocabulary
    return host


def build(path: Path, host: Host, table: PreparedTable = TABLE, width: int = K) -> None:
    Adjacency(width=width, table=save_table(path / "table.safetensors", table)).build(host)


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    path = Path(save_table(tmp_path / "table.safetensors", TABLE))
    back = load(path)
    assert back.facts == TABLE.facts
    for name in ("keys", "lengths", "tokens", "codes"):
        a, b = getattr(back, name), getattr(TABLE, name)
        assert a.dtype == b.dtype
        assert (a == b).all()
    assert load(path) is back
    # A file that is replaced is read again.
    save_table(path, prepared_table({(ANY, 2): {5: 0.5}}, V, K))
    assert len(load(path).keys) == 1


def test_the_targets_own_table_is_used_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    own = dataclasses.replace(INFO, fingerprint=WEIGHTS)
    for host in (host_of("mine", own), host_of("mine"), host_of("")):
        build(tmp_path, host)
    assert not caplog.records


def test_other_weights_are_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from draftwood.engine.host import ModelHost
    from tests.factories.markov_target import MarkovTarget

    target = MarkovTarget(V)
    target.info = dataclasses.replace(target.info, fingerprint=OTHERS)
    host = ModelHost(target)
    for _ in range(2):
        build(tmp_path, host)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "was made with other weights (some model)" in caplog.text


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (host_of("another"), "some model, which has another tokenizer: harvest one"),
        (
            FakeHost(dataclasses.replace(INFO, vocab_size=V + 1)),
            "which has another vocabulary, of 9 tokens and not 10: harvest one",
        ),
    ],
)
def test_a_table_of_another_vocabulary_is_refused(tmp_path: Path, host: Host, said: str) -> None:
    with pytest.raises(DraftwoodError, match=said):
        build(tmp_path, host)


def test_a_narrower_table_is_refused(tmp_path: Path) -> None:
    build(tmp_path, FakeHost(INFO), width=K)
    with pytest.raises(DraftwoodError, match="has 4 successors of a key, and 5 are asked for"):
        build(tmp_path, FakeHost(INFO), width=K + 1)


def test_a_missing_file_is_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(DraftwoodError, match=r"there is no adjacency table nowhere\.safetensors"):
        Adjacency(table="nowhere.safetensors")


def damaged(path: Path, kind: str) -> None:
    """Write a file that is no table, in one of several ways."""
    arrays = {name: getattr(TABLE, name).copy() for name in table_file._ARRAYS}
    with_header = Path(save_table(path, TABLE)).read_bytes()
    size = int.from_bytes(with_header[:8], "little")
    metadata = json.loads(with_header[8 : 8 + size])["__metadata__"]
    header = json.loads(metadata[table_file._KEY])
    if kind == "truncated":
        path.write_bytes(with_header[:-3])
        return
    if kind == "other":
        metadata = {}
    elif kind == "version":
        header["version"] = 2
    elif kind == "facts":
        del header["facts"]["width"]
    elif kind == "unsorted":
        arrays["keys"] = arrays["keys"][::-1].copy()
    elif kind == "unknown token":
        arrays["tokens"][0] = V
    elif kind == "short":
        arrays["codes"] = arrays["codes"][1:]
    elif kind == "wide":
        header["facts"]["width"] = 1
    elif kind == "empty":
        arrays = {name: array[:0] for name, array in arrays.items()}
    elif kind == "dtype":
        arrays["codes"] = arrays["codes"].astype(np.uint16)
    else:
        del arrays["codes"]
    if metadata:
        metadata = {table_file._KEY: json.dumps(header)}
    save_file(arrays, path, metadata=metadata)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("truncated", ""),
        ("other", "no adjacency table, but some other safetensors file"),
        ("version", "has version 2 of the format, and this Draftwood reads version 1"),
        ("facts", "facts.width is missing"),
        ("unsorted", "its arrays do not fit"),
        ("unknown token", "its arrays do not fit"),
        ("short", "its arrays do not fit"),
        ("wide", "its arrays do not fit"),
        ("empty", "its arrays do not fit"),
        ("dtype", "its arrays do not fit"),
        ("missing", "codes"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, kind: str, said: str) -> None:
    path = tmp_path / "table.safetensors"
    damaged(path, kind)
    with pytest.raises(DraftwoodError, match=f"cannot be used as an adjacency table: .*{said}"):
        load(path)

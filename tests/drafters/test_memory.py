"""The memory offers what followed the end of a text in other texts, and counts it."""

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from draftwood.drafters._texts import encoded_files
from draftwood.drafters.datastore.drafter import DatastoreText
from draftwood.drafters.memory.drafter import Memory, MemoryDrafter
from draftwood.drafters.memory.journal import Journal
from draftwood.drafters.memory.keeper import Keeper, _thread, keeper_of
from draftwood.drafters.memory.namespaces import GIVEN, Namespaces
from draftwood.drafters.memory.store import LENGTHS, MEASURED, TextStore
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.integrations.engines.rows import no_rows
from draftwood.methods import method
from draftwood.models import load
from draftwood.protocols import Continuation, Prefill
from tests.factories.markov_target import FakeHost, MarkovTarget

SHORTEST = min(LENGTHS)


def text(seed: int, length: int = 300, vocabulary: int = 40) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(vocabulary, size=length).tolist()
    return found


def continued(
    store: TextStore, recent: Sequence[int], most: int = 4, tokens: int = 20
) -> tuple[Continuation, ...]:
    return store.continuations(recent, most=most, tokens=tokens, now=1)


def match_at(texts: Sequence[Sequence[int]], recent: Sequence[int], tokens: Sequence[int]) -> int:
    """The longest match before an occurrence of these tokens in one of the texts."""
    longest = -1
    for each in texts:
        for place in range(len(each)):
            if list(each[place : place + len(tokens)]) == list(tokens):
                length = 0
                while (
                    length < min(place, len(recent), MEASURED)
                    and each[place - 1 - length] == recent[-1 - length]
                ):
                    length += 1
                longest = max(longest, length)
    return longest


def test_the_longest_match_is_found_and_copied() -> None:
    texts = [text(seed) for seed in range(6)]
    store = TextStore()
    for each in texts:
        store.add(each, 0)
    rng = np.random.default_rng(0)
    lengths = set()
    for _ in range(200):
        source = texts[rng.integers(len(texts))]
        place = int(rng.integers(SHORTEST, len(source) - 1))
        shared = int(rng.integers(0, min(place, 90) + 1))
        recent = [*text(int(rng.integers(1000)), 70), *source[place - shared : place]]
        found = continued(store, recent)
        best = max(match_at(texts, recent, [token]) for token in range(40))
        if best < SHORTEST:
            assert not found
            continue
        lengths.add(found[0].match_length)
        assert found[0].match_length == best
        assert len({offer.tokens[0] for offer in found}) == len(found)
        for offer in found:
            assert offer.match_length == match_at(texts, recent, offer.tokens)
            assert offer.match_length >= SHORTEST
            assert offer.count >= 1
        matches = [offer.match_length for offer in found]
        assert matches == sorted(matches, reverse=True)
    assert {3, MEASURED} <= lengths
    assert len(lengths) > 20


def test_the_beginning_of_a_short_text_is_looked_up() -> None:
    store = TextStore()
    store.add(text(1), 0)
    beginning = text(1)[:5]
    [found] = continued(store, beginning[-SHORTEST:])
    assert found.tokens == tuple(text(1)[5:25])
    assert found.match_length == SHORTEST
    assert continued(store, beginning[-SHORTEST + 1 :]) == ()
    assert continued(store, ()) == ()


def test_continuations_are_counted_and_branch() -> None:
    store = TextStore()
    head = text(1, 20)
    for tail in ([91, 92, 93], [81, 82, 83], [81, 84, 85]):
        store.add([*head, *tail], 0)
    for _ in range(3):
        store.add([*head, 81, 82, 83], 0)
    first, second = continued(store, head)
    # The latest occurrence with the first token is copied.
    assert (first.tokens[0], second.tokens[0]) == (81, 91)
    assert first.count > second.count == 1
    assert first.match_length == second.match_length == len(head)
    assert first.agreeing == len(LENGTHS)
    assert len(continued(store, head, most=1)) == 1
    assert all(len(each.tokens) <= 2 for each in continued(store, head, tokens=2))


def test_text_that_is_known_is_not_stored_again() -> None:
    store = TextStore()
    whole = text(1, 2000)
    store.add(whole, 0)
    before = store.size
    assert store.add(whole, 1) == []
    assert store.add(whole[300:900], 1) == []
    assert store.size == before
    assert continued(store, whole[:500])[0].count == 3
    changed = [*whole[:1000], 99, *whole[1000:]]
    pieces = store.add(changed, 2)
    assert len(pieces) == 1
    assert 99 in pieces[0]
    assert store.size - before < 120
    assert continued(store, changed[:1000])[0].match_length == MEASURED
    assert {each.tokens[0] for each in continued(store, changed[:1000])} == {99, whole[1000]}


def test_a_dialogue_that_is_sent_anew_with_each_turn_is_stored_once() -> None:
    store, dialogue = TextStore(), text(0, 500)
    for turn in range(1, 20):
        dialogue = [*dialogue, *text(turn, 200)]
        store.add(dialogue, turn)
    assert store.size < 1.5 * len(dialogue)


def test_a_growing_store_answers_as_before() -> None:
    store = TextStore()
    texts = [text(seed, 900, vocabulary=5000) for seed in range(40)]
    memory = store.bytes
    for each in texts:
        store.add(each, 0)
    assert store.bytes > 4 * memory
    for each in texts:
        [found] = continued(store, each[:400])
        assert found.tokens == tuple(each[400:420])
        assert found.match_length == MEASURED


def test_the_least_recently_used_text_is_forgotten() -> None:
    memory = Namespaces(2000)
    texts = [text(seed, 450, vocabulary=5000) for seed in range(8)]
    known = []
    for each in texts:
        memory.add(each)
        assert memory.size <= 2000
        known.append(memory.continuations(texts[0][:200], most=4, tokens=5))
    assert all(found[0].tokens == tuple(texts[0][200:205]) for found in known), "it is used"
    found = [memory.continuations(each[:200], most=4, tokens=5) for each in texts]
    assert [bool(each) for each in found] == [True, *[False] * 4, True, True, True]
    long = text(9, 5000, vocabulary=5000)
    memory.add(long)
    assert memory.size <= 2001
    assert memory.continuations(long[:4900], most=1, tokens=3)[0].tokens == tuple(long[4900:4903])
    assert not memory.continuations(long[:1000], most=1, tokens=3)


def test_namespaces_share_the_bound_and_no_text() -> None:
    memory = Namespaces(2000)
    memory.add(text(1), "one")
    memory.add(text(2), "two")
    for namespace, own, other in (("one", 1, 2), ("two", 2, 1)):
        assert memory.continuations(text(own)[:100], namespace, most=1, tokens=5)
        assert not memory.continuations(text(other)[:100], namespace, most=1, tokens=5)
    assert not memory.continuations(text(1)[:100], most=1, tokens=5)
    for seed in range(3, 12):
        memory.add(text(seed), "two")
    assert memory.size <= 2000
    assert [*memory.stores] == ["two"]


def test_many_namespaces_take_no_more_memory_than_the_bound_says() -> None:
    memory = Namespaces(100_000)
    tracemalloc.start()
    for user in range(2000):
        memory.add(text(user, 30, vocabulary=40_000), f"user{user}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 70 * 100_000
    assert 300 < len(memory.stores) <= 500, "each counts as 200 tokens beside its 31"
    assert "user1999" in memory.stores
    assert "user0" not in memory.stores


def test_no_request_waits_for_a_sum_over_all_namespaces() -> None:
    """The time of a text is that of its own namespace."""
    memory = Namespaces(1 << 28)
    asked = 0

    class Counting(TextStore):
        @property
        def size(self) -> int:
            nonlocal asked
            asked += 1
            return super().size

    memory.stores = {f"user{i}": Counting() for i in range(100)}
    memory.add(text(1), "user7")
    assert memory.size == memory.size_of_own == 301
    assert asked <= 2


def test_the_sizes_are_those_of_what_is_left() -> None:
    memory, rng = Namespaces(5000), np.random.default_rng(0)
    for seed in range(200):
        namespace = (GIVEN, "", "one", "two")[rng.integers(4)]
        memory.add(text(seed, int(rng.integers(1, 400)), vocabulary=5000), namespace)
        sizes = {name: store.size for name, store in memory.stores.items()}
        assert memory.size == sum(sizes.values())
        assert memory.size_of_own == memory.size - sizes.get(GIVEN, 0)
        assert memory.size + 200 * (len(sizes) - 1) <= 5000


def test_given_text_is_everybodys() -> None:
    memory = Namespaces(10_000)
    given, own = text(1), [*text(1)[:150], *text(2)[:100]]
    memory.add(given, GIVEN)
    memory.add(own, "one")
    for namespace in ("one", "two"):
        first, *others = memory.continuations(given[:150], namespace, most=4, tokens=9)
        assert first.match_length == MEASURED
        firsts = {each.tokens[0] for each in (first, *others) if each.match_length == MEASURED}
        assert firsts == {given[150], own[150]} if namespace == "one" else {given[150]}
        [only] = memory.continuations(given[:150], namespace, most=1, tokens=9)
        assert only == first
    # What both have is offered once.
    found = memory.continuations(given[:90], "one", most=9, tokens=9)
    assert len({each.tokens[0] for each in found}) == len(found)


# --- the file -------------------------------------------------------------------------------------


def opened(path: Path, size: int = 100_000, vocabulary: str = "v") -> tuple[Namespaces, Journal]:
    memory, journal = Namespaces(size), Journal(str(path), vocabulary, 13)
    journal.read(memory)
    return memory, journal


def wait() -> None:
    """Until the files are written."""
    _thread(os.getpid()).submit(int).result()


def written(path: Path) -> list[list[int]]:
    memory, journal = opened(path)
    texts = [text(seed, 200, vocabulary=13) for seed in range(3)]
    for namespace, each in zip(("", "", "other"), texts, strict=True):
        journal.write(memory.add(each, namespace), namespace)
    return texts


def test_a_memory_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    texts = written(path)
    memory, journal = opened(path)
    for namespace, each in zip(("", "", "other"), texts, strict=True):
        [found, *_] = memory.continuations(each[:100], namespace, most=1, tokens=9)
        assert found.tokens == tuple(each[100:109])
    before = path.read_bytes()
    journal.write(memory.add(texts[0]), "")
    assert path.read_bytes() == before, "nothing is new"
    assert opened(path)[0].size == memory.size


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    texts = written(path)
    path.write_bytes(path.read_bytes()[:-20])
    memory, journal = opened(path)
    assert memory.continuations(texts[1][:100], most=1, tokens=9)
    assert "other" not in memory.stores
    journal.write(memory.add(texts[2], "other"), "other")
    assert opened(path)[0].continuations(texts[2][:100], "other", most=1, tokens=9)


def texts_in(path: Path) -> list[tuple[str, list[int]]]:
    _, *lines = map(json.loads, path.read_bytes().splitlines())
    return [(line["namespace"], line["tokens"]) for line in lines]


def test_a_file_is_written_anew_while_texts_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory = Namespaces(1000)
    keeper = Keeper(Journal(str(path), "v", 5000), memory)
    memory.add(text(99, 100, vocabulary=5000), GIVEN)
    lengths = []
    for seed in range(60):
        namespace = "one" if seed % 3 else ""
        keeper.add(text(seed, 100, vocabulary=5000), namespace)
        wait()
        found = texts_in(path)
        lengths.append(sum(len(tokens) for _, tokens in found))
        assert lengths[-1] <= 2 * 1000
        # In the order of their use, so that who reads them forgets the oldest ones.
        own = [(name, piece.tolist()) for name, piece in memory.pieces()]
        assert own == found[-len(own) :]
    assert sum(after < before for before, after in pairwise(lengths)) > 2
    assert len(path.read_bytes()) > 3000, "the file is no empty one"


def test_a_new_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory"
    memory, journal = opened(path)
    journal.write(memory.add(text(0, 100, vocabulary=13)), "")
    before = path.read_bytes()

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("draftwood.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        journal.replace(memory.pieces())
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["memory"]


def test_a_long_file_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory, journal = opened(path)
    for seed in range(30):
        journal.write(memory.add(text(seed, 200, vocabulary=13)), "")
    long = len(path.read_bytes())
    memory, _ = opened(path, size=1000)
    assert len(path.read_bytes()) < long / 3
    assert opened(path)[0].size == memory.size


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [b"{}\n", *lines[1:]], "is no memory of Draftwood"),
        (lambda lines: [], "is no memory of Draftwood"),
        (lambda lines: [lines[0], b'{"namespace":"","tokens":[13]}\n'], "line 2 is damaged"),
        (lambda lines: [*lines, b'{"namespace":"","tokens":[[1]]}\n'], "line 5 is damaged"),
        (lambda lines: [lines[0], b'{"namespace":1,"tokens":[1]}\n'], "line 2 is damaged"),
        (lambda lines: [lines[0], b"nonsense\n"], "line 2 is damaged"),
    ],
)
def test_a_damaged_file_is_refused(damage: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "memory"
    written(path)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    before = path.read_bytes()
    with pytest.raises(DraftwoodError, match=message):
        opened(path)
    assert path.read_bytes() == before


def test_the_memory_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    written(path)
    with pytest.raises(DraftwoodError, match="another vocabulary"):
        opened(path, vocabulary="w")
    opened(path, vocabulary="")
    with pytest.raises(DraftwoodError, match="another vocabulary"):
        Journal(str(path), "v", 14).read(Namespaces(1000))
    with pytest.raises(DraftwoodError, match="there is no such directory"):
        opened(tmp_path / "missing" / "memory")
    assert json.loads(path.read_bytes().splitlines()[0])["vocabulary"] == "v"


# --- texts ----------------------------------------------------------------------------------------


HOLD = """
import sys
from draftwood.drafters.memory.journal import Journal
from draftwood.drafters.memory.keeper import keeper_of
held = keeper_of(Journal(sys.argv[1], "", 9), 9)
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_at_a_time_uses_a_file(tmp_path: Path) -> None:
    path = tmp_path / "memory"

    def keeper() -> Keeper:
        return keeper_of(Journal(str(path), "", 9), 9)

    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DraftwoodError, match="another process uses the memory in"):
            keeper()
        other.communicate()
    with ThreadPoolExecutor(4) as pool:  # engines of one process share it
        assert len({*pool.map(lambda _: keeper(), range(8))}) == 1


def test_engines_that_name_one_file_have_one_memory(tmp_path: Path) -> None:
    """With a memory each, who writes the file anew would leave out what the others have written."""
    path = tmp_path / "memory"
    host = FakeHost(replace(MarkovTarget(9).info, vocab_size=5000))

    def drafter(size: int, name: str = str(path)) -> MemoryDrafter:
        return Memory(file=name, size=size).build(host)

    def done(drafter: MemoryDrafter, namespace: str, tokens: list[int]) -> None:
        prompt = np.array(tokens[:-1], dtype=np.int64)
        drafter.begin(0, Prefill(prompt, tokens[-1], no_rows(1).output(1), namespace))
        drafter.release(0)

    (tmp_path / "link").symlink_to(path)
    first, second = drafter(1000), drafter(2000, str(tmp_path / "link"))
    known = text(99, 200, vocabulary=5000)
    done(second, "bob", known)
    for seed in range(12):
        done(first, "", text(seed, 300, vocabulary=5000))
        prompt = np.array(known[:100], dtype=np.int64)
        first.begin(1, Prefill(prompt, known[100], no_rows(1).output(1), "bob"))
        [[found]] = first.continuations([1])  # which is a use: the text is not forgotten
        assert found.tokens == tuple(known[101:121])
    wait()
    assert known in [tokens for namespace, tokens in texts_in(path) if namespace == "bob"]
    assert 1000 < sum(len(tokens) for _, tokens in texts_in(path)) <= 2 * 2000
    assert (tmp_path / "link").is_symlink()


def test_a_file_is_given_back_with_its_last_engine(tmp_path: Path) -> None:
    host = FakeHost(MarkovTarget(9).info)
    path = str(tmp_path / "memory")
    drafters = [Memory(file=path).build(host) for _ in range(2)]
    words = [sys.executable, "-c", HOLD, path]

    def another() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(words, input=b"", capture_output=True, check=False)

    drafters.pop()
    assert b"another process uses" in another().stderr
    with ThreadPoolExecutor(1) as pool:  # the last one may be dropped by any thread
        pool.submit(drafters.clear).result()
    wait()
    assert another().stdout == b"held\n"


def test_a_build_that_fails_does_not_keep_its_file(tmp_path: Path) -> None:
    path, given = tmp_path / "memory", tmp_path / "text"
    given.write_text("abc")
    spec = Memory(file=str(path), text=(str(given),))
    with pytest.raises(DraftwoodError, match="tokenizer"):
        spec.build(FakeHost(MarkovTarget(9).info))
    words = [sys.executable, "-c", HOLD, str(path)]
    done = subprocess.run(words, input=b"", stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"held\n"


def test_a_deleted_file_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory, journal = opened(path)
    path.unlink()
    journal.write(memory.add(text(0, 100, vocabulary=13)), "")
    assert opened(path)[0].size == memory.size


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_is_its_owners_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory, journal = opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    journal.write([text(0)], "")
    assert path.stat().st_mode & 0o777 == 0o600
    for mode in (0o640, 0o664):
        path.chmod(mode)
        journal.replace(memory.pieces())
        assert path.stat().st_mode & 0o777 == mode


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "memory")
    memory, journal = opened(tmp_path / "link")
    journal.write(memory.add(text(0, 100, vocabulary=13)), "")
    journal.replace(memory.pieces())
    assert (tmp_path / "link").is_symlink()
    assert len(texts_in(tmp_path / "memory")) == 1


@pytest.mark.parametrize("spec", [Memory, DatastoreText])
def test_texts_are_looked_for_before_a_model_is_loaded(
    spec: type[Memory | DatastoreText], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    assert spec(text=("src",)).text == ("src",)
    for wrong, message in (
        (("src", ""), r"'src\+' has a file without a name"),
        (("src", "missing"), "missing does not exist"),
    ):
        with pytest.raises(DraftwoodError, match=message):
            spec(text=wrong)


def test_the_file_is_looked_for_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "missing" / "memory")
    for name in ("missing/memory", "link"):
        with pytest.raises(DraftwoodError, match="there is no such directory"):
            Memory(file=str(tmp_path / name))
    with pytest.raises(DraftwoodError, match="is a directory"):
        Memory(file=str(tmp_path))


def test_a_file_that_is_refused_is_not_kept_from_others(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.write_text("no memory")
    with pytest.raises(DraftwoodError):
        Keeper(Journal(str(path), "", 9), Namespaces(9))
    path.unlink()
    words = [sys.executable, "-c", HOLD, str(path)]
    done = subprocess.run(words, input=b"", stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"held\n"


def test_a_file_that_cannot_be_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(FileLock, "acquire", refuses)
    with pytest.raises(DraftwoodError, match=r"cannot be locked .*Permission denied"):
        Keeper(Journal(str(tmp_path / "memory"), "", 9), Namespaces(9))


def test_files_of_a_folder_are_read_in_order(tmp_path: Path) -> None:
    for name, content in {"b.py": "two", "a/c.txt": "one", ".git/x": "no", "d.bin": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "d.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large").write_text("x" * (1 << 21))
    asked: list[str] = []

    def encode(given: str) -> list[int]:
        asked.append(given)
        return [len(given)]

    named = str(tmp_path / "b.py")
    assert [*encoded_files([str(tmp_path), named], encode)] == [[3], [3], [3]]
    assert asked == ["one", "two", "two"]
    for wrong, message in (
        ("missing", "does not exist"),
        ("d.bin", "is no file of UTF-8 text"),
        (".git/empty", "there is no file of text"),
    ):
        (tmp_path / ".git" / "empty").mkdir(exist_ok=True)
        with pytest.raises(DraftwoodError, match=message):
            list(encoded_files([str(tmp_path / wrong)], encode))


# --- the drafter ----------------------------------------------------------------------------------


def test_a_second_request_drafts_from_the_first() -> None:
    target = MarkovTarget(vocab_size=200, sharpness=3.0)
    host = FakeHost(target.info)
    engine = Engine(target, method("pld:context=memory"), host=host)
    prompt = tuple(range(8))
    request = Request(prompt, 60, eos=())
    [first] = engine.generate([request])
    [second] = engine.generate([request])
    [apart] = engine.generate([Request(prompt, 60, eos=(), namespace="other")])
    assert first.tokens == second.tokens == apart.tokens == target.greedy(prompt, 60)
    assert first.tally.accepted == apart.tally.accepted == 0
    assert second.tally.mean_acceptance_length > 5
    # Another engine has a memory of its own.
    [third] = Engine(target, method("pld:context=memory"), host=host).generate([request])
    assert third.tally.accepted == 0


@pytest.mark.parametrize("known", [True, False])
def test_what_is_committed_behind_the_end_of_a_text_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """Whether a token ends the text or what is asked of it."""
    added: list[list[int]] = []
    whole = Namespaces.add

    def add(self: Namespaces, tokens: Sequence[int], namespace: str) -> Any:
        added.append([*tokens])
        return whole(self, tokens, namespace)

    monkeypatch.setattr(Namespaces, "add", add)
    target = MarkovTarget(vocab_size=200, sharpness=3.0)
    engine = Engine(target, method("pld:context=memory"), host=FakeHost(target.info))
    prompt, end = tuple(range(8)), 6
    [first] = engine.generate([Request(prompt, 60, eos=())])
    last = first.tokens[end - 1]
    assert last not in first.tokens[: end - 1]
    if known:
        asked = Request(prompt, 60, eos={last})
    else:
        asked = Request(prompt, 60, eos=(), should_stop=lambda ids: bool(ids[0, -1] == last))
    [second] = engine.generate([asked])
    assert second.tokens == first.tokens[:end]
    assert second.tally.accepted > 0
    assert added == [[*prompt, *first.tokens], [*prompt, *second.tokens]]


def test_text_of_other_weights_changes_no_token(checkpoint: str) -> None:
    loaded = load(checkpoint)
    engine = Engine(loaded.model, "pld:context=memory", loaded.tokenizer)
    request = Request("abc abc", 40, eos=())
    [before] = engine.generate([request])
    optimizer = torch.optim.SGD(loaded.model.parameters(), lr=0.03)
    ids = torch.tensor([before.tokens])
    loaded.model.train()
    loaded.model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    loaded.model.train(False)
    [after] = engine.generate([request])
    [plain] = Engine(loaded.model, "ar", loaded.tokenizer).generate([request])
    assert after.tokens == plain.tokens != before.tokens
    assert after.tally.drafted > 0


def test_the_file_carries_over(tmp_path: Path) -> None:
    target = MarkovTarget(vocab_size=200, sharpness=3.0)
    named = method("pld:context=memory", context__file=str(tmp_path / "memory"))
    request = Request(tuple(range(8)), 60, eos=())
    accepted = [
        Engine(target, named, host=FakeHost(target.info)).generate([request])[0].tally.accepted
        for _ in range(2)
    ]
    assert accepted[0] == 0
    assert accepted[1] > 40


def test_requests_go_on_if_the_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device", "memory")

    monkeypatch.setattr(Journal, "write", full)
    target = MarkovTarget(vocab_size=200, sharpness=3.0)
    named = method("pld:context=memory", context__file=str(tmp_path / "memory"))
    engine = Engine(target, named, host=FakeHost(target.info))
    first, second, other = (
        engine.generate([Request(range(begin, begin + 8), 60, eos=())])[0] for begin in (0, 0, 9)
    )
    assert first.tokens == second.tokens != other.tokens
    assert second.tally.accepted > 40
    wait()
    assert [record.getMessage() for record in caplog.records] == [
        "the memory is not kept in its file any more: No space left on device: memory"
    ]


def test_no_request_waits_for_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "memory"
    target = MarkovTarget(vocab_size=200, sharpness=3.0)
    named = method("pld:context=memory", context__file=str(path))
    engine = Engine(target, named, host=FakeHost(target.info))
    about, disk = path.read_bytes(), threading.Event()
    write = Journal.write

    def slow(*given: Any) -> None:
        assert disk.wait(30)
        write(*given)

    monkeypatch.setattr(Journal, "write", slow)
    requests = [Request(range(begin, begin + 8), 60, eos=()) for begin in (0, 9, 18)]
    first = [engine.generate([request])[0] for request in requests]
    again = engine.generate([requests[0]])[0]
    assert again.tally.accepted > 40, "it is remembered before it is written"
    assert path.read_bytes() == about
    disk.set()
    # Who reads the file waits for what was to be written before.
    another = Engine(target, named, host=FakeHost(target.info))
    assert another.generate([requests[0]])[0].tally.accepted > 40
    lines = path.read_bytes().splitlines()[1:]
    beginnings = [json.loads(line)["tokens"][:8] for line in lines]
    assert beginnings == [list(request.prompt) for request in requests], "in order"
    assert len(first) == 3


def test_given_texts_need_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("abc")
    with pytest.raises(DraftwoodError, match="needs the target's tokenizer"):
        Memory(text=(str(tmp_path / "text"),)).build(FakeHost(MarkovTarget().info))

"""Drafts for the requests of an engine."""

import logging
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from draftwood.drafters.adjacency.drafter import AdjacencyTables
from draftwood.drafters.context import ContextIndex
from draftwood.errors import DraftwoodError
from draftwood.integrations.engines import EngineDrafts
from draftwood.integrations.engines.drafts import FLAT_COSTS
from draftwood.methods import method
from tests.integrations.engines.small_engine import (
    CONTEXT,
    VOCAB,
    SmallEngine,
    drafts,
    follows,
    plain,
)

PROMPTS = {f"r{i}": [(i * 7 + j * j) % VOCAB for j in range(9 + i)] for i in range(6)}
HERE = str(Path(__file__).parent)
METHODS = (
    "auto:verifier=walk:budget=7",
    "auto:verifier=walk:budget=7:also=memory",
    "auto:verifier=walk:budget=7:shape=chain",
    "goose:budget=7",
    "tr:budget=7",
    "pld:budget=7",
    "sam:budget=7",
)


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("text", METHODS)
def test_every_request_has_the_tokens_of_plain_decoding(
    text: str, rows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = follows(3)
    engine = SmallEngine(drafts(text), model, rows=rows)
    for request, prompt in PROMPTS.items():
        engine.add(request, prompt)
    while min(map(len, engine.texts.values())) < 200:
        for tree in engine.step():
            assert tree.nodes <= engine.nodes
    for request, prompt in PROMPTS.items():
        own = engine.texts[request][len(prompt) :]
        assert own == plain(model, prompt, len(own))
    generated = sum(len(engine.texts[r]) - len(prompt) - 1 for r, prompt in PROMPTS.items())
    # The first token takes no step. The table of tr is of the rows alone.
    accepted = engine.steps < generated
    assert accepted == (rows or not text.startswith("tr:"))
    assert not caplog.records, "nothing has failed"


def test_a_tree_has_the_nodes_that_an_engine_pays_for_anyway() -> None:
    engine = SmallEngine(drafts(costs=FLAT_COSTS), follows(3))
    for request, prompt in PROMPTS.items():
        engine.add(request, prompt)
    sizes = [tree.nodes for _ in range(30) for tree in engine.step()]
    assert max(sizes) == 8
    assert sum(size == 8 for size in sizes) > len(sizes) / 4
    assert engine.scattered > 0, "paths are accepted that are not the first nodes"


def test_a_chain_is_a_path() -> None:
    engine = SmallEngine(drafts("auto:verifier=walk:budget=7:shape=chain"), follows(3))
    engine.add("r", PROMPTS["r3"])
    for _ in range(40):
        [tree] = engine.step()
        assert tree.mask[: tree.nodes, : tree.nodes].sum() == tree.nodes * (tree.nodes + 1) / 2
    assert engine.scattered == 0
    assert engine.steps < len(engine.texts["r"]) - len(PROMPTS["r3"]) - 1


def test_no_more_than_may_be_generated_is_drafted() -> None:
    found = drafts()
    found.begin("r", [1, 2, 3] * 20)
    for left, most in ((1, 0), (3, 2), (100, 7)):
        [tree] = found.draft(["r"], [left])
        assert tree is not None
        assert tree.depth <= most
    found.begin("r", [1, 2, 3] * (CONTEXT // 3))
    [tree] = found.draft(["r"])
    assert tree is not None
    assert tree.drafted == 0, "the context ends"


def test_requests_that_nobody_has_begun() -> None:
    found = drafts()
    assert found.draft(["r"]) == [None]
    found.commit("r", [1, 2])
    found.end("r")
    assert (len(found), found.length("r"), "r" in found) == (0, 0, False)
    found.begin("r", [1, 2, 3])
    assert (len(found), found.length("r"), "r" in found) == (1, 3, True)
    found.commit("r", [4, 5])
    assert found.length("r") == 5
    found.clear()
    assert len(found) == 0


def test_what_was_committed_without_a_draft_is_learnt() -> None:
    found = drafts("pld:budget=7")
    found.begin("r", [9, 1, 2, 3, 4, 5, 6])
    for token in (1, 2, 3):
        found.commit("r", [token])
    [tree] = found.draft(["r"])
    assert tree is not None
    assert tree.tokens.tolist()[:4] == [3, 4, 5, 6]


def test_a_memory_is_of_one_namespace() -> None:
    found = drafts("auto:verifier=walk:also=memory")
    text = [*range(30)]
    found.begin("old", text, namespace="a")
    found.end("old")
    for name, expected in (("a", [11, 12]), ("b", [])):
        found.begin("new", [40, 8, 9, 10], namespace=name)
        [tree] = found.draft(["new"])
        assert tree is not None
        assert tree.tokens.tolist()[1:3] == expected


TABLE = "auto:verifier=walk:shape=chain:chain=:adjacency.harvest=accepted:adjacency.shared=true"


@pytest.mark.parametrize("read_text", [True, False])
def test_a_table_learns_from_the_text_where_there_are_no_rows(read_text: bool) -> None:
    found = drafts(TABLE, read_text=read_text)
    found.begin("old", [1, 2, 3, 4, 5])
    found.commit("old", [6, 7])
    found.end("old")
    found.begin("new", [30, 1, 2])
    [tree] = found.draft(["new"])
    assert tree is not None
    assert tree.tokens.tolist()[1:3] == ([3, 4] if read_text else [])
    found.commit("new", [3, 20])
    # What follows the rejected 4 is not known from this step, and still from the first text.
    found.begin("third", [40, 3, 4])
    [tree] = found.draft(["third"])
    assert tree is not None
    assert tree.tokens.tolist()[1:3] == ([5, 6] if read_text else [])


class Broken(ContextIndex):
    """Fails for the text of one request."""

    slots: Sequence[int] = ()

    def continuations(self, slots: Sequence[int]) -> list[Any]:
        if set(slots) & set(self.slots):
            raise ZeroDivisionError("no continuation")
        return super().continuations(slots)


def run_where_the_second_fails(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Decode three requests with a method, of which the second gets no drafts."""
    engine = SmallEngine(drafts(text), follows(3))
    for request, prompt in list(PROMPTS.items())[:3]:
        engine.add(request, prompt)
    with caplog.at_level(logging.ERROR, "draftwood"):
        for _ in range(50):
            engine.step()
    lengths = [len(text) for text in engine.texts.values()]
    assert lengths[1] == len(PROMPTS["r1"]) + 1 + 50, "one token a step"
    assert min(lengths[0], lengths[2]) > lengths[1] + 10


def test_a_failure_is_logged_once_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("draftwood.drafters.context.ContextIndex", Broken)
    monkeypatch.setattr(Broken, "slots", (1,))
    run_where_the_second_fails("pld:budget=7", caplog)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        ZeroDivisionError
    ]


def test_a_failure_of_a_source_that_ranks_is_of_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[list[int]] = []

    class Broken(AdjacencyTables):
        def expand(self, slots, queries):  # type: ignore[no-untyped-def]
            asked.append([*slots])
            if 1 in slots:
                raise ZeroDivisionError
            return super().expand(slots, queries)

        def descend(self, slots, queries):  # type: ignore[no-untyped-def]
            return [None] * len(slots)

    monkeypatch.setattr("draftwood.drafters.adjacency.drafter.AdjacencyTables", Broken)
    run_where_the_second_fails("tr:budget=7", caplog)
    assert len(caplog.records) == 1
    assert sum(1 in slots for slots in asked) == 2, "with the others, and alone"


def test_a_request_whose_text_could_not_be_taken_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = drafts()
    found.begin("r", [])
    begun: list[object] = []
    monkeypatch.setattr(found, "_begin", lambda *given: begun.append(given))
    found.begin("r", [1, 2, 3])
    assert not begun
    found.end("r")
    found.begin("r", [1, 2, 3])
    assert len(begun) == 1, "another request has its id"


def test_a_request_whose_text_cannot_be_taken_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = drafts()
    with caplog.at_level(logging.ERROR, "draftwood"):
        found.begin("r", [])
        found.begin("s", [1, 2, 3])
        found.commit("s", ["x"])  # type: ignore[list-item]
    assert len(caplog.records) == 2
    assert len(found) == 0
    assert found.draft(["r", "s"]) == [None, None]


def test_a_request_that_cannot_be_begun_takes_no_slot(caplog: pytest.LogCaptureFixture) -> None:
    """Else the next one would have that of a request that runs."""
    found = drafts("pld:budget=7")
    with caplog.at_level(logging.ERROR, "draftwood"):
        found.begin("a", [1, 2, 3])
        found.begin("b", [7, 8, 9, 10, 7, 8, 9])
        found.end("a")
        found.begin("c", [])
        found.begin("d", [4, 5, 6, 3, 4, 5, 6])
    assert len(caplog.records) == 1
    trees = found.draft(["b", "d"])
    assert [tree.tokens.tolist()[:3] for tree in trees if tree] == [[9, 10, 7], [6, 3, 4]]


def test_a_tree_that_is_taken_back_is_not_learnt_from() -> None:
    found = drafts("pld:budget=7")
    found.begin("r", [1, 2, 3, 4, 1, 2, 3])
    for _ in range(2):
        [tree] = found.draft(["r"])
        assert tree is not None
        assert tree.drafted > 0
        found.withdraw("r")
        found.commit("r", [9, 1, 2, 3])
    assert found.acceptance.drafted.total() == 0
    found.withdraw("s")  # nobody knows it


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dynatree:draft=embedded-draft:verifier=walk", "drafts with a model"),
        ("auto:draft=embedded-draft", "drafts with a model"),
        ("goose-sampled:draft=embedded-draft", "drafts with a model"),
    ],
)
def test_methods_that_an_engine_cannot_draft_with(text: str, words: str) -> None:
    with pytest.raises(DraftwoodError, match=words):
        EngineDrafts(method(text), vocab_size=VOCAB, context=CONTEXT)


ALONE = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "tokenizers", "safetensors"):
            raise ImportError(name)

sys.meta_path.insert(0, Block())
from small_engine import SmallEngine, drafts, follows

engine = SmallEngine(drafts("auto:verifier=walk:budget=7:also=memory"), follows(5))
for number in range(24):
    engine.add(f"request {number % 8}", [(number * 5 + j * j) % 50 for j in range(12)])
    for _ in range(6):
        for tree in engine.step():
            print(tree.tokens.tolist(), tree.mask.sum())
    engine.drafts.end(f"request {(number + 3) % 8}")
    engine.texts.pop(f"request {(number + 3) % 8}", None)
"""


def test_ranks_that_are_told_the_same_draft_the_same() -> None:
    """In processes of their own, with other hashes, and without torch and transformers."""
    said = [
        subprocess.run(
            [sys.executable, "-c", ALONE],
            env={"PYTHONPATH": ":".join([HERE, *filter(None, sys.path)]), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(said[0].splitlines()) > 500


def grown(requests: int, size: Callable[[], int]) -> int:
    """What a size grows by during the second half of that many requests."""
    found = drafts("auto:verifier=walk:budget=7:also=memory:memory.size=2000")
    engine = SmallEngine(found, follows(3))
    sizes = []
    for number in range(requests):
        engine.add(number, [(number * number + j) % VOCAB for j in range(8)])
        engine.step()
        engine.texts.pop(number)
        found.end(number)
        if number in (requests // 2, requests - 1):
            sizes.append(size())
    assert len(found) == 0
    return sizes[1] - sizes[0]


def test_memory_is_bounded() -> None:
    tracemalloc.start()
    assert grown(300, lambda: tracemalloc.get_traced_memory()[0]) < 200_000
    tracemalloc.stop()


@pytest.mark.slow
def test_memory_is_bounded_after_many_requests() -> None:
    """Some minutes: counted by Python's blocks of memory, as tracing takes five times as long."""
    assert grown(100_000, sys.getallocatedblocks) < 5_000

"""The proposer of vLLM, called as vLLM calls it."""

import logging
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from draftwood.cli.tune import document
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.store import CostsKey
from draftwood.errors import DraftwoodError
from draftwood.files import write_json
from draftwood.integrations.engines.environment import COSTS, METHOD
from draftwood.integrations.engines.texts import Text, TextIds
from draftwood.integrations.engines.vllm import Proposer
from tests.integrations.engines.small_engine import CONTEXT, VOCAB, Letters, Next, follows, plain


def configured(tokens: int = 6, ranks: int = 1, index: int = 0, stages: int = 1) -> Any:
    """The parts of a ``VllmConfig`` that are read."""
    model = SimpleNamespace(get_vocab_size=lambda: VOCAB, max_model_len=CONTEXT)
    speculative = SimpleNamespace(num_speculative_tokens=tokens)
    parallel = SimpleNamespace(
        tensor_parallel_size=ranks,
        data_parallel_size=1,
        data_parallel_index=index,
        pipeline_parallel_size=stages,
    )
    return SimpleNamespace(
        model_config=model, speculative_config=speculative, parallel_config=parallel
    )


class Runner:
    """Decodes rows with a proposer's chains; rows move, and come and go."""

    def __init__(self, proposer: Proposer, model: Next) -> None:
        self.proposer, self.model = proposer, model
        self.rows: list[list[int]] = []
        self.drafts: list[list[int]] = []
        self.accepted = self.steps = 0

    def add(self, prompt: list[int]) -> None:
        self.rows.append([*prompt])
        self.drafts.append([])

    def step(self) -> None:
        new = []
        for text, draft in zip(self.rows, self.drafts, strict=True):
            added: list[int] = []
            for token in [*draft, -1]:
                added.append(self.model([*text, *added]))
                if token != added[-1]:
                    break
            self.accepted += len(added) - 1
            text += added
            new.append(added)
        self.steps += len(new)
        tokens = np.zeros((len(self.rows) + 2, CONTEXT), dtype=np.int32)
        for row, text in enumerate(self.rows):
            tokens[row, : len(text)] = text
        lengths = np.array([*map(len, self.rows), 0, 0])
        self.drafts = self.proposer.propose(new, lengths, tokens)
        assert all(len(draft) <= 6 for draft in self.drafts)

    def move(self) -> None:
        """Rows change their places."""
        self.rows.append(self.rows.pop(0))
        self.drafts.append(self.drafts.pop(0))


def test_rows_that_move_and_end() -> None:
    model = follows(3)
    runner = Runner(Proposer(configured()), model)
    prompts = [[(i * 7 + j * j) % VOCAB for j in range(12)] for i in range(5)]
    for prompt in [*prompts, prompts[0]]:  # two are the same
        runner.add(prompt)
    for step in range(50):
        if step % 3 == 0:
            runner.move()
        if step == 25:
            del runner.rows[2], runner.drafts[2]
        runner.step()
    for text in runner.rows:
        assert text[12:] == plain(model, text[:12], len(text) - 12)
    assert runner.accepted > runner.steps / 2
    assert len(runner.proposer.drafts) == 5, "one of them has ended"


def test_the_memory_soon_has_the_text_of_a_request_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(METHOD, "auto:also=memory")
    runner, steps = Runner(Proposer(configured()), follows(3)), []
    for _ in range(2):
        runner.steps = 0
        runner.rows, runner.drafts = [], []
        runner.add([40, 41, 42, 43])
        while len(runner.rows[0]) < 44:
            runner.step()
        steps.append(runner.steps)
    assert steps[1] < steps[0] / 2


def test_ranks_do_not_share_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.file={tmp_path / 'memory'}")
    with_tokenizer(monkeypatch, Letters())
    with pytest.raises(DraftwoodError, match="every rank would write the memory's file"):
        Proposer(configured(ranks=2))
    with pytest.raises(DraftwoodError, match="every rank would write the memory's file"):
        Proposer(configured(index=1))


@pytest.mark.parametrize(("stages", "lasts"), [(1, 4), (2, 5), (8, 11)])
def test_a_text_is_awaited_for_as_many_steps_as_there_are_batches_in_turn(
    stages: int, lasts: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "vllm"):
        proposer = Proposer(configured(stages=stages))
    assert "drafts with auto, up to 6 tokens" in caplog.text
    runner = Runner(proposer, follows(3))
    runner.add([1, 2, 3])
    runner.step()
    held = []
    for _ in range(lasts):
        proposer.propose([], np.zeros(0, dtype=np.int64), np.zeros((0, 4), dtype=np.int32))
        held.append(len(proposer.drafts))
    assert held == [*[1] * (lasts - 1), 0]


def test_a_text_that_is_not_seen_for_long_is_forgotten() -> None:
    ids = TextIds(patience=3)
    text, other = np.arange(9, dtype=np.int32), np.arange(5, dtype=np.int32)
    [first, second] = ids.recognised([text[:4], other], [1, 1])
    assert (first.known, second.known) == (0, 0)
    for length in (6, 7, 9):
        [again] = ids.recognised([text[:length]], [length - (4, 6, 7)[(6, 7, 9).index(length)]])
        assert again.id == first.id
        assert again.known < length
    assert ids.ended() == [second.id]
    assert ids.ended() == []
    assert len(ids) == 1


def test_a_text_that_went_on_in_steps_that_were_left_out_is_recognised() -> None:
    ids, text = TextIds(), np.arange(300, dtype=np.int32)
    other = text[::-1].copy()
    first, second = ids.recognised([text[:100], other[:50]], [1, 1])
    # The other one took part in the last step alone, whatever the engine says was added then.
    found = ids.recognised([text[:110], other[:51]], [2, 1])
    assert found == [Text(first.id, 100), Text(second.id, 50)]
    assert ids.recognised([text[:112]], [2]) == [Text(first.id, 110)]
    # A running request goes on with its own text, though this one could be a part of another.
    branch = np.concatenate([text[:112], other[:9]])
    assert [each.known for each in ids.recognised([branch, text[:113]], [1, 1])] == [0, 112]
    # Far more tokens are a new request's.
    assert [each.known for each in ids.recognised([text[:250]], [1])] == [0]


def test_steps_that_the_engine_leaves_out_cost_no_drafts() -> None:
    model = follows(3)
    runner = Runner(Proposer(configured()), model)
    runner.add([40, 41, 42, 43])
    for _ in range(20):
        runner.step()
    ids = runner.proposer.drafts
    [number] = ids._requests
    before = ids.acceptance.steps
    for _ in range(5):  # without drafts, and without asking for any
        runner.rows[0].append(model(runner.rows[0]))
    runner.drafts = [[]]
    runner.step()
    assert [*ids._requests] == [number], "it was not read anew"
    assert runner.drafts[0]
    assert ids.acceptance.steps == before + 1
    for _ in range(20):
        runner.step()
    assert runner.rows[0][4:] == plain(model, runner.rows[0][:4], len(runner.rows[0]) - 4)


def test_texts_with_one_end_are_told_apart() -> None:
    ids, end = TextIds(), np.arange(100, 140, dtype=np.int32)
    texts = [np.array([first, *end], dtype=np.int32) for first in (1, 2, 1)]
    begun = [each.id for each in ids.recognised(texts, [1, 1, 1])]
    assert len(set(begun)) == 3
    longer = [np.array([*text, 7, 8], dtype=np.int32) for text in (texts[1], texts[0], texts[2])]
    found = ids.recognised(longer, [2, 2, 2])
    assert [each.known for each in found] == [41, 41, 41]
    assert [each.id for each in found] == [begun[1], begun[0], begun[2]]
    for _ in range(100):  # they outgrow what is kept of them
        longer = [np.array([*text, 9], dtype=np.int32) for text in longer]
        assert ids.recognised(longer, [1, 1, 1]) == [
            Text(each.id, len(longer[0]) - 1) for each in found
        ]


def test_rows_whose_prompts_are_being_read_get_nothing() -> None:
    proposer = Proposer(configured())
    tokens = np.zeros((2, CONTEXT), dtype=np.int32)
    tokens[1, :9] = [1, 2, 3, 1, 2, 3, 1, 2, 3]
    found = proposer.propose([[], [3]], np.array([40, 9]), tokens)
    assert found[0] == []
    assert found[1][:2] == [1, 2]


def test_a_failure_leaves_rows_without_drafts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("no text")

    proposer = Proposer(configured())
    monkeypatch.setattr(TextIds, "recognised", broken)
    tokens = np.ones((1, CONTEXT), dtype=np.int32)
    with caplog.at_level(logging.ERROR, "draftwood"):
        for _ in range(3):
            assert proposer.propose([[1]], np.array([9]), tokens) == [[]]
    assert len(caplog.records) == 1


def test_the_table_learns_from_the_texts_of_all_requests() -> None:
    proposer, lines = Proposer(configured()), np.zeros((1, 40), dtype=np.int32)
    lines[0, :5] = [1, 2, 3, 4, 5]
    proposer.propose([[5]], np.array([5]), lines)
    lines[0, 5:7] = [6, 7]
    proposer.propose([[6, 7]], np.array([7]), lines)
    # Another request, of whose text only one token was said before.
    lines[0, :3] = [30, 31, 4]
    [draft] = proposer.propose([[4]], np.array([3]), lines)
    assert draft[:2] == [5, 6]


def as_they_are(costs: StepCosts) -> dict[str, object]:
    return costs.to_json()


def as_tune_writes_them(costs: StepCosts) -> dict[str, object]:
    key = CostsKey("", (), "cpu", "float32", 1, (), "", "", "")
    return document(key, costs, {}, [], "a model", {})


@pytest.mark.parametrize("written", [as_they_are, as_tune_writes_them])
def test_the_environment_names_method_and_costs(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    written: Callable[[StepCosts], dict[str, object]],
) -> None:
    text = np.array([[1, 2, 3, 4, 5] * 8], dtype=np.int32)
    lengths = {}
    for name, each in {"cheap": 1.0, "dear": 64.0}.items():
        file = tmp_path / f"{name}.json"
        write_json(file, written(StepCosts(Curve((1, 2), (1.0, each)))))
        monkeypatch.setenv(COSTS, str(file))
        [draft] = Proposer(configured()).propose([[5]], np.array([40]), text)
        lengths[name] = len(draft)
    assert lengths["cheap"] > lengths["dear"] == 0
    monkeypatch.delenv(COSTS)
    monkeypatch.setenv(METHOD, "pld:context.max_tokens=2")
    [draft] = Proposer(configured()).propose([[5]], np.array([40]), text)
    assert draft[:2] == [1, 2]


def test_auto_without_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METHOD, "auto:table=")
    assert Proposer(configured()).drafts.needs.top_k == 0


def with_tokenizer(monkeypatch: pytest.MonkeyPatch, tokenizer: object) -> None:
    """Let vLLM have a tokenizer; None: it was told to load none."""
    module = ModuleType("vllm.tokenizers")
    vars(module)["cached_tokenizer_from_config"] = lambda model_config: tokenizer
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.tokenizers", module)


def test_files_are_encoded_by_its_tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "letters.txt").write_text("abcdefghijklm")
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.text={tmp_path / 'letters.txt'}")
    with_tokenizer(monkeypatch, None)
    with pytest.raises(DraftwoodError, match=r"runs without a tokenizer: .* or give no files"):
        Proposer(configured())
    with_tokenizer(monkeypatch, Letters())
    given = np.array([Letters().encode("zabcdefgh", add_special_tokens=False)], dtype=np.int32)
    [draft] = Proposer(configured()).propose([given[0, -1:].tolist()], np.array([9]), given)
    assert draft[:2] == Letters().encode("ij", add_special_tokens=False)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (METHOD, "goos", "DRAFTWOOD_METHOD: unknown method 'goos'"),
        (METHOD, "auto:adjacency=context", "'adjacency' is bound to ranks no successors"),
        (METHOD, "goose", "goose drafts trees, and this engine verifies chains"),
        (METHOD, "auto:draft=embedded-draft", "drafts with a model"),
        (METHOD, "specinfer", "specinfer drafts trees, and this engine verifies chains"),
        (COSTS, "/nowhere.json", "DRAFTWOOD_COSTS: .*nowhere.json"),
    ],
)
def test_an_environment_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(DraftwoodError, match=words):
        Proposer(configured())

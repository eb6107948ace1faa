"""What SGLang's plugin drafts for decode batches, as SGLang asks for it.

The registry and the worker themselves run with SGLang only (``make test-sglang``).
"""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.integrations.engines import sglang
from draftwood.integrations.engines.environment import METHOD
from draftwood.integrations.engines.sglang.batch import BatchDrafts, batch_drafts_of
from tests.integrations.engines.small_engine import CONTEXT, VOCAB, Letters, Next, follows, plain

NODES = 8


@dataclass
class Req:
    """A request as SGLang has it."""

    rid: str
    origin_input_ids_unpadded: array[int]
    output_ids: array[int] = field(default_factory=lambda: array("q"))
    sampling_params: Any = field(
        default_factory=lambda: SimpleNamespace(temperature=0.0, top_k=1, max_new_tokens=150)
    )
    extra_key: str | None = None

    @property
    def text(self) -> list[int]:
        return [*self.origin_input_ids_unpadded, *self.output_ids]


def worker(
    *, overlap: bool = False, nodes: int = NODES, tp: int = 1, tokenizer: object = None
) -> Any:
    """The parts of a worker that are read."""
    config = SimpleNamespace(vocab_size=VOCAB, context_len=CONTEXT)
    return SimpleNamespace(
        draft_token_num=nodes,
        enable_overlap=overlap,
        model_runner=SimpleNamespace(model_config=config),
        server_args=SimpleNamespace(tp_size=tp),
        target_worker=SimpleNamespace(tokenizer=tokenizer),
    )


class Scheduler:
    """Verifies what is drafted; with overlap, results come one step late."""

    def __init__(self, drafts: BatchDrafts, model: Next, *, overlap: bool) -> None:
        self.drafts, self.model, self.overlap = drafts, model, overlap
        self.running: list[Req] = []
        self.late: dict[str, list[int]] = {}

    def add(self, rid: str, prompt: list[int]) -> Req:
        req = Req(rid, array("q", prompt))
        self.running.append(req)
        self.late[rid] = [self.model(prompt)]
        return req

    def step(self) -> None:
        width = self.drafts._nodes
        if not self.overlap:
            for req in self.running:
                req.output_ids.extend(self.late.pop(req.rid, []))
        tokens = np.zeros((len(self.running), width), dtype=np.int64)
        for row, req in enumerate(self.running):
            new = self.late.get(req.rid, [])
            tokens[row, : len(new)] = new
        spec = SimpleNamespace(
            accept_tokens=torch.from_numpy(tokens.ravel()),
            accept_lens=torch.tensor([len(self.late.get(r.rid, [])) for r in self.running]),
        )
        batch = SimpleNamespace(reqs=self.running, spec_info=spec, grammar_needs_sync=lambda: False)
        drafted, mask = self.drafts.prepared(batch)
        assert drafted.dtype == np.int64
        logits = torch.full((len(self.running) * width, VOCAB), -9.0)
        texts = {req.rid: [*req.text, *self.late.get(req.rid, [])] for req in self.running}
        for place, req in enumerate(self.running):
            own = mask.reshape(-1, width, width)[place]
            nodes = drafted.reshape(-1, width)[place].tolist()
            paths = [[nodes[j] for j in np.flatnonzero(own[i])] for i in range(width)]
            assert nodes[0] == texts[req.rid][-1], "the root is the newest token"
            says = [self.model([*texts[req.rid][:-1], *path]) for path in paths]
            for node, token in enumerate(says):
                logits[place * width + node, token] = 4.0
            if self.overlap:
                req.output_ids.extend(self.late.pop(req.rid, []))
            self.late[req.rid] = self._accepted(nodes, own, says)
        output = SimpleNamespace(next_token_logits=logits)
        self.drafts.verified(SimpleNamespace(logits_output=output))

    def _accepted(self, nodes: list[int], mask: Any, says: list[int]) -> list[int]:
        node, found = 0, list[int]()
        while True:
            found.append(says[node])
            below = [
                i
                for i in range(node + 1, len(nodes))
                if nodes[i] == found[-1]
                and set(np.flatnonzero(mask[i])) - {i} == set(np.flatnonzero(mask[node]))
            ]
            if not below:
                return found
            [node] = below


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("text", ["", "goose", "tr", "auto:shape=chain"])
def test_requests_come_go_and_are_retracted(
    monkeypatch: pytest.MonkeyPatch, text: str, overlap: bool
) -> None:
    monkeypatch.setenv(METHOD, text)
    model, drafts = follows(3), batch_drafts_of(worker(overlap=overlap))
    scheduler = Scheduler(drafts, model, overlap=overlap)
    reqs = [scheduler.add(f"r{i}", [(i * 7 + j * j) % VOCAB for j in range(12)]) for i in range(4)]
    away: list[Req] = []
    for step in range(60):
        if step == 20:
            away.append(scheduler.running.pop(1))  # no memory for it
        if step == 30:
            scheduler.running += away
        if step == 40:
            scheduler.running.pop(0)  # it has ended
        scheduler.step()
    for req in reqs:
        prompt = [*req.origin_input_ids_unpadded]
        assert [*req.output_ids] == plain(model, prompt, len(req.output_ids))
    found = drafts.drafts.acceptance
    assert found.committed > 1.3 * found.steps
    assert len(drafts.drafts) == 3
    assert f"{found.steps} steps" in str(found)
    if text in ("goose", "tr"):
        assert found.accepted["adjacency"] > 0, "the rows were read"


def test_flushing_forgets_all() -> None:
    drafts = batch_drafts_of(worker())
    scheduler = Scheduler(drafts, follows(3), overlap=False)
    scheduler.add("r", [1, 2, 3, 4] * 5)
    for _ in range(5):
        scheduler.step()
    drafts.clear()
    assert len(drafts.drafts) == 0
    for _ in range(5):
        scheduler.step()
    assert len(drafts.drafts) == 1


def test_a_request_that_is_nearly_done_drafts_no_more_than_it_needs() -> None:
    drafts = batch_drafts_of(worker())
    req = Req("r", array("q", [1, 2, 3, 4] * 9))
    req.output_ids.extend([1, 2])
    req.sampling_params.max_new_tokens = 3
    batch = SimpleNamespace(reqs=[req])
    tokens, mask = drafts.prepared(batch)
    assert tokens.tolist() == [2] * NODES, "the root, and detached nodes"
    assert mask.sum() == NODES


def test_a_failure_ends_no_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drafts = batch_drafts_of(worker())
    model = follows(3)
    scheduler = Scheduler(drafts, model, overlap=False)
    req = scheduler.add("r", [1, 2, 3, 4] * 5)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    with caplog.at_level(logging.ERROR, "draftwood"):
        scheduler.step()
        monkeypatch.setattr(drafts.drafts, "draft", broken)
        for _ in range(5):
            scheduler.step()
    assert len(caplog.records) == 1
    prompt = [*req.origin_input_ids_unpadded]
    assert [*req.output_ids] == plain(model, prompt, len(req.output_ids))


def test_ranks_do_not_share_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.file={tmp_path / 'memory'}")
    batch_drafts_of(worker())
    with pytest.raises(DraftwoodError, match="every rank would write the memory's file"):
        batch_drafts_of(worker(tp=2))


def test_files_are_encoded_by_its_tokenizer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "letters.txt").write_text("abcdefghijklm")
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.text={tmp_path / 'letters.txt'}")
    with pytest.raises(DraftwoodError, match="runs without a tokenizer: .* or give no files"):
        batch_drafts_of(worker())
    drafts = batch_drafts_of(worker(tokenizer=Letters()))
    req = Req("r", array("q", Letters().encode("zabcdefgh", add_special_tokens=False)))
    tokens, _ = drafts.prepared(SimpleNamespace(reqs=[req]))
    assert tokens[:4].tolist() == Letters().encode("hijk", add_special_tokens=False)


def test_another_version_of_sglang_is_refused_by_a_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sglang, "version", lambda _: "0.6.0")
    with caplog.at_level(logging.ERROR, "draftwood"):
        sglang.register()
    assert "is for sglang 0.5.23, and this is 0.6.0" in caplog.text

"""What SGLang's plugin drafts for decode batches, as SGLang asks for it.

The registry and the worker themselves run with SGLang only (``make test-sglang``).
"""

from __future__ import annotations

import logging
import multiprocessing
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed

from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.namespaces import Namespaces
from draftwood.errors import DraftwoodError
from draftwood.integrations.engines import sglang
from draftwood.integrations.engines.environment import METHOD
from draftwood.integrations.engines.sglang import batch
from draftwood.integrations.engines.sglang.batch import BatchDrafts, batch_drafts_of
from draftwood.tree import Draw, TokenTree, TreeBuilder, tree_of
from tests.integrations.engines.small_engine import VOCAB, Letters, follows, plain
from tests.integrations.engines.small_scheduler import (
    NODES,
    Req,
    Scheduler,
    forward_with,
    worker,
)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("text", ["", "goose", "tr", "auto:shape=chain"])
def test_requests_come_go_and_are_retracted(
    monkeypatch: pytest.MonkeyPatch, text: str, overlap: bool
) -> None:
    monkeypatch.setenv(METHOD, text)
    model, drafts = follows(3), batch_drafts_of(worker(overlap=overlap))
    scheduler = Scheduler(forward_with(drafts), model, overlap=overlap)
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


def _memory(drafts: BatchDrafts) -> Namespaces:
    found = drafts.drafts._drafters["memory"]
    assert isinstance(found, MemoryDrafter)
    return found._memory


def test_flushing_forgets_all() -> None:
    drafts = batch_drafts_of(worker())
    scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
    scheduler.add("r", [1, 2, 3, 4] * 5)
    for _ in range(5):
        scheduler.step()
    drafts.clear()
    assert len(drafts.drafts) == 0
    for _ in range(5):
        scheduler.step()
    assert len(drafts.drafts) == 1


@pytest.mark.parametrize(
    "text",
    ["auto:also=memory", "ngram-trie", "auto:adjacency.shared=on", "goose:adjacency.shared=on"],
)
def test_flushed_text_is_not_drafted_from(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(METHOD, text)
    drafts = batch_drafts_of(worker())

    def drafted(*, flush: bool) -> list[list[int]]:
        scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
        first = scheduler.add("a", [1, 2, 3, 4] * 5)
        for _ in range(12):
            scheduler.step()
        if flush:
            drafts.clear()
        scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
        scheduler.add("b", [40, 41, 42, *first.text[18:26]])  # which "a" has continued
        scheduler.step()
        drafts.clear()
        return scheduler.drafted

    fresh = drafted(flush=True)
    assert drafted(flush=True) == fresh
    assert drafted(flush=False) != fresh, "else there was nothing to forget"


def test_files_are_read_again_behind_a_flush(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = tmp_path / "letters.txt"
    text.write_text("abcdefghijklm")
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.text={text}")
    drafts = batch_drafts_of(worker(tokenizer=Letters()))

    def tokens() -> list[int]:
        req = Req("r", array("q", Letters().encode("zabcdefgh", add_special_tokens=False)))
        found: list[int] = drafts.prepared(SimpleNamespace(reqs=[req]))[0][:3].tolist()
        return found

    hij = Letters().encode("hij", add_special_tokens=False)
    assert tokens() == hij
    drafts.clear()
    assert tokens() == hij
    text.unlink()
    drafts.clear()
    assert tokens()[0] == hij[0]
    assert "drafting has failed" in caplog.text


def test_a_memorys_file_outlives_a_flush(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.file={tmp_path / 'memory'}")
    drafts = batch_drafts_of(worker())
    scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
    req = scheduler.add("r", [1, 2, 3, 4] * 5)
    for _ in range(5):
        scheduler.step()
    known = drafts.drafts.length("r")
    drafts.clear()
    scheduler.process()
    [(_, piece)] = _memory(drafts).pieces()
    assert piece.tolist() == req.text[:known]


def test_another_request_may_have_the_id_of_one_that_has_ended() -> None:
    drafts = batch_drafts_of(worker())
    scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
    first = scheduler.add("chat", [*range(10, 30)])
    first.extra_key = "alice"
    for _ in range(4):
        scheduler.step()
    known = drafts.drafts.length("chat")
    scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
    second = scheduler.add("chat", [5] * (known - 1))
    second.extra_key = "bob"
    for _ in range(4):
        scheduler.step()
        assert drafts.drafts.length("chat") <= len(second.text) + NODES
    memory = _memory(drafts)
    assert {name for name, _ in memory.pieces()} == {batch._namespace(first)}


def test_the_last_step_of_a_request_is_learnt() -> None:
    drafts = batch_drafts_of(worker())
    scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
    ended, _ = scheduler.add("r", [1, 2, 3, 4] * 5), scheduler.add("s", [7, 8, 9] * 4)
    for _ in range(5):
        scheduler.step()
    scheduler.process()
    scheduler.running.remove(ended)
    assert drafts.drafts.length("r") < len(ended.text)
    whole = ended.text
    # Behind its end, the engine leaves out what it has accepted.
    ended.finished_len = len(ended.output_ids)
    ended.output_ids.extend([9, 9])
    scheduler.step()
    [(_, piece)] = _memory(drafts).pieces()
    assert piece.tolist() == whole


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
    scheduler = Scheduler(forward_with(drafts), model, overlap=False)
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


def of_no_use(root: int) -> list[TokenTree]:
    """Trees that cannot be verified: too large, and with equal siblings."""
    twins = TreeBuilder(root)
    twins.add(0, 5, "given", draw=Draw.IID)
    twins.add(0, 5, "given", draw=Draw.IID)
    return [tree_of([root, *range(NODES)], [-1, *range(NODES)]), twins.build()]


@pytest.mark.parametrize("number", [0, 1])
def test_a_tree_that_cannot_be_verified_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    monkeypatch.setenv(METHOD, "goose")
    drafts, model = batch_drafts_of(worker()), follows(3)
    scheduler = Scheduler(forward_with(drafts), model, overlap=False)
    reqs = [scheduler.add(f"r{i}", [1, 2, 3, 4 + i] * 5) for i in range(2)]
    scheduler.step()
    before = [scheduler.decoded(req) for req in reqs]
    own = drafts.drafts.draft

    def one_of_no_use(*given: Any) -> list[TokenTree | None]:
        first, *others = own(*given)
        assert first is not None
        return [of_no_use(int(first.tokens[0]))[number], *others]

    monkeypatch.setattr(drafts.drafts, "draft", one_of_no_use)
    with caplog.at_level(logging.ERROR, "draftwood"):
        for _ in range(30):
            scheduler.step()
    assert len(caplog.records) == 1, "nothing else fails, such as learning from the step"
    assert scheduler.decoded(reqs[0]) == before[0] + 30, "one token a step"
    assert scheduler.decoded(reqs[1]) > before[1] + 30
    for req in reqs:
        assert [*req.output_ids] == plain(model, [*req.origin_input_ids], len(req.output_ids))


def test_rows_that_cannot_be_read_end_no_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(METHOD, "goose")
    drafts = batch_drafts_of(worker())
    scheduler = Scheduler(forward_with(drafts), follows(3), overlap=False)
    scheduler.add("r", [1, 2, 3, 4] * 5)
    scheduler.step()
    own = drafts.verified
    monkeypatch.setattr(drafts, "verified", lambda _: own(SimpleNamespace(logits_output=None)))
    with caplog.at_level(logging.ERROR, "draftwood"):
        for _ in range(3):
            scheduler.step()
    assert len(caplog.records) == 1


def test_a_prompt_is_not_taken_for_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where there are as many prompts as nodes."""
    monkeypatch.setenv(METHOD, "tr")
    model, drafted = follows(3), []
    for prompts in (0, NODES):
        drafts = batch_drafts_of(worker())
        scheduler = Scheduler(forward_with(drafts), model, overlap=False)
        scheduler.add("r", [1, 2, 3, 4] * 5)
        for _ in range(10):
            scheduler.step()
            scheduler.prefill({f"p{i}": [7, 8 + i] for i in range(prompts)})
            del scheduler.running[1:]
        drafted.append(scheduler.drafted)
    assert drafted[0] == drafted[1]


@pytest.mark.parametrize("text", ["", "goose", "pld"])
def test_prompts_are_read_between_decodes(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """With overlap, the tokens of the decode before have then arrived already."""
    monkeypatch.setenv(METHOD, text)
    model, drafts = follows(3), batch_drafts_of(worker(overlap=True))
    scheduler = Scheduler(forward_with(drafts), model, overlap=True)
    prompts = {f"r{i}": [(i * 7 + j * j) % VOCAB for j in range(12)] for i in range(8)}
    reqs: list[Req] = []
    for step in range(60):
        if step % 6 == 0 and len(reqs) < len(prompts):
            rid = f"r{len(reqs)}"
            reqs += scheduler.prefill({rid: prompts[rid]})
        scheduler.step()
        for req in scheduler.running:
            assert drafts.drafts.length(req.rid) == len(req.text)
    for req in reqs:
        assert [*req.output_ids] == plain(model, [*req.origin_input_ids], len(req.output_ids))


def test_ranks_do_not_share_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.file={tmp_path / 'memory'}")
    batch_drafts_of(worker())
    for sizes in ({"tp_size": 2}, {"dp_size": 2}, {"pp_size": 2}):
        several = worker()
        vars(several.server_args).update(sizes)
        with pytest.raises(DraftwoodError, match="every rank would write the memory's file"):
            batch_drafts_of(several)


def test_files_of_another_vocabulary_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.file={tmp_path / 'memory'}")
    batch_drafts_of(worker(tokenizer=Letters()))
    batch_drafts_of(worker(tokenizer=Letters()))

    class Others(Letters):
        def get_vocab(self) -> dict[str, int]:
            return {"other": 0}

    with pytest.raises(DraftwoodError, match="another vocabulary"):
        batch_drafts_of(worker(tokenizer=Others()))


def test_plain_decoding_is_a_method_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METHOD, "ar")
    drafts, model = batch_drafts_of(worker()), follows(3)
    scheduler = Scheduler(forward_with(drafts), model, overlap=False)
    req = scheduler.add("r", [1, 2, 3, 4] * 5)
    for _ in range(6):
        scheduler.step()
    assert [*req.output_ids] == plain(model, [*req.origin_input_ids], len(req.output_ids))
    assert drafts.drafts.acceptance.committed == drafts.drafts.acceptance.steps


def test_files_are_encoded_by_its_tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "letters.txt").write_text("abcdefghijklm")
    monkeypatch.setenv(METHOD, f"auto:also=memory:memory.text={tmp_path / 'letters.txt'}")
    with pytest.raises(DraftwoodError, match=r"runs without a tokenizer: .* or give no files"):
        batch_drafts_of(worker())
    drafts = batch_drafts_of(worker(tokenizer=Letters()))
    req = Req("r", array("q", Letters().encode("zabcdefgh", add_special_tokens=False)))
    tokens, _ = drafts.prepared(SimpleNamespace(reqs=[req]))
    assert tokens[:3].tolist() == Letters().encode("hij", add_special_tokens=False)


def test_another_version_of_sglang_is_refused_by_a_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sglang, "version", lambda _: "0.6.0")
    with caplog.at_level(logging.ERROR, "draftwood"):
        sglang.register()
    assert "is for sglang 0.5.23, and this is 0.6.0" in caplog.text


ANEW = "drafting has failed on one rank, and begins anew on all of them"


def beside_another_rank(fails: Callable[[int], bool]) -> tuple[BatchDrafts, list[int]]:
    """Drafts of a rank, and the failures that it tells; ``fails``: the other one, in a step."""
    drafts, told = batch_drafts_of(worker()), list[int]()

    def same(failures: int) -> bool:
        told.append(failures)
        return not fails(len(told))

    drafts._same = same
    return drafts, told


def test_all_ranks_begin_anew_where_drafting_has_failed_on_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drafts, told, model = *beside_another_rank(lambda step: step == 20), follows(3)
    scheduler = Scheduler(forward_with(drafts), model, overlap=False)
    req = scheduler.add("r", [1, 2, 3, 4] * 5)
    with caplog.at_level(logging.ERROR, "draftwood"):
        for step in range(40):
            scheduler.step()
            assert len(drafts.drafts) == (step != 19)
    assert [record.message for record in caplog.records] == [ANEW]
    assert told == [0] * 40
    assert [*req.output_ids] == plain(model, [1, 2, 3, 4] * 5, len(req.output_ids))
    # It drafts before and behind that step, and not in it.
    trees = [len(set(tree)) > 1 for tree in scheduler.drafted]
    assert any(trees[:19])
    assert not trees[19]
    assert any(trees[20:])
    monkeypatch.setattr(batch, "_top", lambda *_: 1 / 0)
    scheduler.step()
    scheduler.step()
    assert told[-1] >= 1, "what has failed here is told"


def test_drafting_ends_where_to_begin_anew_does_not_help(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drafts, told, model = *beside_another_rank(lambda step: step > 10), follows(3)
    scheduler = Scheduler(forward_with(drafts), model, overlap=False)
    req = scheduler.add("r", [1, 2, 3, 4] * 5)
    with caplog.at_level(logging.ERROR, "draftwood"):
        for _ in range(40):
            scheduler.step()
    ended = "drafting has failed on one rank, and ends on all of them until flush_cache"
    assert [record.message for record in caplog.records] == [ANEW, ANEW, ended]
    assert len(told) == 13
    assert not any(len(set(tree)) > 1 for tree in scheduler.drafted[10:])
    assert [*req.output_ids] == plain(model, [1, 2, 3, 4] * 5, len(req.output_ids))
    drafts.clear()
    drafts._same = lambda _: True
    scheduler.step()
    scheduler.step()
    assert any(len(set(tree)) > 1 for tree in scheduler.drafted[40:])


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", None), ("b", None)), ((None, "a"), (None, "b")), (("a", None), (None, "a"))],
)
def test_texts_are_kept_apart_as_in_the_radix_cache(
    one: tuple[str | None, ...], other: tuple[str | None, ...]
) -> None:
    reqs = [Req("r", array("q", [1, 2])) for _ in range(5)]
    for req, given in zip(reqs, (one, one, other, (None, None), ("", "")), strict=True):
        req.extra_key, req.cache_salt = given
    names = [batch._namespace(req) for req in reqs]
    assert names[0] == names[1] != names[2]
    assert names[3:] == ["", ""]


def agreeing(rank: int, store: str, numbers: list[int], found: Any) -> None:
    """A rank that tells some numbers."""
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    ranks = SimpleNamespace(world_size=2, cpu_group=distributed.group.WORLD)
    same = batch.same_on(ranks)
    found.put((rank, [same(number) for number in numbers]))
    distributed.destroy_process_group()


def test_ranks_tell_each_other_how_often_drafting_has_failed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    ranks = [
        context.Process(target=agreeing, args=(rank, str(tmp_path / "store"), numbers, found))
        for rank, numbers in enumerate(([0, 1, 2, 5], [0, 0, 2, 7]))
    ]
    for process in ranks:
        process.start()
    told = dict(found.get(timeout=120) for _ in ranks)
    for process in ranks:
        process.join(60)
    assert told == {0: [True, False, True, False], 1: [True, False, True, False]}


def test_the_likeliest_tokens_of_many_rows() -> None:
    logits = torch.randn(150, VOCAB, generator=torch.Generator().manual_seed(0))
    tokens, chances = batch._top(logits, 3).read()
    expected = logits.softmax(-1).topk(3, dim=-1)
    assert tokens.tolist() == expected.indices.tolist()
    assert chances == pytest.approx(expected.values.numpy(), rel=1e-5)

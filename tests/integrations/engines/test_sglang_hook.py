"""The hooks on SGLang's NGRAM, on a stand-in for its worker with the overlap schedule."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.integrations.engines.environment import METHOD
from draftwood.integrations.engines.sglang.batch import BatchDrafts
from tests.integrations.engines.small_engine import VOCAB, follows, plain
from tests.integrations.engines.small_scheduler import NODES, Scheduler, worker

ALGORITHM = "draftwood.integrations.engines.sglang.algorithm"
WORKER = "sglang.srt.speculative.ngram_worker"
OWN_WORKER = "draftwood.integrations.engines.sglang.worker"


class NGRAMWorker:
    """What SGLang's worker does around its drafts, which nobody asks for here."""

    enable_overlap: bool
    draftwood: Any
    prev_token_ids: list[int]

    def __init__(self, *, overlap: bool) -> None:
        vars(self).update(vars(worker(overlap=overlap)))
        self.cleared = 0

    def clear_cache_pool(self) -> None:
        self.cleared += 1

    def _prepare_draft_tokens(self, batch: Any) -> Any:
        self.prev_token_ids = batch.spec_info.accept_tokens.tolist()
        raise AssertionError("these are SGLang's own drafts")

    def _update_ngram_corpus(self, batch: Any) -> None:
        if self.enable_overlap:
            assert len(self.prev_token_ids) == len(batch.reqs) * NODES

    def forward_batch_generation(self, batch: Any) -> Any:
        if batch.verify is None:
            return batch.result
        result = batch.verify(*self._prepare_draft_tokens(batch))
        self._update_ngram_corpus(batch)
        return result


class Registry:
    """SGLang's registry of hooks, which applies them at once."""

    @staticmethod
    def register(place: str, hook: Callable[..., Any], kind: str) -> None:
        """Call the hook in place of a method, which it gets."""
        assert kind == "around"
        module, owner, name = place.rsplit(".", 2)
        kept = getattr(sys.modules[module], owner)
        original = getattr(kept, name)
        setattr(kept, name, lambda *given, **named: hook(original, *given, **named))


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[NGRAMWorker]]:
    """The worker with Draftwood's hooks."""

    class Own(NGRAMWorker):
        """A copy for one test."""

    contents: dict[str, dict[str, object]] = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.distributed": {},
        "sglang.srt.distributed.parallel_state": {"get_attn_tp_group": lambda: None},
        "sglang.srt.managers": {},
        "sglang.srt.managers.overlap_utils": {"FutureMap": object},
        "sglang.srt.plugins": {},
        "sglang.srt.plugins.hook_registry": {
            "HookRegistry": Registry,
            "HookType": SimpleNamespace(AROUND="around"),
        },
        "sglang.srt.speculative": {},
        "sglang.srt.speculative.spec_info": {"SpeculativeAlgorithm": object},
        "sglang.srt.speculative.spec_registry": {"CustomSpecAlgo": object},
        WORKER: {"NGRAMWorker": Own, "NgramCorpus": object},
    }
    for name, content in contents.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    try:
        importlib.import_module(ALGORITHM).hook_ngram()
        yield Own
    finally:
        sys.modules.pop(ALGORITHM, None)
        sys.modules.pop(OWN_WORKER, None)


USUAL: dict[str, object] = {
    "device": "cuda",
    "max_running_requests": None,
    "speculative_num_draft_tokens": None,
    "speculative_eagle_topk": None,
    "speculative_num_steps": None,
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
    "tokenizer_worker_num": 1,
    "use_ray": False,
    "page_size": 1,
    "attn_dp_size": 1,
    "enable_dp_attention": False,
}


@pytest.mark.usefixtures("hooked")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        # SGLang moves the deprecated flag to the size before it asks.
        ({"attn_dp_size": 2}, "leave --attn-dp-size"),
        ({"enable_dp_attention": True}, "leave --attn-dp-size"),
        ({"tokenizer_worker_num": 2}, "leave --tokenizer-worker-num"),
        ({"use_ray": True}, "leave --tokenizer-worker-num and --use-ray out"),
        ({"speculative_accept_threshold_acc": 0.9}, "--speculative-accept-threshold-acc below 1"),
        ({"speculative_num_draft_tokens": 1}, "leaves no place for a draft"),
        ({"page_size": 16, "attention_backend": "fa3"}, "needs --attention-backend flashinfer"),
    ],
)
def test_what_cannot_be_done_is_refused(given: dict[str, object], said: str) -> None:
    algorithm = importlib.import_module(ALGORITHM).DraftwoodAlgorithm()
    algorithm.handle_server_args(SimpleNamespace(**USUAL))
    with pytest.raises(DraftwoodError, match=said):
        algorithm.handle_server_args(SimpleNamespace(**USUAL | given))


@pytest.mark.usefixtures("hooked")
@pytest.mark.parametrize("nodes", [None, 8, 32])
@pytest.mark.parametrize("given", [None, 1])
def test_a_step_asks_for_no_more_room_than_for_its_nodes(
    nodes: int | None, given: int | None
) -> None:
    args = SimpleNamespace(**USUAL)
    args.speculative_num_draft_tokens, args.speculative_eagle_topk = nodes, given
    importlib.import_module(ALGORITHM).DraftwoodAlgorithm().handle_server_args(args)
    assert args.speculative_num_draft_tokens == (nodes or 8)
    assert args.speculative_eagle_topk > 1, "kernels take 1 for a chain"
    room = args.speculative_eagle_topk * args.speculative_num_steps
    assert room <= args.speculative_num_draft_tokens


@pytest.mark.usefixtures("hooked")
def test_a_row_of_cache_places_holds_what_a_step_reserves(monkeypatch: pytest.MonkeyPatch) -> None:
    sizing = ModuleType("sglang.srt.mem_cache.allocation_sizing")
    vars(sizing).update(get_alloc_reserve_per_decode=lambda: 64)
    monkeypatch.setitem(sys.modules, sizing.__name__, sizing)
    headroom = importlib.import_module(ALGORITHM)._headroom
    assert headroom(lambda: 36) == 64
    assert headroom(lambda: 80) == 80


@pytest.mark.parametrize("overlap", [False, True])
def test_ngram_drafts_with_draftwood(
    monkeypatch: pytest.MonkeyPatch, hooked: type[NGRAMWorker], overlap: bool
) -> None:
    monkeypatch.setenv(METHOD, "goose")
    model, ngram = follows(3), hooked(overlap=overlap)
    scheduler = Scheduler(ngram.forward_batch_generation, model, overlap=overlap)
    prompts = {f"r{i}": [(i * 7 + j * j) % VOCAB for j in range(12)] for i in range(4)}
    reqs = scheduler.prefill(prompts)
    for _ in range(40):
        scheduler.step()
    for req in reqs:
        assert [*req.output_ids] == plain(model, [*req.origin_input_ids], len(req.output_ids))
    drafts = ngram.draftwood.drafts
    assert drafts.acceptance.accepted["adjacency"] > 0, "the rows were read"
    ngram.clear_cache_pool()
    assert (len(drafts), ngram.cleared) == (0, 1)


@pytest.mark.usefixtures("hooked")
def test_the_worker_of_draftwood_drafts_once_with_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METHOD, "goose")
    read: list[object] = []
    verified = BatchDrafts.verified

    def counted(drafts: BatchDrafts, result: Any) -> None:
        read.append(drafts)
        verified(drafts, result)

    monkeypatch.setattr(BatchDrafts, "verified", counted)
    model, own = follows(3), importlib.import_module(OWN_WORKER).DraftwoodWorker(overlap=False)
    scheduler = Scheduler(own.forward_batch_generation, model, overlap=False)
    reqs = scheduler.prefill({"r": [(7 + j * j) % VOCAB for j in range(12)]})
    for _ in range(10):
        scheduler.step()
    found = [*reqs[0].output_ids]
    assert len(found) >= 10
    assert found == plain(model, [*reqs[0].origin_input_ids], len(found))
    assert len(read) == 11, "once a forward"
    own.clear_cache_pool()
    assert own.cleared == 1


def test_wrong_settings_end_the_start(
    monkeypatch: pytest.MonkeyPatch, hooked: type[NGRAMWorker]
) -> None:
    monkeypatch.setenv(METHOD, "gosse")
    with pytest.raises(DraftwoodError, match=r"DRAFTWOOD_METHOD: .*gosse"):
        hooked(overlap=True)

"""The speculative algorithm as SGLang's registry takes it, and the hooks on its NGRAM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.managers.overlap_utils import FutureMap
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from draftwood.errors import DraftwoodError
from draftwood.integrations.engines.sglang import NAME

_NODES = 8
"""Nodes of a tree, the root included, where ``--speculative-num-draft-tokens`` says nothing."""

_REQUESTS = 48
"""Most running requests where ``--max-running-requests`` says nothing, as with NGRAM."""

_TREE_BACKEND = "flashinfer"
"""The attention backend that verifies trees on pages of several tokens."""


class DraftwoodAlgorithm(CustomSpecAlgo):  # type: ignore[misc]
    """Draftwood's trees, verified by what SGLang has for its NGRAM."""

    def is_ngram(self) -> bool:
        """True: drafts come from the host and the forward is that of NGRAM."""
        return True

    def has_draft_kv(self) -> bool:
        """False: there is no draft model."""
        return False

    def need_topk(self) -> bool:
        """False; the scheduler asks, and the registry's base class does not answer."""
        return False

    def carries_draft_hidden_states(self) -> bool:
        """False; likewise."""
        return False

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        """SGLang's own; likewise."""
        return FutureMap(
            device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay
        )

    def handle_server_args(self, server_args: Any) -> None:
        """Set what NGRAM sets, and refuse what trees, or this plugin, cannot do.

        The product of ``speculative_eagle_topk`` and ``speculative_num_steps`` is the room that a
        step asks for, beside the nodes. One step is what NGRAM has. The first one has to be above 1
        for trees: kernels take it for a sign of chains, and read no mask.

        Raises:
            DraftwoodError: such a setting was given.
        """
        if server_args.device == "cpu":
            server_args.disable_overlap_schedule = True
        server_args.enable_mixed_chunk = False
        if server_args.max_running_requests is None:
            server_args.max_running_requests = _REQUESTS
        if server_args.speculative_num_draft_tokens is None:
            server_args.speculative_num_draft_tokens = _NODES
        if server_args.speculative_num_draft_tokens < 2:
            raise DraftwoodError(
                f"--speculative-num-draft-tokens {server_args.speculative_num_draft_tokens} leaves "
                "no place for a draft: the root takes one; give 2 or more"
            )
        server_args.speculative_eagle_topk = server_args.speculative_num_draft_tokens - 1
        server_args.speculative_num_steps = 1
        _refuse(server_args)
        pages = server_args.page_size or 1
        if pages > 1 and server_args.attention_backend != _TREE_BACKEND:
            raise DraftwoodError(
                f"--page-size {pages} with trees needs --attention-backend {_TREE_BACKEND}: use "
                "it, or --page-size 1"
            )
        # The pipeline of arguments has moved the deprecated flag to the size by now.
        if getattr(server_args, "attn_dp_size", 1) > 1 or server_args.enable_dp_attention:
            raise DraftwoodError(
                "trees cannot be verified with data-parallel attention: leave --attn-dp-size and "
                "--enable-dp-attention out"
            )


def _refuse(server_args: Any) -> None:
    """Refuse processes in which SGLang loads no plugins, and thresholds that lose the distribution.

    Raises:
        DraftwoodError: such a setting was given.
    """
    if getattr(server_args, "tokenizer_worker_num", 1) > 1 or getattr(
        server_args, "use_ray", False
    ):
        raise DraftwoodError(
            f"SGLang loads no plugins in further tokenizer workers and in Ray's actors, so that "
            f"{NAME} is not known there: leave --tokenizer-worker-num and --use-ray out"
        )
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        if getattr(server_args, name, 1.0) < 1.0:
            raise DraftwoodError(
                f"--{name.replace('_', '-')} below 1 accepts tokens that the model would not have "
                "drawn: leave it out"
            )


def register_algorithm() -> None:
    """Make ``--speculative-algorithm DRAFTWOOD`` known."""
    HookRegistry.register(
        "sglang.srt.mem_cache.allocation_sizing.get_req_to_token_extra_context_len",
        _headroom,
        HookType.AROUND,
    )

    @SpeculativeAlgorithm.register(  # type: ignore[untyped-decorator]
        NAME, supports_overlap=True, spec_class=DraftwoodAlgorithm
    )
    def worker(server_args: Any) -> type:  # noqa: ARG001
        from draftwood.integrations.engines.sglang.worker import DraftwoodWorker

        return DraftwoodWorker


def _headroom(original: Callable[..., int], *given: Any, **named: Any) -> int:
    """Columns of a request's row of cache places beyond the context.

    What a step reserves, two for each node, has to fit behind the last token of a text, which comes
    4 before the context's end at most. With pages of one token SGLang adds 4 columns and one for
    each node, which is enough for 8 nodes.
    """
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode

    return max(original(*given, **named), int(get_alloc_reserve_per_decode()))


def hook_ngram() -> None:
    """Let ``--speculative-algorithm NGRAM`` draft with Draftwood.

    What SGLang decides by that name, such as LoRA, stays as it is. The worker of ``DRAFTWOOD``
    extends that of NGRAM, and keeps its own drafts.
    """
    place = "sglang.srt.speculative.ngram_worker.NGRAMWorker"

    def make(original: Callable[..., Any], worker: Any, *given: Any, **named: Any) -> None:
        """Make the drafts at once, so that a wrong setting ends the start."""
        from sglang.srt.distributed.parallel_state import get_attn_tp_group

        from draftwood.integrations.engines.sglang.batch import batch_drafts_of
        from draftwood.integrations.engines.sglang.worker import DraftwoodWorker

        original(worker, *given, **named)
        if not isinstance(worker, DraftwoodWorker):
            worker.draftwood = batch_drafts_of(worker, get_attn_tp_group())

    def prepare(original: Callable[..., Any], worker: Any, batch: Any) -> Any:  # noqa: ARG001
        return worker.draftwood.prepared(batch)

    def learn(original: Callable[..., Any], worker: Any, batch: Any) -> None:
        """Nothing: sources learn from the next step's texts.

        The original reads what its own ``_prepare_draft_tokens`` has kept of the step before.
        """

    def flush(original: Callable[..., Any], worker: Any) -> Any:
        if hasattr(worker, "draftwood"):
            worker.draftwood.clear()
        return original(worker)

    def forward(
        original: Callable[..., Any], worker: Any, batch: Any, *given: Any, **named: Any
    ) -> Any:
        result = original(worker, batch, *given, **named)
        if hasattr(worker, "draftwood"):
            worker.draftwood.verified(result)
        return result

    for name, hook in (
        ("__init__", make),
        ("_prepare_draft_tokens", prepare),
        ("_update_ngram_corpus", learn),
        ("clear_cache_pool", flush),
        ("forward_batch_generation", forward),
    ):
        HookRegistry.register(f"{place}.{name}", hook, HookType.AROUND)

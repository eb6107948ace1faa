"""Drafts for SGLang's decode batches, in its arrays. Imports nothing of SGLang."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.integrations.engines.drafts import FLAT_COSTS, EngineDrafts
from draftwood.integrations.engines.encoding import encoding, vocabulary_of
from draftwood.integrations.engines.environment import method_of, refuse_shared_file
from draftwood.integrations.engines.packed import PackedTree, packed
from draftwood.integrations.engines.rows import TopRows
from draftwood.tree import TokenTree, TreeBuilder

logger = logging.getLogger(__name__)

DEFAULT_METHOD = "auto:also=memory"
"""What drafts where ``DRAFTWOOD_METHOD`` names nothing else."""

_MANY = 1 << 30
"""New tokens of a request without a limit."""

_ROWS_AT_ONCE = 64
"""Rows of logits that are copied to float32 at once."""

_LOGGED = 200
"""Batches after which the acceptance is logged."""

_MOST_PARTED = 3
"""Steps in a row in which ranks may differ before drafting ends: to begin anew has not helped."""


@dataclass(frozen=True, eq=False)
class _Verified:
    """The likeliest tokens of a batch's rows, on their way to the host.

    Attributes:
        tokens: int64 ``[bs * nodes, k]``.
        probabilities: float32 ``[bs * nodes, k]``.
        arrived: an event of the device, or None.
    """

    tokens: Any
    probabilities: Any
    arrived: Any

    def read(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Wait for the copy, which the step before has mostly done."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.tokens.numpy(), self.probabilities.numpy()


class BatchDrafts:
    """Drafts for decode batches.

    Every request has the same number of nodes, whose forward has the same size whatever they are.
    So ``auto`` drafts the likeliest candidates until a tree is full.

    Args:
        drafts: of the requests.
        nodes: of a tree, the root included (``--speculative-num-draft-tokens``).
        overlap: results are processed one step late (SGLang's overlap schedule).
        same: whether a number is the same on all ranks.
        logs: whether this rank logs the acceptance.
    """

    def __init__(
        self,
        drafts: EngineDrafts,
        nodes: int,
        *,
        overlap: bool,
        same: Callable[[int], bool] = lambda _: True,
        logs: bool = True,
    ) -> None:
        self.drafts = drafts
        self._nodes = nodes
        self._overlap = overlap
        self._same = same
        self._logs = logs
        self._batches = 0
        self._parted = 0  # steps in a row in which ranks differed
        self._last: list[Any] = []  # requests of the step before, in its order
        self._trees: list[TokenTree] = []
        self._verified: _Verified | None = None
        self._awaited = False  # a forward of trees runs, whose result is the next one

    def prepared(self, batch: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Tokens int64 ``[bs * nodes]`` and ancestor masks bool ``[bs * nodes * nodes]``.

        Args:
            batch: SGLang's ``ScheduleBatch``.
        """
        # Not guarded: a step without the right root would have other tokens.
        added = self._added(batch)
        roots = [_newest(req, new) for req, new in zip(batch.reqs, added, strict=True)]
        found = self._drafted(batch, added)
        self._last = [*batch.reqs]
        every = [
            self._placed(req.rid, tree, root)
            for req, tree, root in zip(self._last, found, roots, strict=True)
        ]
        self._trees, self._awaited = [tree for tree, _ in every], not self._ended
        tokens = np.concatenate([form.tokens for _, form in every])
        return tokens, np.concatenate([form.mask.ravel() for _, form in every])

    def _drafted(self, batch: Any, added: Sequence[Sequence[int]]) -> Sequence[TokenTree | None]:
        """The trees of a batch, the same on all ranks; None where nothing is drafted."""
        nothing = [None] * len(batch.reqs)
        found: Sequence[TokenTree | None] = nothing
        if self._ended:
            return nothing
        try:
            self._learn(batch, added)
            found = self.drafts.draft([req.rid for req in batch.reqs], _left(batch.reqs, added))
        except Exception as error:  # noqa: BLE001 - the engine goes on
            self.drafts.report(error)
        if self._same(self.drafts.failures):
            self._parted = 0
            return found
        # What failed on one rank alone leaves it with other sources than the others have.
        parted = self._parted + 1
        self.clear()
        self._parted = parted
        what = (
            "ends on all of them until flush_cache" if self._ended else "begins anew on all of them"
        )
        logger.error("drafting has failed on one rank, and %s", what)
        return nothing

    @property
    def _ended(self) -> bool:
        """Whether nothing is drafted any more, until the next flush."""
        return self._parted >= _MOST_PARTED

    def verified(self, result: Any) -> None:
        """Begin to copy the likeliest tokens of the rows of a step to the host.

        Args:
            result: SGLang's ``GenerationBatchResult``.
        """
        awaited, self._awaited = self._awaited, False
        width = self.drafts.needs.top_k
        if not awaited or not width:
            return  # of prompts, or of no use
        try:
            self._verified = _top(result.logits_output.next_token_logits, width)
        except Exception as error:  # noqa: BLE001 - likewise
            self.drafts.report(error)

    def clear(self) -> None:
        """Forget all requests, and their text."""
        self.drafts.clear()
        self._last, self._trees, self._verified, self._awaited = [], [], None, False
        self._parted = 0

    def _placed(self, rid: str, tree: TokenTree | None, root: int) -> tuple[TokenTree, PackedTree]:
        """A request's tree and its packed form: of its root alone where a tree does not fit."""
        if tree is not None and int(tree.tokens[0]) == root:
            try:
                return tree, packed(tree, self._nodes)
            except Exception as error:  # noqa: BLE001 - likewise
                self.drafts.report(error)
        self.drafts.withdraw(rid)
        alone = TreeBuilder(root).build("plain")
        return alone, packed(alone, self._nodes)

    def _added(self, batch: Any) -> list[list[int]]:
        """Tokens of each request that are not in its ``output_ids`` yet.

        They are those of its last step, unless another batch ran after that: SGLang has then
        processed the step meanwhile.
        """
        if not self._overlap or batch.grammar_needs_sync():
            return [[] for _ in batch.reqs]
        tokens = batch.spec_info.accept_tokens.cpu().tolist()
        counts = batch.spec_info.accept_lens.cpu().tolist()
        found = []
        for place, (req, count) in enumerate(zip(batch.reqs, counts, strict=True)):
            # Of a text, the last token alone has no keys and values yet.
            length = int(batch.seq_lens_cpu[place]) + 1
            lacking = length - len(req.origin_input_ids) - len(req.output_ids)
            end = place * self._nodes + count
            found.append(tokens[end - min(count, max(0, lacking)) : end])
        return found

    def _learn(self, batch: Any, added: Sequence[Sequence[int]]) -> None:
        """Tell the sources what the step before has committed, and what has ended."""
        rows = self._rows()
        # Another request may have the id of one that has ended.
        now = {id(req) for req in batch.reqs}
        for req in self._last:
            if id(req) not in now:
                self._committed(req, (), rows)
                self.drafts.end(req.rid)
        for req, new in zip(batch.reqs, added, strict=True):
            prompt, output = req.origin_input_ids_unpadded, req.output_ids
            known, length = self.drafts.length(req.rid), len(prompt) + len(output) + len(new)
            if len(prompt) <= known < length:
                self._committed(req, new, rows)
            elif known != length:
                temperature = float(req.sampling_params.temperature)
                greedy = getattr(req.sampling_params, "top_k", 0) == 1
                self.drafts.begin(
                    req.rid,
                    [*prompt, *output, *new],
                    namespace=_namespace(req),
                    temperature=0.0 if greedy else temperature,
                )
        self._batches += 1
        if self._logs and not self._batches % _LOGGED:
            logger.info("Draftwood: %s", self.drafts.acceptance)

    def _committed(self, req: Any, new: Sequence[int], rows: Mapping[str, TopRows]) -> None:
        """Tell the sources of the tokens of a request that they do not know yet.

        Args:
            req: the request; of its output, nothing behind its end counts.
            new: tokens behind its output.
            rows: of the step before.
        """
        known = self.drafts.length(req.rid) - len(req.origin_input_ids_unpadded)
        if known < 0:
            return
        fresh = [*req.output_ids[known : getattr(req, "finished_len", None)], *new]
        # Where the output has fewer tokens than are known, some of the new ones are known, too.
        fresh = fresh[max(0, known - len(req.output_ids)) :]
        if fresh:
            self.drafts.commit(req.rid, fresh, rows.get(req.rid))

    def _rows(self) -> dict[str, TopRows]:
        """The rows of the step before, by request."""
        found, self._verified = self._verified, None
        if found is None:
            return {}
        tokens, probabilities = found.read()
        rows = {}
        for place, (req, tree) in enumerate(zip(self._last, self._trees, strict=True)):
            start = place * self._nodes
            own = slice(start, start + len(tree))
            rows[req.rid] = TopRows(tokens[own], probabilities[own])
        return rows


def batch_drafts_of(worker: Any, ranks: Any = None) -> BatchDrafts:
    """The drafts of a worker of SGLang's.

    Args:
        worker: of a rank.
        ranks: SGLang's ``GroupCoordinator`` of those that decode the same requests; None: no other.

    Raises:
        DraftwoodError: ``DRAFTWOOD_METHOD`` cannot be used, or several ranks would write one file.
    """
    nodes = int(worker.draft_token_num)
    model = worker.model_runner.model_config
    method = method_of(DEFAULT_METHOD, nodes - 1)
    kinds = ("tp", "dp", "pp")
    refuse_shared_file(method, (getattr(worker.server_args, f"{kind}_size", 1) for kind in kinds))

    def tokenizer() -> Any:
        return getattr(worker.target_worker, "tokenizer", None)

    drafts = EngineDrafts(
        method,
        vocab_size=int(model.vocab_size),
        context=int(model.context_len),
        # SGLang verifies as many nodes, whatever they are.
        costs=FLAT_COSTS,
        encode=encoding(tokenizer),
        vocabulary=vocabulary_of(method, tokenizer),
    )
    return BatchDrafts(
        drafts,
        nodes,
        overlap=bool(worker.enable_overlap),
        same=same_on(ranks),
        logs=getattr(ranks, "rank_in_group", 0) == 0,
    )


def same_on(ranks: Any) -> Callable[[int], bool]:
    """Tells whether a number is the same on all ranks, which all have to ask.

    Args:
        ranks: SGLang's ``GroupCoordinator``; None: there is no other.
    """
    if ranks is None or ranks.world_size == 1:
        return lambda _: True
    from torch import distributed, tensor

    def same(number: int) -> bool:
        most = tensor([number, -number])
        distributed.all_reduce(most, distributed.ReduceOp.MAX, ranks.cpu_group)
        return int(most[0]) == -int(most[1])

    return same


def _newest(req: Any, added: Sequence[int]) -> int:
    """The last committed token of a request."""
    texts = (added, req.output_ids, req.origin_input_ids_unpadded)
    return int(next(text for text in texts if len(text))[-1])


def _namespace(req: Any) -> str:
    """What keeps a request's text apart from others', as SGLang's radix cache does."""
    key, salt = req.extra_key or "", getattr(req, "cache_salt", None)
    return json.dumps([key, salt]) if key or salt else ""


def _left(reqs: Sequence[Any], added: Sequence[Sequence[int]]) -> list[int]:
    """Tokens that each request may still generate."""
    return [
        max(0, (req.sampling_params.max_new_tokens or _MANY) - len(req.output_ids) - len(new))
        for req, new in zip(reqs, added, strict=True)
    ]


def _top(logits: Any, width: int) -> _Verified:
    """The likeliest tokens of rows and their probabilities, in one copy each."""
    import torch

    with torch.inference_mode():
        values, tokens = logits.topk(width, dim=-1)
        # Float32 copies of all rows would take memory that SGLang has not set aside.
        sums = [rows.float().logsumexp(-1, keepdim=True) for rows in logits.split(_ROWS_AT_ONCE)]
        chances = (values.float() - torch.cat(sums)).exp()
        if not logits.is_cuda:
            return _Verified(tokens.cpu(), chances.cpu(), None)
        there = [
            torch.empty_like(each, device="cpu", pin_memory=True) for each in (tokens, chances)
        ]
        for to, each in zip(there, (tokens, chances), strict=True):
            to.copy_(each, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
    return _Verified(there[0], there[1], arrived)

"""A stand-in for SGLang's scheduler, with the parts of its requests and workers that are read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from draftwood.integrations.engines.sglang.batch import BatchDrafts
from tests.integrations.engines.small_engine import CONTEXT, VOCAB, Next

NODES = 8


@dataclass
class Req:
    """A request as SGLang has it."""

    rid: str
    origin_input_ids: array[int]
    output_ids: array[int] = field(default_factory=lambda: array("q"))
    sampling_params: Any = field(
        default_factory=lambda: SimpleNamespace(temperature=0.0, top_k=1, max_new_tokens=150)
    )
    extra_key: str | None = None
    cache_salt: str | None = None
    finished_len: int | None = None

    @property
    def origin_input_ids_unpadded(self) -> array[int]:
        """The same, as there are no images."""
        return self.origin_input_ids

    @property
    def text(self) -> list[int]:
        """Prompt and processed tokens."""
        return [*self.origin_input_ids, *self.output_ids]


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


def forward_with(drafts: BatchDrafts) -> Callable[[Any], None]:
    """A worker's forward of a batch: of prompts, or of trees that are drafted for it."""

    def forward(batch: Any) -> None:
        if batch.verify is None:
            drafts.verified(batch.result)
        else:
            drafts.verified(batch.verify(*drafts.prepared(batch)))

    return forward


class Scheduler:
    """Verifies what is drafted; with overlap, results are processed one step late.

    Args:
        forward: of a batch. ``batch.verify`` turns tokens and masks into its result; of prompts it
            is None, and ``batch.result`` is the result.
        model: says which token follows a text.
        overlap: see above.
        nodes: of every tree.

    Attributes:
        running: requests of the next decode.
        late: tokens of each that are not processed yet.
        accepted: tokens of each by its last step, processed or not (``spec_info``).
        drafted: tokens of all trees.
    """

    def __init__(
        self, forward: Callable[[Any], object], model: Next, *, overlap: bool, nodes: int = NODES
    ) -> None:
        self.forward, self.model, self.overlap, self.nodes = forward, model, overlap, nodes
        self.running: list[Req] = []
        self.late: dict[str, list[int]] = {}
        self.accepted: dict[str, list[int]] = {}
        self.drafted: list[list[int]] = []

    def add(self, rid: str, prompt: list[int]) -> Req:
        req = Req(rid, array("q", prompt))
        self.running.append(req)
        self.late[rid] = self.accepted[rid] = [self.model(prompt)]
        return req

    def prefill(self, prompts: dict[str, list[int]]) -> list[Req]:
        """Read prompts between two decodes; the one before is processed meanwhile."""
        rows = torch.full((len(prompts), VOCAB), -9.0)
        for row, prompt in zip(rows, prompts.values(), strict=True):
            row[self.model(prompt)] = 4.0
        self.forward(SimpleNamespace(verify=None, result=_result(rows)))
        self.process()
        return [self.add(rid, prompt) for rid, prompt in prompts.items()]

    def decoded(self, req: Req) -> int:
        """Tokens of a request that were decoded, processed or not."""
        return len(req.output_ids) + len(self.late.get(req.rid, []))

    def process(self) -> None:
        """Take the results that are late."""
        for req in self.running:
            req.output_ids.extend(self.late.pop(req.rid, []))

    def step(self) -> None:
        """A decode of all running requests."""
        if not self.overlap:
            self.process()
        texts = [[*req.text, *self.late.get(req.rid, [])] for req in self.running]
        found: dict[str, list[int]] = {}

        def verify(drafted: Any, masks: Any) -> Any:
            assert drafted.dtype == np.int64
            trees = drafted.reshape(-1, self.nodes)
            self.drafted += trees.tolist()
            logits = torch.full((len(self.running), self.nodes, VOCAB), -9.0)
            for place, req in enumerate(self.running):
                own, nodes = masks.reshape(-1, self.nodes, self.nodes)[place], trees[place].tolist()
                assert nodes[0] == texts[place][-1], "the root is the newest token"
                paths = [[nodes[j] for j in np.flatnonzero(row)] for row in own]
                says = [self.model([*texts[place][:-1], *path]) for path in paths]
                for node, token in enumerate(says):
                    logits[place, node, token] = 4.0
                found[req.rid] = _accepted(nodes, own, says)
            return _result(logits.flatten(0, 1))

        self.forward(self._batch([len(text) for text in texts], verify))
        self.process()
        self.late |= found
        self.accepted |= found

    def _batch(self, lengths: Sequence[int], verify: Callable[[Any, Any], Any]) -> Any:
        """The decode of texts of these lengths, as SGLang tells of it."""
        tokens = np.zeros((len(self.running), self.nodes), dtype=np.int64)
        counts = []
        for row, req in enumerate(self.running):
            run = self.accepted[req.rid]
            tokens[row, : len(run)] = run
            counts.append(len(run))
        spec = SimpleNamespace(
            accept_tokens=torch.from_numpy(tokens.ravel()), accept_lens=torch.tensor(counts)
        )
        return SimpleNamespace(
            verify=verify,
            reqs=self.running,
            spec_info=spec,
            seq_lens_cpu=torch.tensor(lengths) - 1,
            grammar_needs_sync=lambda: False,
        )


def _result(logits: torch.Tensor) -> Any:
    return SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=logits))


def _accepted(nodes: list[int], mask: Any, says: list[int]) -> list[int]:
    """The tokens that a step commits: those of the accepted path, and the one after it."""
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

"""Caches prompts: several at once, in chunks.

A chunk covers the same positions of every unfinished prompt. The lm_head computes only the rows
that are needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs, TargetOutput
from draftwood.runner.forward import ForwardPass
from draftwood.runner.to_host import HostRows, to_host, unread

CHUNK = 512
"""Tokens of a prompt in a forward on a CPU."""
_LARGE_CHUNK = 1 << 11
"""Tokens of a prompt in a forward on another device: its launches take as long for a few tokens."""
_KEPT_CHUNK = 1 << 10
"""The same of a model with recurrent layers: their states are kept at the ends of forwards."""
_BEGINNING = 1 << 12
"""Tokens of a prompt in its first forward, if all of it lies within the attention's window: no mask
is needed then, which takes time and memory."""
_TOKENS = 1 << 13
"""Tokens of a forward over prompts at most: their activations take memory."""
_LOGITS = 1 << 27
"""Logits of such a forward at most: 256 MB in bfloat16."""


@dataclass(eq=False)
class PendingPrompt:
    """A prompt to cache, and the outputs collected for it.

    Attributes:
        slot: where it is cached, behind what the slot holds.
        tokens: int64 ``[n]``.
        start: cached tokens before it.
        hidden: ``[n, H]`` for a model that takes a vector beside each token, else None.
        min_extent: see :meth:`draftwood.runner.forward.ForwardPass.run`.
        parts: rows on the host, chunk by chunk.
        features: tapped hidden states, chunk by chunk.
        last: logits ``[1, V]`` of the last position.
    """

    slot: int
    tokens: NDArray[np.int64]
    start: int
    hidden: torch.Tensor | None = None
    min_extent: int = 0
    parts: list[HostRows] = field(default_factory=list)
    features: list[torch.Tensor] = field(default_factory=list)
    last: torch.Tensor | None = None

    def output(self) -> TargetOutput:
        """The finished prompt's output."""
        assert self.last is not None
        argmax, tokens, probs = unread()
        if self.parts:
            argmax, tokens, probs = (np.concatenate(x) for x in zip(*self.parts, strict=True))
        features = torch.cat(self.features) if self.features else None
        return TargetOutput(self.last, argmax, tokens, probs, features)


@dataclass(frozen=True, eq=False)
class ChunkedPrefill:
    """Caches prompts in chunks.

    Attributes:
        forward_pass: the model with its cache.
        needs: what drafters want computed.
        chunk: most tokens per sequence and forward; None: 512, on another device than the CPU
            2,048 (1,024 with recurrent layers), or more at a prompt's beginning if
            :attr:`draftwood.runner.forward.ForwardPass.large_beginning`.
        vocab_size: width of the logits.
        plain_topk: see :func:`draftwood.runner.to_host.to_host`.
    """

    forward_pass: ForwardPass
    needs: Needs
    chunk: int | None
    vocab_size: int
    plain_topk: bool = False

    def run(self, prompts: Sequence[PendingPrompt]) -> list[TargetOutput]:
        """Cache the prompts; see :meth:`draftwood.protocols.Target.prefill`.

        Raises:
            DraftwoodError: a prompt is empty, or two name one slot.
        """
        if not all(len(prompt.tokens) for prompt in prompts):
            raise DraftwoodError("a prompt is empty; give at least one token, e.g. the BOS token")
        if len({prompt.slot for prompt in prompts}) < len(prompts):
            raise DraftwoodError("a slot is named twice in one prefill; each prompt needs its own")
        cache = self.forward_pass.cache
        done = 0
        live = sorted(prompts, key=lambda prompt: cache.row(prompt.slot))
        while live:
            q = min(self._most(live, done), max(len(prompt.tokens) for prompt in live) - done)
            self._run_chunk(live, done, q)
            done += q
            live = [prompt for prompt in live if len(prompt.tokens) > done]
        for prompt in prompts:
            cache.resize(prompt.slot, prompt.start + len(prompt.tokens))
        return [prompt.output() for prompt in prompts]

    def _most(self, live: Sequence[PendingPrompt], done: int) -> int:
        """Most tokens of each prompt in a forward, behind the first ``done``."""
        tokens = _LOGITS // self.vocab_size if self.needs.prompt_rows else _TOKENS
        most = max(1, tokens // len(live))
        if self.chunk is not None:
            return min(self.chunk, most)
        # With all logits, which take memory too, larger forwards are no faster on a CPU.
        usual = self.forward_pass.fused_chunk and len(live) == 1
        if self.forward_pass.large_beginning and not usual and not self.needs.prompt_rows:
            starts = [prompt.start + done for prompt in live]
            counts = [min(_BEGINNING, most, len(prompt.tokens) - done) for prompt in live]
            if self.forward_pass.masks.causal(starts, counts):
                return min(_BEGINNING, most)
        return min(self._usual, most)

    @property
    def _usual(self) -> int:
        """Tokens of a prompt in a forward behind its beginning."""
        if self.forward_pass.device.type == "cpu":
            return CHUNK
        return _LARGE_CHUNK if self.forward_pass.recurrent is None else _KEPT_CHUNK

    def _run_chunk(self, live: Sequence[PendingPrompt], done: int, q: int) -> None:
        """Cache the ``q`` positions after the first ``done`` of every prompt."""
        needs, cache = self.needs, self.forward_pass.cache
        starts = [prompt.start + done for prompt in live]
        counts = [min(q, len(prompt.tokens) - done) for prompt in live]
        ends = list(accumulate(counts))
        ids, positions = self.forward_pass.lanes(ends[-1])
        for prompt, start, n, end in zip(live, starts, counts, ends, strict=True):
            ids[end - n : end] = prompt.tokens[done : done + n]
            positions[end - n : end] = range(start, start + n)
        finished = [len(prompt.tokens) <= done + q for prompt in live]
        last = [end - 1 for end, over in zip(ends, finished, strict=True) if over]
        last = last or [ends[-1] - 1]  # models compute at least one row
        keep = () if needs.prompt_rows else last
        if self.forward_pass.recurrent is not None:
            self.forward_pass.recurrent.begin_chunk([prompt.slot for prompt in live], counts)
        hidden = [p.hidden[done : done + q] for p in live if p.hidden is not None]
        logits, features, _ = self.forward_pass.run(
            [cache.row(prompt.slot) for prompt in live],
            starts,
            counts,
            *self.forward_pass.masks.chunk(starts, counts),
            needs.taps,
            keep,
            torch.cat(hidden)[None] if hidden else None,
            [prompt.min_extent for prompt in live],
        )
        if self.forward_pass.recurrent is not None:
            for prompt, start, n in zip(live, starts, counts, strict=True):
                self.forward_pass.recurrent.cached(prompt.slot, start + n)
        # Of unfinished prompts nobody needs a row, and nothing waits for the device.
        rows: HostRows | None = None
        if needs.host and (needs.prompt_rows or any(finished)):
            rows = to_host(logits[None], needs.top_k, self.plain_topk)
        for prompt, n, end, over in zip(live, counts, ends, finished, strict=True):
            own = slice(end - n, end)
            if features is not None:
                prompt.features.append(features[own])
            if rows is not None and needs.prompt_rows:
                prompt.parts.append(_part(rows, own))
            if over:
                place = last.index(end - 1) if keep else end - 1
                row = slice(place, place + 1)
                # A copy, so that one row does not keep the whole chunk's logits alive.
                prompt.last = logits[row].clone()
                if rows is not None and keep:
                    prompt.parts.append(_part(rows, row))


def _part(rows: HostRows, own: slice) -> HostRows:
    """Some rows of a chunk, ``[1, n, ..]``."""
    argmax, tokens, probs = rows
    return argmax[0, own], tokens[0, own], probs[0, own]

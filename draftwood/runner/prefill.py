"""Caching prompts: right-padded, in chunks, several at once.

A chunk holds equally many positions of every prompt that is not finished; what pads the shorter
ones is written behind their tokens and overwritten later, so no hole and no left padding arises.
Only the rows asked for reach the lm_head. Knows nothing of trees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from draftwood.errors import DraftwoodError
from draftwood.protocols import Needs, TargetOutput
from draftwood.runner.attention import Visibility
from draftwood.runner.cache import KVCache
from draftwood.runner.forward import Passes, tapped
from draftwood.runner.harvest import Harvest, hand_over
from draftwood.runner.masks import TreeMasks


@dataclass
class _Prompt:
    """A prompt on its way into the cache, and what has been collected for it."""

    tokens: NDArray[np.int64]
    slot: int
    start: int
    place: int
    least: int = 0
    parts: list[Harvest] = field(default_factory=list)
    features: list[torch.Tensor] = field(default_factory=list)
    hidden: torch.Tensor | None = None
    last: torch.Tensor | None = None

    def rows(self) -> TargetOutput:
        assert self.last is not None
        argmax, tokens, probs = (np.concatenate(x) for x in zip(*self.parts, strict=True))
        features = torch.cat(self.features) if self.features else None
        return TargetOutput(self.last, argmax, tokens, probs, features)


def prefill(
    slab: KVCache,
    masks: TreeMasks,
    passes: Passes,
    slots: Sequence[int],
    prompts: Sequence[Sequence[int]],
    needs: Needs,
    chunk: int,
    hidden: Sequence[torch.Tensor] = (),
    plain_topk: bool = False,
    least: Sequence[int] = (),
) -> list[TargetOutput]:
    """See :meth:`draftwood.protocols.Target.prefill`; ``chunk`` is in tokens per sequence.

    ``hidden``: ``[n, H]`` for each prompt of n tokens, for a model that is given a vector beside
    each token. ``least``: see :meth:`draftwood.runner.forward.Passes.run`.
    """
    waiting = []
    for place, (slot, given) in enumerate(zip(slots, prompts, strict=True)):
        if not len(given):
            raise DraftwoodError("a prompt is empty; give at least one token, e.g. the BOS token")
        tokens = np.asarray(given, dtype=np.int64)
        prompt = _Prompt(tokens, slot, slab.length(slot), place)
        prompt.hidden = hidden[place] if hidden else None
        prompt.least = least[place] if least else 0
        waiting.append(prompt)
    if len(set(slots)) < len(slots):
        raise DraftwoodError("a slot is named twice in one prefill; each prompt needs its own")
    waiting.sort(key=lambda prompt: slab.row(prompt.slot))
    done = 0
    live = waiting
    while live:
        q = min(chunk, max(len(prompt.tokens) for prompt in live) - done)
        _chunk(slab, masks, passes, live, done, q, needs, plain_topk)
        done += q
        live = [prompt for prompt in live if len(prompt.tokens) > done]
    for prompt in waiting:
        slab.resize(prompt.slot, prompt.start + len(prompt.tokens))
    return [prompt.rows() for prompt in sorted(waiting, key=lambda prompt: prompt.place)]


def _chunk(
    slab: KVCache,
    masks: TreeMasks,
    passes: Passes,
    live: Sequence[_Prompt],
    done: int,
    q: int,
    needs: Needs,
    plain_topk: bool,
) -> None:
    b = len(live)
    starts = [prompt.start + done for prompt in live]
    kv = max(starts) + q
    slab.reserve(0, kv)
    ids, positions = passes.lanes(b, q)
    counts = [min(q, len(prompt.tokens) - done) for prompt in live]
    for i, (prompt, n) in enumerate(zip(live, counts, strict=True)):
        ids[i, :n] = prompt.tokens[done : done + n]
        ids[i, n:] = 0
        positions[i, :n] = range(starts[i], starts[i] + n)
        # A padding token's position must exist, or a table of learnt positions is left.
        positions[i, n:] = starts[i] + n - 1
    if kv == q and masks.sees_all(kv):
        step, mask = Visibility.CAUSAL, masks.unmasked()
    else:
        step, mask = Visibility.CHUNK, masks.chunk(starts, q, kv)
    ends = [i for i, prompt in enumerate(live) if len(prompt.tokens) <= done + q]
    finals = sorted({counts[i] - 1 for i in ends}) or [q - 1]
    keep = None
    if not needs.prompt_rows:
        keep = torch.tensor(finals, device=slab.tensors[0].device)
    rows = [slab.row(prompt.slot) for prompt in live]
    given = [p.hidden[done : done + q] for p in live if p.hidden is not None]
    vectors = pad_sequence(given, batch_first=True) if given else None
    least = [prompt.least for prompt in live]
    output = passes.run(rows, starts, kv, step, mask, needs.taps, keep, vectors, least)
    logits = output.logits
    features = tapped(output, needs.taps)
    if needs.prompt_rows:
        argmax, tokens, probs = hand_over(logits, needs.top_k, plain_topk)
        for i, prompt in enumerate(live):
            n = counts[i]
            prompt.parts.append((argmax[i, :n], tokens[i, :n], probs[i, :n]))
    if features is not None:
        for i, prompt in enumerate(live):
            prompt.features.append(features[i, : counts[i]])
    columns = {final: column for column, final in enumerate(finals)} if keep is not None else None
    for i in ends:
        final = counts[i] - 1
        column = final if columns is None else columns[final]
        # A copy, so that one row does not keep the whole chunk's logits alive.
        row = live[i].last = logits[i, column : column + 1].clone()
        if not needs.prompt_rows:
            argmax, tokens, probs = hand_over(row[None], needs.top_k, plain_topk)
            live[i].parts.append((argmax[0], tokens[0], probs[0]))

"""Several MTP layers as one draft model, each with a cache of its own.

Layer k was trained to predict the token k + 2 places after a hidden state of the target. Here its
rows are numbered by their token: the row of token x_j takes the output of layer k - 1 at token
x_(j-1), layer 0 the target's last hidden state there, and predicts x_(j+1). So a node at depth d of
a drafted tree has rows in the layers from d on, and layer d predicts what follows it. A node deeper
than the last layer has a row in that layer alone, which takes the layer's own output at the parent.
Layers are not begun again from the first (as ``step mod D`` in other engines): that one has no rows
for the nodes in between, which a node would have to see.

Layer k has no row for the first k tokens, as in transformers' ``MtpModel``; after a prompt of no
more tokens than layers, it has one row of zeros instead.

Source: DeepSeek-AI, *DeepSeek-V3* (2024), section 2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch

from draftwood.protocols import DraftModel, Needs, TargetInfo, TargetOutput
from draftwood.tree import TokenTree, tree_of

_UNREAD: Final = Needs(host=False)


@dataclass(eq=False)
class _Text:
    """A slot.

    Attributes:
        slots: of each layer.
        skipped: first tokens of the present step without a row, for each layer.
        root: number of the last committed token among those of the present step.
        ended: outputs ``[1, H]`` of each layer at that token.
        last: the same of the last step; empty in the first one.
    """

    slots: list[int]
    skipped: list[int] = field(default_factory=list)
    root: int = 0
    ended: list[torch.Tensor] = field(default_factory=list)
    last: list[torch.Tensor] = field(default_factory=list)

    def begin(self, tokens: int) -> None:
        """Begin a step, or a prompt, with so many committed tokens."""
        self.root = tokens - 1
        # One row of a layer is there at least: its tree needs a root.
        behind = [0 if self.last else min(k, self.root) for k in range(len(self.slots))]
        self.skipped, self.ended = behind, []

    def above(self, layer: int, below: torch.Tensor) -> torch.Tensor:
        """What a layer takes for the committed tokens of the step, ``[n, H]``.

        Args:
            layer: 1 or more.
            below: output ``[m, H]`` of the layer before, for these tokens.
        """
        count = self.root + 1 - self.skipped[layer]
        known = [self.last[layer - 1]] if self.last else []
        found = torch.cat([*known, below[:-1]])[-count:]
        # Too short a prompt.
        return found if len(found) == count else below.new_zeros(count, below.shape[1])


class MtpStack:
    """A :class:`draftwood.protocols.DraftModel` of several MTP layers.

    Its ``hidden`` are the target's last hidden states ``[m, H]`` for committed tokens, and its own
    ``features`` at the parents for drafted nodes. Those are ``[n, layers * H]``, zero in layers
    without a row.

    Args:
        models: of each layer, two or more.
    """

    def __init__(self, models: Sequence[DraftModel]) -> None:
        self._models = models
        self._texts: dict[int, _Text] = {}

    @property
    def info(self) -> TargetInfo:
        """The first layer's, with the cached bytes of all."""
        each = [model.info for model in self._models]
        return replace(each[0], token_bytes=sum(info.token_bytes for info in each))

    def open(self, capacity: int) -> int:
        """See :meth:`draftwood.protocols.DraftModel.open`."""
        slots = [model.open(capacity) for model in self._models]
        self._texts[slots[0]] = _Text(slots)
        return slots[0]

    def release(self, slot: int) -> None:
        """See :meth:`draftwood.protocols.DraftModel.release`."""
        text = self._texts.pop(slot)
        for model, own in zip(self._models, text.slots, strict=True):
            model.release(own)

    def allocate(self, tokens: int) -> None:
        """See :meth:`draftwood.protocols.DraftModel.allocate`."""
        for model in self._models:
            model.allocate(tokens)

    def trim(self) -> None:
        """See :meth:`draftwood.protocols.DraftModel.trim`."""
        for model in self._models:
            model.trim()

    def length(self, slot: int) -> int:
        """Number of tokens cached in the first layer, which has most."""
        return self._models[0].length(slot)

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
    ) -> list[TargetOutput]:
        """See :meth:`draftwood.protocols.DraftModel.prefill`; returns the first layer's output."""
        texts = [self._texts[slot] for slot in slots]
        for text, prompt in zip(texts, prompts, strict=True):
            text.begin(len(prompt))
        given, first = list(hidden), list[TargetOutput]()
        for k, model in enumerate(self._models):
            rows = model.prefill(
                [text.slots[k] for text in texts],
                [prompt[text.skipped[k] :] for text, prompt in zip(texts, prompts, strict=True)],
                _UNREAD if k else needs,
                given,
            )
            outputs = [_vectors(each) for each in rows]
            for text, output in zip(texts, outputs, strict=True):
                text.ended.append(output[-1:].clone())
            if k + 1 < len(self._models):
                given = [t.above(k + 1, each) for t, each in zip(texts, outputs, strict=True)]
            first = first or rows
        for text in texts:
            text.last = text.ended
        return first

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        unread: Sequence[int] = (),
    ) -> list[TargetOutput]:
        """See :meth:`draftwood.protocols.DraftModel.forward`.

        Either no node of a tree is done and all are committed tokens, a chain, or those are done
        and the others have parents that are.
        """
        done = done or [0] * len(slots)
        passes = [
            _Pass(self._texts[slot], tree, first, given)
            for slot, tree, first, given in zip(slots, trees, done, hidden, strict=True)
        ]
        for k, model in enumerate(self._models):
            active = [each for each in passes if each.enters(k)]
            if active:
                read = any(each.reads(k) for each in active)
                rows = model.forward(
                    [each.text.slots[k] for each in active],
                    [each.tree for each in active],
                    needs if read else _UNREAD,
                    [each.done for each in active],
                    [each.given for each in active],
                )
                for each, found in zip(active, rows, strict=True):
                    each.take(k, found)
        unread = unread or [0] * len(slots)
        return [each.output(needs, n) for each, n in zip(passes, unread, strict=True)]

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep the committed tokens of the step: ``paths`` name them all, but the first."""
        texts = [self._texts[slot] for slot in slots]
        for k, model in enumerate(self._models):
            kept = [
                range(1, len(path) + 1 - text.skipped[k])
                for text, path in zip(texts, paths, strict=True)
            ]
            model.commit([text.slots[k] for text in texts], kept)
        for text in texts:
            text.last = text.ended


class _Pass:
    """The new nodes of one tree on their way through the layers.

    Args:
        text: their slot.
        whole: the tree.
        first: the first new node.
        hidden: see :class:`MtpStack`.

    Attributes:
        tree: the layer's part of the tree.
        done: nodes of it that the layer has scored before.
        given: what the layer takes for the others.
    """

    tree: TokenTree
    done: int
    given: torch.Tensor

    def __init__(self, text: _Text, whole: TokenTree, first: int, hidden: torch.Tensor) -> None:
        self.text = text
        self._whole = whole
        self._first = first
        self._hidden = hidden
        if not first:
            text.begin(len(whole))
        self._deepest = len(text.slots) - 1
        self._depths = (whole.depths - text.root).clip(min=0).tolist()
        self._new: list[int] = []
        self._found: dict[int, tuple[TargetOutput, list[int]]] = {}

    def enters(self, layer: int) -> bool:
        """Whether new nodes have rows in a layer, which :meth:`take` expects next."""
        skipped, last = self.text.skipped[layer], layer == self._deepest
        depths = enumerate(self._depths)
        nodes = [node for node, d in depths if node >= skipped and (last or d <= layer)]
        self._new = [node for node in nodes if node >= self._first]
        if not self._new:
            return False
        index = {node: place for place, node in enumerate(nodes)}
        tokens, parents = self._whole.tokens, self._whole.parents
        self.tree = tree_of(
            [int(tokens[node]) for node in nodes],
            [index.get(int(parents[node]), -1) for node in nodes],
        )
        self.done = len(nodes) - len(self._new)
        self.given = self._taken(layer)
        return True

    def reads(self, layer: int) -> bool:
        """Whether a layer predicts what follows some new node."""
        return any(self._reader(node) == layer for node in self._new)

    def take(self, layer: int, found: TargetOutput) -> None:
        """Keep the layer's output for its new nodes."""
        self._found[layer] = found, self._new
        if not self._first:
            # A copy, so that the other rows do not stay alive.
            self.text.ended.append(_vectors(found)[-1:].clone())

    def output(self, needs: Needs, unread: int) -> TargetOutput:
        """The output for the new nodes: of each from the layer that predicts what follows it.

        There is none for the first ``unread``.
        """
        begin = self._first + unread
        nodes = range(begin, len(self._whole))
        layers = len(self.text.slots)
        width = self._hidden.shape[1] // (layers if self._first else 1)
        features = self._hidden.new_zeros(len(nodes), layers, width)
        for layer, (found, new) in self._found.items():
            read = [row for row, node in enumerate(new) if node >= begin]
            features[[new[row] - begin for row in read], layer] = _vectors(found)[read]
        rows = []
        for node in nodes:
            found, new = self._found[self._reader(node)]
            rows.append((found, new.index(node)))
        logits = torch.stack([found.logits[row] for found, row in rows])
        found = rows[0][0]
        argmax, tokens, probs = found.argmax, found.top_tokens, found.top_probs
        if needs.host:
            argmax = np.array([found.argmax[row] for found, row in rows])
            tokens = np.stack([found.top_tokens[row] for found, row in rows])
            probs = np.stack([found.top_probs[row] for found, row in rows])
        return TargetOutput(logits, argmax, tokens, probs, features.flatten(1))

    def _reader(self, node: int) -> int:
        """The layer that predicts what follows a node."""
        depth: int = self._depths[node]
        return min(depth, self._deepest)

    def _taken(self, layer: int) -> torch.Tensor:
        """What a layer takes for its new nodes, ``[n, H]``."""
        if not self._first:
            if not layer:
                return self._hidden
            below, _ = self._found[layer - 1]
            return self.text.above(layer, _vectors(below))
        outputs = self._hidden.view(len(self._hidden), len(self.text.slots), -1)
        # At the parent: of the layer before or, below the deepest layer, of this one.
        layers = [layer - (self._depths[node] <= layer) for node in self._new]
        return outputs[[node - self._first for node in self._new], layers]


def _vectors(rows: TargetOutput) -> torch.Tensor:
    """The vectors ``[n, H]`` that a layer outputs."""
    assert rows.features is not None, "a head returns its own vectors"
    return rows.features

"""The Gemma 4 assistant: a few layers that attend to the target's own keys and values.

The assistant has no keys and values of its own. After a token it reads the token's embedding and a
vector: the target's last hidden state at the position before the root or, below the root, its own
output at the parent. So a node's candidates depend on its path through that vector alone, and all
new nodes of a depth, of all requests, are one batch without a mask of a tree.

Source: ``Gemma4AssistantForCausalLM`` and ``SinglePositionMultiTokenCandidateGenerator`` of
transformers, which drafts a chain with it. There, one rejected token may stay visible after a step;
here the committed tokens are visible and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from draftwood.drafters._ahead import AheadDrafter
from draftwood.drafters._features import prompt_features, step_features
from draftwood.protocols import (
    DrafterSpec,
    Expand,
    Host,
    Needs,
    Outcome,
    Prefill,
    Target,
    setting,
)
from draftwood.tree import Draw, TreeBuilder

if TYPE_CHECKING:
    import torch

    from draftwood.drafters._rollout.topk import Place
    from draftwood.drafters.gemma4.network import Assistant

_KINDS = ("gemma4_assistant", "gemma4_unified_assistant")


@dataclass(frozen=True)
class Gemma4Assistant(DrafterSpec):
    """Settings of a Gemma 4 assistant."""

    model: str | Any = setting(
        "", "Gemma 4 assistant made for this target: a directory or a hub id", flag="head"
    )

    summary: ClassVar = "the likeliest tokens of layers on the target's keys and values, or samples"
    draws: ClassVar = frozenset(Draw)

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Whether it is the configuration of a Gemma 4 assistant."""
        return config.get("model_type") in _KINDS

    def build(self, host: Host) -> AssistantDrafter:
        """Load the assistant.

        Raises:
            DraftwoodError: it cannot be loaded, or was made for another target.
        """
        from draftwood.drafters.gemma4.checkpoint import load_assistant

        assistant = host.loaded(load_assistant, self.model, "target")
        return AssistantDrafter(assistant, host.target)


@dataclass
class _Text:
    """A request's committed text, and the nodes that were scored in this step.

    Attributes:
        state: ``[H]``, the target's last hidden state at the position before the root.
        tree: the policy's.
        places: the output at each node; its ``features`` are the vectors of the node's children.
    """

    state: torch.Tensor
    tree: TreeBuilder | None = None
    places: dict[int, Place] = field(default_factory=dict)

    def missing(self, query: Expand) -> list[int]:
        """The nodes of a query that were not scored, and those above them, which come first."""
        if self.tree is not query.tree:
            self.tree = query.tree
            self.places.clear()
        found: set[int] = set()
        for node in query.nodes:
            while node >= 0 and node not in self.places and node not in found:
                found.add(node)
                node = query.tree.parents[node]
        return sorted(found)

    def vector(self, node: int) -> torch.Tensor:
        """The vector ``[H]`` that the assistant reads at a node."""
        assert self.tree is not None
        parent = self.tree.parents[node]
        if parent < 0:
            return self.state
        rows, row = self.places[parent]
        assert rows.features is not None
        return rows.features[row]


class AssistantDrafter(AheadDrafter):
    """Proposes the assistant's likeliest tokens, or samples.

    The slots of its requests are the target's: it reads their keys and values.

    Args:
        assistant: on the target's device.
        target: holds the keys and values.
    """

    def __init__(self, assistant: Assistant, target: Target) -> None:
        import torch

        super().__init__(torch.arange(assistant.outputs, device="cpu"), target.info)
        self._assistant = assistant
        self._target = target
        self._texts: dict[int, _Text] = {}

    @property
    def needs(self) -> Needs:
        """The target's last hidden state."""
        return Needs(taps=(self._target.info.layers,))

    def begin(self, slot: int, prefill: Prefill) -> None:
        """A request starts."""
        self.start(slot)
        # A copy, so that the other rows do not stay alive.
        self._texts[slot] = _Text(prompt_features(prefill)[-1].clone())

    def observe(self, slot: int, outcome: Outcome) -> None:
        """A step was committed."""
        self.step(slot)
        self._texts[slot] = _Text(step_features(outcome)[-1].clone())

    def release(self, slot: int) -> None:
        """The request has ended."""
        super().release(slot)
        self._texts.pop(slot, None)

    def prepare(self, slots: Sequence[int]) -> None:
        """Nothing: nodes share nothing but what the target has computed."""

    def forget(self, slot: int) -> None:
        """Nothing: a step's nodes are dropped with the text before it."""

    def ahead(self, slot: int) -> int:  # noqa: ARG002
        """No bound."""
        return self._target.info.context_limit

    def places(self, asked: Sequence[tuple[int, Expand]]) -> list[list[Place]]:
        """The output at each node; new nodes are scored, those of a depth together."""
        new: dict[int, dict[int, list[int]]] = {}
        for slot, query in asked:
            for node in self._texts[slot].missing(query):
                new.setdefault(query.tree.depths[node], {}).setdefault(slot, []).append(node)
        for depth in sorted(new):
            self._score(new[depth])
        return [[self._texts[slot].places[node] for node in query.nodes] for slot, query in asked]

    def _score(self, nodes: Mapping[int, Sequence[int]]) -> None:
        """Score new nodes, given by their slots, whose parents were scored."""
        import torch

        from draftwood.copies import uploaded

        self._forwards += 1
        most = max(map(len, nodes.values()))
        tokens: list[list[int]] = []
        vectors: list[torch.Tensor] = []
        read: list[int] = []
        for i, (slot, own) in enumerate(nodes.items()):
            text = self._texts[slot]
            assert text.tree is not None
            padded = [*own, *[own[0]] * (most - len(own))]
            tokens.append([text.tree.tokens[node] for node in padded])
            vectors += [text.vector(node) for node in padded]
            read += range(i * most, i * most + len(own))
        with torch.inference_mode():
            given = torch.stack(vectors).view(len(nodes), most, -1)
            sent, kept = uploaded([np.array(tokens), np.array(read)], given.device)
            logits, states = self._assistant(sent, given, self._target, [*nodes])
            if len(read) < len(vectors):
                logits, states = logits[kept], states[kept]
        rows = replace(self.ranked(logits), features=states)
        places = enumerate((slot, node) for slot, own in nodes.items() for node in own)
        for row, (slot, node) in places:
            self._texts[slot].places[node] = rows, row


PART = Gemma4Assistant

"""A target and drafters with their models, which add missing rows to a recording.

Each query goes to the model; rows that the recording lacks are added to it, and the answer is read
from the recording. So this run and every later replay see the same rows and grow the same trees.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import ReplayDrafter
from draftwood.lab.replay.recording import RecordedPrompt, Recording, Text, draft_name
from draftwood.lab.replay.rows import NO_TOKEN, RankedRows
from draftwood.lab.replay.target import ReplayTarget
from draftwood.protocols import (
    Candidates,
    Continuation,
    Drafter,
    DrafterSpec,
    Expand,
    Host,
    Needs,
    Outcome,
    Prefill,
    Target,
    TargetOutput,
)
from draftwood.tree import TokenTree

LEAST_WIDTH = 32
"""Fewest children requested of a draft model, so that a larger budget need not ask it again."""


class RecordingTarget(ReplayTarget):
    """A target with its model, whose output is recorded.

    Args:
        target: the recorded model, attached.
        texts: turns, by their context.
        width: tokens stored of every row.
        rejected: see :class:`ReplayTarget`.
    """

    def __init__(
        self,
        target: Target,
        texts: Mapping[tuple[int, ...], Text],
        width: int,
        *,
        rejected: bool,
    ) -> None:
        super().__init__(target.info, texts, rejected=rejected)
        self._target = target
        self._width = width
        self._model_slots: dict[int, int] = {}

    def open(self, capacity: int) -> int:
        """Reserve a slot, and one of the model."""
        slot = super().open(capacity)
        self._model_slots[slot] = self._target.open(capacity)
        return slot

    def release(self, slot: int) -> None:
        """Free a slot, and the model's."""
        super().release(slot)
        self._target.release(self._model_slots.pop(slot))

    def trim(self) -> None:
        """Give back the memory of the model's cache, if no slot is open."""
        self._target.trim()

    def keys_values(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The model's keys and values."""
        return self._target.keys_values(self._of_model(slots), layer)

    def embedding(self) -> torch.nn.Module:
        """The model's input embedding."""
        return self._target.embedding()

    def lm_head(self) -> torch.nn.Module | None:
        """The model's output head."""
        return self._target.lm_head()

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Prefill the model; rows come from the recording, features from the model."""
        found = super().prefill(slots, prompts, needs)
        live = self._target.prefill(self._of_model(slots), prompts, Needs(taps=needs.taps))
        return _with_features(found, live)

    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """Score the trees; record their rows at full width if a drafter reads rows."""
        width = self._width if needs.top_k else 0
        live = self._target.submit(
            self._of_model(slots), trees, Needs(width, taps=needs.taps)
        ).rows()
        for slot, tree, found in zip(slots, trees, live, strict=True):
            if width:
                text, root = self._slots[slot].text, self._slots[slot].root
                nodes = text.paths.insert(root, tree.tokens.tolist(), tree.parents.tolist())
                text.rows.put(nodes, width, found.top_tokens, found.top_probs)
        return _with_features(super().forward(slots, trees, needs), live)

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Commit the paths, in the model too."""
        self._target.commit(self._of_model(slots), paths)
        super().commit(slots, paths)

    def _of_model(self, slots: Sequence[int]) -> list[int]:
        return [self._model_slots[slot] for slot in slots]


class RecordingDrafter(ReplayDrafter):
    """A drafter with its model, whose answers are recorded.

    Args:
        name: the drafter's name in the recording.
        prompt: the prompt to decode.
        recording: the recording of the prompt.
        spec: settings of the drafter with its model.
    """

    def __init__(
        self, name: str, prompt: RecordedPrompt, recording: Recording, spec: DrafterSpec
    ) -> None:
        super().__init__(name, prompt, recording)
        self._spec = spec

    def build(self, host: Host) -> Drafter:
        """This drafter, with its model."""
        self._drafter = self._spec.build(host)
        self._before = self._drafter.forwards
        # Hidden states are the target's at the root and the head's own estimates below it.
        self._rooted[self._name] = bool(self.needs.taps)
        return self

    @property
    def needs(self) -> Needs:
        """Needs of the drafter with its model."""
        return self._drafter.needs

    @property
    def forwards(self) -> int:
        """Forwards of the model."""
        return self._drafter.forwards

    def backlog(self, slot: int) -> int:
        """Number of tokens that the model has not cached."""
        return self._drafter.backlog(slot)

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Start a request, in the drafter too."""
        self._drafter.begin(slot, prefill)
        super().begin(slot, prefill)

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Pass a step's outcome to the drafter too."""
        self._drafter.observe(slot, outcome)
        super().observe(slot, outcome)

    def release(self, slot: int) -> None:
        """Forget a request, in the drafter too."""
        self._drafter.release(slot)
        super().release(slot)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """None.

        Raises:
            DraftwoodError: the drafter copies text as well, which recordings do not store.
        """
        found = self._drafter.continuations(slots)
        if any(found):
            raise DraftwoodError(
                f"drafter {self._name} has a model and copies text: its copies are not recorded, "
                "run this method live"
            )
        return found

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Ask the model for at least ``LEAST_WIDTH`` children, record them, and read the recording.

        Raises:
            DraftwoodError: the model makes forwards that a replay would not count.
        """
        wide = [replace(query, k=_width(query), exclude=()) for query in queries]
        answers = self._drafter.expand(slots, wide)
        for slot, query, answer in zip(slots, wide, answers, strict=True):
            self._learn(slot, query, answer)
        found = super().expand(slots, queries)
        made = self._drafter.forwards - self._before
        if made != self.log.forwards:
            raise DraftwoodError(
                f"drafter {self._name} made {made} forwards where a replay counts "
                f"{self.log.forwards}: run this method live"
            )
        return found

    def _learn(self, slot: int, query: Expand, answer: Candidates) -> None:
        """Record the model's answer to a query without excluded tokens.

        An answer without any token means that the deepest nodes are beyond the model's context. It
        is recorded for these nodes only, and :meth:`expand` then returns no token either.
        """
        state = self._slots[slot]
        nodes = state.text.paths.insert(state.root, query.tree.tokens, query.tree.parents)
        state.tree = None
        name = draft_name(self._name, query.temperature)
        table = state.text.drafts.setdefault(name, RankedRows(query.k))
        rows = list(range(len(query.nodes)))
        if (answer.tokens == NO_TOKEN).all():
            depths = [query.tree.depths[node] for node in query.nodes]
            rows = [i for i in rows if depths[i] == max(depths)]
        keys = self._keys(state, [nodes[query.nodes[i]] for i in rows])
        table.put(keys, query.k, answer.tokens[rows], answer.logq[rows])


def _width(query: Expand) -> int:
    return max(LEAST_WIDTH, query.k + max(map(len, query.exclude), default=0))


def _with_features(
    rows: Sequence[TargetOutput], live: Sequence[TargetOutput]
) -> list[TargetOutput]:
    return [replace(a, features=b.features) for a, b in zip(rows, live, strict=True)]

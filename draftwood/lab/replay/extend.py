"""A target and drafters with their models, which add missing rows to a recording.

The recording answers whatever it has rows for. Only what it lacks goes to the model, whose answer
is added and then read from the recording. So this run and every later replay see the same rows and
grow the same trees. The model's cache lags behind the replay: what was committed since the model
was last asked is read when it is asked again.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, reduce
from operator import or_

import numpy as np
import torch

from draftwood.engine.features import FeatureShare
from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import ReplayDrafter
from draftwood.lab.replay.recording import (
    MissingRowError,
    Recording,
    Texts,
    draft_name,
)
from draftwood.lab.replay.rows import NO_TOKEN, RankedRows
from draftwood.lab.replay.target import ReplayTarget
from draftwood.protocols import (
    Candidates,
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
from draftwood.tree import TokenTree, tree_of

LEAST_WIDTH = 32
"""Fewest children requested of a draft model, so that a larger budget need not ask it again."""

_CHUNK = 64
"""Most committed tokens that the model reads in one forward."""


class RecordingTarget(ReplayTarget):
    """A target with its model, which is asked for missing rows.

    Args:
        target: the recorded model, attached.
        texts: turns, by their context.
        width: tokens stored of every row.
        rejected: see :class:`ReplayTarget`.

    Attributes:
        asked: whether the model was needed.
    """

    def __init__(
        self,
        target: Target,
        texts: Texts,
        width: int,
        *,
        rejected: bool,
    ) -> None:
        # What is read of a recording is there at once, wherever the model is.
        info = replace(target.info, device=torch.device("cpu"))
        super().__init__(info, texts, rejected=rejected)
        self.asked = False
        self._target = target
        self._width = width
        self._followers: list[RecordingDrafter] = []
        self._capacities: dict[int, int] = {}
        self._model_slots: dict[int, int] = {}  # of the requests that the model was asked about
        self._newest: dict[int, tuple[TokenTree, TargetOutput]] = {}  # trees that it has scored

    def follow(self, drafter: "RecordingDrafter") -> None:
        """Have a drafter's model learn what the model computes, in the model's slots."""
        self._followers.append(drafter)

    def reach(self, slot: int) -> int:
        """Have the model read all tokens before the root; the model's slot."""
        state, needs = self._slots[slot], self._needs
        main = state.text.paths.main
        if slot not in self._model_slots:
            self.asked = True
            model_slot = self._model_slots[slot] = self._target.open(self._capacities[slot])
            prompt = state.text.prompt
            [rows] = self._target.prefill([model_slot], [prompt], needs)
            prefill = Prefill(np.array(prompt, dtype=np.int64), main[len(prompt)], rows)
            for drafter, share in self._shares:
                drafter.begin(model_slot, share.of(prefill))
        model_slot = self._model_slots[slot]
        while (length := self._target.length(model_slot)) < state.root:
            tokens = main[length : min(state.root, length + _CHUNK)]
            chain = tree_of(tokens, range(-1, len(tokens) - 1))
            [rows] = self._target.submit([model_slot], [chain], needs).rows()
            self._keep(model_slot, chain, rows, range(1, len(tokens)), main[length + len(tokens)])
        return model_slot

    def open(self, capacity: int) -> int:
        """Reserve a slot; one of the model is opened when it is asked."""
        slot = super().open(capacity)
        self._capacities[slot] = capacity
        return slot

    def release(self, slot: int) -> None:
        """Free a slot, and the model's."""
        super().release(slot)
        self._newest.pop(slot, None)
        if (model_slot := self._model_slots.pop(slot, None)) is not None:
            with ExitStack() as releases:
                releases.callback(self._target.release, model_slot)
                for drafter, _ in self._shares:
                    releases.callback(drafter.release, model_slot)

    def trim(self) -> None:
        """Give back the memory of the model's cache, if no slot is open."""
        self._target.trim()

    def embedding(self) -> torch.nn.Module:
        """The model's input embedding."""
        return self._target.embedding()

    def lm_head(self) -> torch.nn.Module | None:
        """The model's output head."""
        return self._target.lm_head()

    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """Recorded rows of the trees' nodes; the model adds those that are missing."""
        found = []
        for slot, tree in zip(slots, trees, strict=True):
            try:
                found += super().forward([slot], [tree], needs)
            except MissingRowError:
                self._learn(slot, tree)
                found += super().forward([slot], [tree], needs)
        return found

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Commit the paths, in the model too where it has scored these trees."""
        super().commit(slots, paths)
        for slot, path in zip(slots, paths, strict=True):
            if (newest := self._newest.pop(slot, None)) is not None:
                state = self._slots[slot]
                bonus = state.text.paths.main[state.root]
                self._keep(self._model_slots[slot], *newest, path, bonus)

    @cached_property
    def _needs(self) -> Needs:
        """The outputs that drafters with models learn from."""
        return reduce(or_, (each.drafter.needs for each in self._followers), Needs())

    @cached_property
    def _shares(self) -> list[tuple[Drafter, FeatureShare]]:
        """These drafters, and what each reads of the features."""
        drafters = [each.drafter for each in self._followers]
        return [(each, FeatureShare(self._needs.taps, each.needs.taps)) for each in drafters]

    def _learn(self, slot: int, tree: TokenTree) -> None:
        """Record the rows of a tree at full width."""
        model_slot, state = self.reach(slot), self._slots[slot]
        needs = self._needs | Needs(self._width)
        [rows] = self._target.submit([model_slot], [tree], needs).rows()
        nodes = state.text.paths.insert(state.root, tree.tokens.tolist(), tree.parents.tolist())
        tokens, probs = rows.top_tokens[:, : self._width], rows.top_probs[:, : self._width]
        state.text.rows.put(nodes, self._width, tokens, probs)
        self._newest[slot] = tree, rows

    def _keep(
        self,
        model_slot: int,
        tree: TokenTree,
        rows: TargetOutput,
        path: Sequence[int],
        bonus: int,
    ) -> None:
        """Commit a path of the newest forward in the model and in the drafters with models."""
        self._target.commit([model_slot], [path])
        committed = (*tree.tokens[list(path)].tolist(), bonus)
        outcome = Outcome(tree, tuple(path), committed, rows)
        for drafter, share in self._shares:
            drafter.observe(model_slot, share.of(outcome))


class RecordingDrafter(ReplayDrafter):
    """A drafter with its model, which is asked for missing answers.

    Args:
        name: the drafter's name in the recording.
        texts: turns to decode, by their context.
        recording: the recording of the texts.
        spec: settings of the drafter with its model.
        target: reads the text for the drafter's model.
    """

    def __init__(
        self,
        name: str,
        texts: Texts,
        recording: Recording,
        spec: DrafterSpec,
        target: RecordingTarget,
    ) -> None:
        super().__init__(name, texts, recording)
        self._spec = spec
        self._target = target
        self._all = True  # whether the model has answered all queries of the step

    def build(self, host: Host) -> Drafter:
        """This drafter; its model is loaded when it is asked."""
        self._host = host
        self._target.follow(self)
        return self

    @cached_property
    def drafter(self) -> Drafter:
        """The drafter with its model.

        Raises:
            DraftwoodError: it cannot be loaded, or copies text as well, which recordings do not
                store.
        """
        drafter = self._spec.build(self._host)
        kind = type(drafter)
        if kind.continuations is not Drafter.continuations or kind.branches is not Drafter.branches:
            raise DraftwoodError(
                f"drafter {self._name} has a model and copies text: its copies are not recorded, "
                "run this method live"
            )
        return drafter

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Start a request."""
        super().begin(slot, prefill)
        self._all = True

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Move the root past the committed tokens."""
        super().observe(slot, outcome)
        self._all = True

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """Recorded answers; those that are missing are the model's, of ``LEAST_WIDTH`` or more.

        Raises:
            DraftwoodError: the model makes forwards that a replay would not count.
        """
        try:
            found = super().expand(slots, queries)
            self._all = False
        except MissingRowError:
            wide = [replace(query, k=_width(query), exclude=()) for query in queries]
            made, counted = self.drafter.forwards, self.log.forwards
            answers = self.drafter.expand([self._target.reach(slot) for slot in slots], wide)
            for slot, query, answer in zip(slots, wide, answers, strict=True):
                self._learn(slot, query, answer)
            found = super().expand(slots, queries)
            made, counted = self.drafter.forwards - made, self.log.forwards - counted
            if self._all and made != counted:
                # What was answered is not to be read by another replay.
                for slot, query in zip(slots, queries, strict=True):
                    del self._slots[slot].text.drafts[draft_name(self._name, query.temperature)]
                raise DraftwoodError(
                    f"drafter {self._name} made {made} forwards in a step where a replay counts "
                    f"{counted}: run this method live"
                ) from None
        return found

    def _learn(self, slot: int, query: Expand, answer: Candidates) -> None:
        """Record the model's answer to a query without excluded tokens.

        An answer without any token means that the deepest nodes are beyond the model's context. It
        is recorded for these nodes only, and :meth:`expand` then returns no token either.
        """
        state = self._slots[slot]
        nodes = state.text.paths.insert(state.root, query.tree.tokens, query.tree.parents)
        state.tree = None
        # Hidden states are the target's at the root and the head's own estimates below it.
        self._rooted[self._name] = bool(self.drafter.needs.taps)
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

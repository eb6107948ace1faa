"""A drafter that answers from a recording of its model.

Rows are found by a node's path from the beginning of the text. If the drafter is *rooted* (its rows
depend on the tree's root, as those of a head on hidden states do), the root is part of the key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draftwood.lab.replay.forward_log import Asked, ForwardLog
from draftwood.lab.replay.recording import (
    MissingRowError,
    Recording,
    Text,
    Texts,
    draft_name,
    rooted_key,
)
from draftwood.lab.replay.rows import NO_TOKEN, UNKNOWN, RankedRows
from draftwood.protocols import Candidates, Drafter, DrafterSpec, Expand, Host, Outcome, Prefill
from draftwood.tree import TreeBuilder


@dataclass
class DraftedText:
    """A request and its growing tree.

    It has the text, the position of the tree's root, the number of tokens that the model would have
    cached, and the trie's nodes for the tree.
    """

    text: Text
    root: int
    cached: int = 0
    tree: TreeBuilder | None = None
    nodes: list[int] = field(default_factory=list)


class ReplayDrafter(DrafterSpec, Drafter):
    """Settings and drafter in one: answers from a recording.

    Args:
        name: the drafter's name in the recording.
        texts: turns to decode, by their context.
        recording: the recording of the texts.

    Attributes:
        log: counts the forwards that the model would make.
    """

    def __init__(self, name: str, texts: Texts, recording: Recording) -> None:
        self.log = ForwardLog()
        self._name = name
        self._texts = texts
        self._rooted = recording.rooted
        self._slots: dict[int, DraftedText] = {}

    @property
    def model(self) -> str:
        """Name of the recorded drafter."""
        return self._name

    def build(self, host: Host) -> Drafter:  # noqa: ARG002
        """This drafter, without its model."""
        return self

    @property
    def forwards(self) -> int:
        """Forwards that the model would have made."""
        return self.log.forwards

    def backlog(self, slot: int) -> int:
        """Number of tokens that the model would not have cached."""
        return self._slots[slot].root - self._slots[slot].cached

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Start a request."""
        text = self._texts[tuple(prefill.prompt.tolist())]
        self._slots[slot] = DraftedText(text, len(prefill.prompt))
        self.log.next_step(slot)

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Move the root past the committed tokens."""
        state = self._slots[slot]
        state.root += len(outcome.committed)
        state.tree = None
        self.log.next_step(slot)

    def release(self, slot: int) -> None:
        """Forget a request."""
        self._slots.pop(slot, None)
        self.log.next_step(slot)

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        """The model's ``k`` likeliest children of each node.

        Raises:
            MissingRowError: the recording lacks a node, or has fewer children of it.
        """
        found, asked = list[Candidates](), list[Asked]()
        for slot, query in zip(slots, queries, strict=True):
            answer = self._candidates(self._slots[slot], query)
            if answer is not None:
                asked.append((slot, query.tree, query.nodes))
            found.append(Candidates.none(query) if answer is None else answer)
        score = self.log.score_by_level if self._rooted.get(self._name) else self.log.score
        score(asked)
        return found

    def _candidates(self, state: DraftedText, query: Expand) -> Candidates | None:
        """The recorded answer; None if the model made no forward, its context being full."""
        tree = query.tree
        if state.tree is not tree:
            state.tree, state.nodes = tree, [state.root]
        state.text.paths.extend(state.nodes, tree.tokens, tree.parents)
        missing = MissingRowError(
            f"the recording has no answer of the drafter {self._name} for a drafted path"
        )
        table = state.text.drafts.get(draft_name(self._name, query.temperature))
        if table is None:
            raise missing
        nodes = [state.nodes[node] for node in query.nodes]
        rows = [table.index.get(key, UNKNOWN) for key in self._keys(state, nodes)]
        known = [row for row in rows if row >= 0]
        wanted = query.k + max(map(len, query.exclude), default=0)
        tokens, logq = table.take(known, wanted)
        if known and (tokens[:, 0] == NO_TOKEN).any():
            return None
        if len(known) < len(rows) or _truncated(table, known, wanted):
            raise missing
        state.cached = state.root
        return first_allowed(Candidates(tokens, logq), query)

    def _keys(self, state: DraftedText, nodes: Sequence[int]) -> list[int]:
        if not self._rooted[self._name]:
            return list(nodes)
        return [rooted_key(state.root, node) if node >= 0 else UNKNOWN for node in nodes]


def first_allowed(given: Candidates, query: Expand) -> Candidates:
    """The first ``k`` tokens of each row that the query does not exclude."""
    if given.tokens.shape[1] == query.k and not any(query.exclude):
        return given
    found = Candidates.none(query)
    excludes = query.exclude or [frozenset[int]()] * len(query.nodes)
    for i, exclude in enumerate(excludes):
        row = given.tokens[i].tolist()
        kept = [j for j, t in enumerate(row) if t != NO_TOKEN and t not in exclude][: query.k]
        found.tokens[i, : len(kept)] = given.tokens[i, kept]
        found.logq[i, : len(kept)] = given.logq[i, kept]
    return found


def _truncated(table: RankedRows, rows: Sequence[int], wanted: int) -> bool:
    """Whether a row was requested with fewer tokens than wanted, and may have more."""
    short = [row for row in rows if table.asked[row] < wanted]
    return any(bool((table.tokens[row, : table.asked[row]] != NO_TOKEN).all()) for row in short)

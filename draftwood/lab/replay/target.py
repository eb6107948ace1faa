"""A target without a model: it answers from a recording, and takes the recorded tokens.

Every method of deterministic trees returns the very tokens of plain decoding, so what the target
"takes" after a position of the text is the recorded token, whether it was the likeliest one or
drawn. To the engine that is greedy decoding; the rows that drafters learn from are the recorded
ones, of rejected nodes too. Knows nothing of methods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.recording import MissingRowError, Text
from draftwood.lab.replay.rows import NOWHERE
from draftwood.protocols import Needs, TargetInfo, TargetOutput
from draftwood.tree import TokenTree

_ONE = torch.zeros((1, 1))


@dataclass
class _Slot:
    """A request: its text, and where the next tree's root is in it."""

    text: Text
    root: int


class ReplayTarget:
    """Implements :class:`draftwood.protocols.Target` over the turns of one prompt.

    Args:
        info: the model's facts.
        texts: by context.
        rejected: whether rows of nodes beside the text are read by anyone. If not, they are served
            as rows without tokens.
    """

    def __init__(
        self, info: TargetInfo, texts: Mapping[tuple[int, ...], Text], *, rejected: bool
    ) -> None:
        self._info = info
        self._texts = texts
        self._rejected = rejected
        self._slots: dict[int, _Slot | None] = {}

    @property
    def info(self) -> TargetInfo:
        """The model's facts."""
        return self._info

    def open(self, capacity: int) -> int:  # noqa: ARG002
        """A number for a request."""
        slot = next(i for i in range(len(self._slots) + 1) if i not in self._slots)
        self._slots[slot] = None
        return slot

    def release(self, slot: int) -> None:
        """Give the number back."""
        del self._slots[slot]

    def length(self, slot: int) -> int:
        """Number of tokens before the root."""
        return self._slot(slot).root

    def embedding(self) -> torch.nn.Module:
        """None: there are no weights.

        Raises:
            DraftwoodError: always.
        """
        raise DraftwoodError("a recording has no weights: give the model itself")

    def lm_head(self) -> torch.nn.Module | None:
        """None: there are no weights."""
        return None

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Rows of the contexts' positions.

        Raises:
            DraftwoodError: a context was not recorded, or a drafter reads more than was.
        """
        found = []
        for slot, prompt in zip(slots, prompts, strict=True):
            text = self._texts.get(tuple(prompt))
            if text is None:
                raise DraftwoodError(
                    f"a context of {len(prompt)} tokens was not recorded: record this prompt"
                )
            self._slots[slot] = _Slot(text, len(prompt))
            first = 0 if needs.prompt_rows else len(prompt) - 1
            found.append(self._rows(text, range(first, len(prompt)), needs, logits=1))
        return found

    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """Rows of the trees' nodes.

        Raises:
            MissingRowError: the recording has no row for a node, and it may be read.
            DraftwoodError: a drafter reads more than was recorded.
        """
        found = []
        for slot, tree in zip(slots, trees, strict=True):
            place = self._slot(slot)
            nodes = [place.root]
            place.text.paths.follow(nodes, tree.tokens.tolist(), tree.parents.tolist())
            found.append(self._rows(place.text, nodes, needs, logits=len(nodes)))
        return found

    def learn(
        self, slots: Sequence[int], trees: Sequence[TokenTree], rows: Sequence[TargetOutput]
    ) -> None:
        """Keep the rows of trees that a live target was asked about, each at full width."""
        for slot, tree, found in zip(slots, trees, rows, strict=True):
            place = self._slot(slot)
            nodes = place.text.paths.lay(place.root, tree.tokens.tolist(), tree.parents.tolist())
            kept = place.text.rows
            kept.put(nodes, kept.width, found.top_tokens, found.top_probs)

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Go on to the next root.

        Raises:
            DraftwoodError: a draft was right beyond what was recorded past an answer's end.
        """
        for slot, path in zip(slots, paths, strict=True):
            place = self._slot(slot)
            place.root += len(path) + 1
            if place.root >= len(place.text.paths.main):
                raise DraftwoodError(
                    f"a draft was right for {len(path)} tokens, beyond everything that was "
                    "recorded after an answer's end: give the method a smaller budget"
                )

    def _slot(self, slot: int) -> _Slot:
        found = self._slots[slot]
        assert found is not None, "a slot is prefilled before it is asked about"
        return found

    def _rows(self, text: Text, nodes: Sequence[int], needs: Needs, logits: int) -> TargetOutput:
        main = text.paths.main
        last = len(main) - 1
        # No token stands where none is known: whoever asked for p there would fail.
        nobody = self._info.vocab_size
        taken = [main[node + 1] if 0 <= node < last else nobody for node in nodes]
        k = min(needs.top_k, self._info.vocab_size)
        if k > text.rows.width:
            raise DraftwoodError(
                f"a drafter reads the {k} likeliest tokens of every row and the recording has "
                f"{text.rows.width}: record again with --top {k}"
            )
        places = text.rows.places
        known = [places.get(node, NOWHERE) for node in nodes] if k else []
        if NOWHERE in known and self._rejected:
            raise MissingRowError("the recording has no row of the target for a drafted path")
        tokens, probs = text.rows.take(known, k)
        if NOWHERE in known:
            unknown = np.array(known) == NOWHERE
            tokens[unknown], probs[unknown] = -1, 0.0
        argmax = np.array(taken, dtype=np.int64)
        return TargetOutput(_ONE.expand(logits, 1), argmax, tokens, probs)

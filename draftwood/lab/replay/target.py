"""A target that answers from a recording.

A method with deterministic trees generates the tokens of plain decoding at every temperature. So
the target's token after a position of the text is the recorded one, likeliest or drawn, and the
engine decodes as if greedily. Drafters get the recorded rows, those of rejected nodes included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.recording import MissingRowError, Text, Texts
from draftwood.lab.replay.rows import NO_TOKEN, UNKNOWN
from draftwood.lab.replay.weightless import WeightlessTarget, output
from draftwood.protocols import Needs, TargetInfo, TargetOutput
from draftwood.tree import TokenTree


@dataclass
class ReplayedText:
    """A request: its text, and the position of the next tree's root."""

    text: Text
    root: int


class ReplayTarget(WeightlessTarget[ReplayedText]):
    """Implements :class:`draftwood.protocols.Target` over recorded texts.

    Args:
        info: the model's facts.
        texts: turns, by their context.
        rejected: whether a drafter reads rows of nodes that are not on the text. If not, a missing
            row is returned without tokens.
    """

    def __init__(self, info: TargetInfo, texts: Texts, *, rejected: bool) -> None:
        super().__init__(info)
        self._texts = texts
        self._rejected = rejected

    def length(self, slot: int) -> int:
        """Number of tokens before the root."""
        return self._slots[slot].root

    def prefill(
        self, slots: Sequence[int], prompts: Sequence[Sequence[int]], needs: Needs
    ) -> list[TargetOutput]:
        """Recorded output for the contexts.

        Raises:
            DraftwoodError: a context was not recorded, or a drafter reads wider rows.
        """
        found = []
        for slot, prompt in zip(slots, prompts, strict=True):
            text = self._texts.get(tuple(prompt))
            if text is None:
                raise DraftwoodError(
                    f"a context of {len(prompt)} tokens was not recorded: record this prompt"
                )
            self._slots[slot] = ReplayedText(text, len(prompt))
            first = 0 if needs.prompt_rows else len(prompt) - 1
            found.append(self._output(text, range(first, len(prompt)), needs, logits=1))
        return found

    def forward(
        self, slots: Sequence[int], trees: Sequence[TokenTree], needs: Needs
    ) -> list[TargetOutput]:
        """Recorded output for the trees' nodes.

        Raises:
            MissingRowError: a row that may be read was not recorded.
            DraftwoodError: a drafter reads wider rows than were recorded.
        """
        found = []
        for slot, tree in zip(slots, trees, strict=True):
            state = self._slots[slot]
            nodes = [state.root]
            state.text.paths.extend(nodes, tree.tokens.tolist(), tree.parents.tolist())
            found.append(self._output(state.text, nodes, needs, logits=len(nodes)))
        return found

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Move the roots past the accepted paths.

        Raises:
            DraftwoodError: the path ends beyond the tokens recorded past an answer's end.
        """
        for slot, path in zip(slots, paths, strict=True):
            state = self._slots[slot]
            state.root += len(path) + 1
            if state.root >= len(state.text.paths.main):
                raise DraftwoodError(
                    f"{len(path)} drafted tokens were accepted, which is more than was recorded "
                    "after the answer's end: give the method a smaller budget"
                )

    def _output(self, text: Text, nodes: Sequence[int], needs: Needs, logits: int) -> TargetOutput:
        main = text.paths.main
        last = len(main) - 1
        # An id outside the vocabulary: no draft can match where the target's token is not known.
        no_token = self.info.vocab_size
        argmax = [main[node + 1] if 0 <= node < last else no_token for node in nodes]
        k = min(needs.top_k, self.info.vocab_size)
        if k > text.rows.width:
            raise DraftwoodError(
                f"a drafter reads the {k} likeliest tokens of every row and the recording has "
                f"{text.rows.width}: record again with --top {k}"
            )
        rows = [text.rows.index.get(node, UNKNOWN) for node in nodes] if k else []
        if UNKNOWN in rows and self._rejected:
            raise MissingRowError("the recording has no row of the target for a drafted path")
        tokens, probs = text.rows.take(rows, k)
        if UNKNOWN in rows:
            unknown = np.array(rows) == UNKNOWN
            tokens[unknown], probs[unknown] = NO_TOKEN, 0.0
        return output(argmax, tokens, probs, logits)

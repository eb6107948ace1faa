"""The drafter of remembered text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from draftwood.drafters._texts import check_texts, encoded_files
from draftwood.drafters.memory.journal import Journal
from draftwood.drafters.memory.keeper import Keeper, keeper_of
from draftwood.drafters.memory.namespaces import GIVEN, Namespaces
from draftwood.drafters.memory.store import MEASURED
from draftwood.files import check_writable
from draftwood.protocols import (
    LARGEST_COUNT,
    Continuation,
    Drafter,
    DrafterSpec,
    Evidence,
    Feature,
    Host,
    Outcome,
    Prefill,
    setting,
)


@dataclass(frozen=True)
class Memory(DrafterSpec):
    """Settings of the memory.

    Raises:
        DraftwoodError: a setting out of range, a text that does not exist, or a file that cannot be
            written.
    """

    size: int = setting(
        1_000_000, "most tokens that are remembered", least=1000, most=LARGEST_COUNT
    )
    text: tuple[str, ...] = setting((), "files, and folders of files, to remember at the start")
    file: str = setting("", "a file that keeps the memory for the next run; empty: none")
    max_tokens: int = setting(
        20, "longest continuation to copy, in tokens", least=1, most=LARGEST_COUNT
    )
    max_continuations: int = setting(
        4, "most continuations, with distinct first tokens, to offer", least=1, most=LARGEST_COUNT
    )

    summary: ClassVar = "what followed the end of the text in other requests and in files"
    remembers: ClassVar = True
    evidence: ClassVar = Evidence(
        copied=(
            Feature("match_length", (4, 6, 9, 13, 24, 48)),
            Feature("count", (2, 4)),
            Feature("agreeing", (2, 3)),
            Feature("preferred"),
            Feature("first"),
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Before a model is loaded for them.
        check_texts(self.text)
        if self.file:
            check_writable(Path(self.file).resolve())

    def build(self, host: Host) -> MemoryDrafter:
        """A drafter with a memory of its own, or with that of its file.

        Raises:
            DraftwoodError: a text cannot be read or there is no tokenizer to encode it, or the file
                is of another vocabulary.
        """
        # Before the file, which a failure must not keep from others.
        texts = [array("i", tokens) for tokens in encoded_files(self.text, host.encode)]
        keeper = None
        if self.file:
            journal = Journal(self.file, host.vocabulary, host.info.vocab_size)
            keeper = keeper_of(journal, self.size)
        memory = Namespaces(self.size) if keeper is None else keeper.memory
        for tokens in texts:
            memory.add(tokens, GIVEN)
        return MemoryDrafter(self, memory, keeper)


class MemoryDrafter(Drafter):
    """Proposes chains that continue the text as other text was continued.

    That is the text of finished requests of the same namespace, and that of the given files.
    The fields of a ``Continuation``:

    * ``tokens``: up to ``max_tokens``;
    * ``match_length``: the common suffix of the text and of the remembered passage, up to 64;
    * ``count``: occurrences with this first token among the latest that were looked at, and the
      texts that held them again;
    * ``agreeing``: lengths whose latest occurrence has this first token.
    """

    def __init__(self, settings: Memory, memory: Namespaces, keeper: Keeper | None) -> None:
        self._settings = settings
        self._memory = memory
        self._keeper = keeper
        self._texts: dict[int, tuple[str, array[int]]] = {}

    def begin(self, slot: int, prefill: Prefill) -> None:
        """Take the prompt and the first token."""
        text = array("i", prefill.prompt.tolist())
        text.append(prefill.first)
        self._texts[slot] = prefill.namespace, text

    def observe(self, slot: int, outcome: Outcome) -> None:
        """Take the tokens that the step committed."""
        self._texts[slot][1].extend(outcome.committed)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        """Chains that followed the end of each slot's text before, the preferred one first."""
        own = self._settings
        return [
            self._memory.continuations(
                text[-MEASURED:], namespace, most=own.max_continuations, tokens=own.max_tokens
            )
            for namespace, text in map(self._texts.__getitem__, slots)
        ]

    def cut(self, slot: int, tokens: int) -> None:
        """Leave out what was committed behind the end of the text."""
        del self._texts[slot][1][-tokens:]

    def release(self, slot: int) -> None:
        """Remember the slot's text."""
        found = self._texts.pop(slot, None)
        if found is None:
            return
        namespace, text = found
        if self._keeper is None:
            self._memory.add(text, namespace)
        else:
            self._keeper.add(text, namespace)


PART = Memory

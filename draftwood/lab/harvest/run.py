"""A harvest from texts to a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.drafters.adjacency.table import (
    Facts,
    PreparedTable,
    TextFile,
    key_dtype,
    token_dtype,
)
from draftwood.errors import DraftwoodError
from draftwood.files import encode, public_name
from draftwood.lab.harvest.choose import Rows, chosen, joined, rows_of
from draftwood.lab.harvest.plan import HarvestPlan
from draftwood.lab.harvest.reader import read_windows
from draftwood.lab.harvest.shards import WorkDirectory, merged_by_token
from draftwood.lab.harvest.texts import TextSource
from draftwood.lab.harvest.windows import Window, digest_of, shards_of, windows_of
from draftwood.models import Loaded, vocabulary_digest
from draftwood.protocols import Target

_SHARD_ENTRIES = 1 << 21
"""Most successors of a shard: at most 42 MB of disk."""

_SHARD_TOKENS = 1 << 15
"""Most tokens of a shard, which an interrupted run reads again: a minute or two on a CPU."""


@dataclass(frozen=True, eq=False)
class Harvest:
    """A model, the windows of text that it reads, and what becomes of them.

    Attributes:
        target: the attached model.
        plan: the settings.
        facts: of the table.
        windows: of all texts.
    """

    target: Target
    plan: HarvestPlan
    facts: Facts
    windows: Sequence[Window]

    @property
    def identity(self) -> dict[str, Any]:
        """All that the sums depend on."""
        facts = encode(self.facts)
        settings = {name: getattr(self.plan, name) for name in ("width", "length", "limit_tokens")}
        return {**facts, "settings": settings, "windows": digest_of(self.windows)}

    def run(self, work: WorkDirectory, show: Callable[[int], None]) -> PreparedTable:
        """Read what is not in the work directory yet, and make the table.

        Args:
            work: keeps the sums of each shard; prepared.
            show: is told of tokens that were read, or found in the work directory.

        Raises:
            DraftwoodError: the text has no pair that may be stored.
        """
        width = min(self.plan.read_width, self.facts.vocab_size)
        tokens = max(1, min(_SHARD_TOKENS, _SHARD_ENTRIES // width))
        shards = shards_of(self.windows, tokens)
        for number, windows in enumerate(shards):
            if work.has(number):
                show(sum(map(len, windows)))
            else:
                work.save(number, read_windows(self.target, windows, width, show))
        return self._table([work.shard(number) for number in range(len(shards))])

    def _table(self, shards: Sequence[Path]) -> PreparedTable:
        plan, size = self.plan, self.facts.vocab_size
        most = int(plan.max_megabytes * 1e6)
        rows: Rows | None = None
        likely = False
        for sums in merged_by_token(shards, size):
            found = rows_of(sums, size, width=plan.width, min_score=plan.min_score)
            likely = likely or bool(len(found.keys))
            rows = chosen(found if rows is None else joined([rows, found]), size, most)
        assert rows is not None, "there is text"
        if not likely:
            raise DraftwoodError(
                "there is nothing for a table: the model gave no token a probability of "
                f"{plan.min_score:g} or more, as a model that is not trained does"
            )
        if not len(rows.keys):
            raise DraftwoodError(
                f"no row fits into a table of {plan.max_megabytes:g} MB: give more with "
                "--max-megabytes"
            )
        return PreparedTable(
            self.facts,
            rows.keys.astype(key_dtype(size)),
            rows.lengths.astype(np.uint8),
            rows.tokens.astype(token_dtype(size)),
            rows.codes,
        )


def harvest_of(
    loaded: Loaded, target: Target, texts: Sequence[TextSource], plan: HarvestPlan
) -> Harvest:
    """The harvest of texts by a model.

    Raises:
        DraftwoodError: the plan does not fit the model, or the texts have no token.
    """
    info = target.info
    if plan.length > info.context_limit:
        raise DraftwoodError(
            f"--length is {plan.length}, and the model's context is {info.context_limit} tokens"
        )
    every = (document.text for source in texts for document in source.documents)
    windows = windows_of(every, loaded.tokenizer, plan.length, plan.limit_tokens)
    if not windows:
        raise DraftwoodError("the texts have no token")
    facts = Facts(
        vocab_size=info.vocab_size,
        width=plan.width,
        model=public_name(loaded.name),
        dtype=str(info.dtype).removeprefix("torch."),
        vocabulary=vocabulary_digest(loaded.tokenizer),
        fingerprint=info.fingerprint,
        text=tuple(
            TextFile(source.path.name, source.sha256, len(source.documents))
            for source in sorted(texts, key=lambda source: source.sha256)
        ),
        tokens=sum(map(len, windows)),
        settings={name: value for name, value in vars(plan).items() if name != "width"},
    )
    return Harvest(target, plan, facts, windows)

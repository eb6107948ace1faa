"""Begins requests with tokens that are cached already, and keeps those of requests that end.

The tokens come from a finished text, or from a request that runs. Both must be of the same
namespace. A request whose prompt begins like one that is being cached waits for that one. Of a
model with recurrent layers, a text can be taken up to where its states were kept.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from draftwood.engine.joining import JoiningRequest
from draftwood.engine.prefix_cache import SHORTEST, Prefix, PrefixCache, common
from draftwood.engine.sequence import RunningRequest
from draftwood.engine.token_rows import TokenRows, first_rows
from draftwood.protocols import Needs, ResumableTarget, SavedTokens, TargetOutput


class Prefixes:
    """The prefixes of one engine's requests.

    Args:
        target: whose cache the tokens are in.
        needs: of the drafters.
        most: bytes of finished texts to keep.
        recurrent: whether the target has recurrent layers.

    Attributes:
        queried: prompt tokens of all requests that began.
        reused: those of them that were not computed.
    """

    def __init__(
        self, target: ResumableTarget, needs: Needs, most: int, *, recurrent: bool = False
    ) -> None:
        self.queried = self.reused = 0
        self._recurrent = recurrent
        self._target = target
        self._needs = needs
        self._cache = PrefixCache(most)

    @property
    def bytes(self) -> int:
        """Bytes of the finished texts that are kept."""
        return self._cache.bytes

    def arrives(self, sequence: RunningRequest, joining: Iterable[JoiningRequest]) -> bool:
        """Whether a request had better wait: another one is just caching its first tokens."""
        ids, namespace = _text(sequence), sequence.request.namespace
        others = [j.sequence for j in joining if j.sequence.request.namespace == namespace]
        coming = max((self._coming(_text(other), ids) for other in others), default=0)
        return coming >= SHORTEST and coming > self._cache.longest(ids, namespace)[1]

    def _coming(self, other: NDArray[np.int64], ids: NDArray[np.int64]) -> int:
        """How many first tokens of a prompt can be taken from another one when that is cached."""
        shared = common(other, ids)
        if not self._recurrent:
            return shared
        return len(other) - 1 if shared >= len(other) - 1 else 0

    def begin(self, sequence: RunningRequest, running: Iterable[RunningRequest]) -> JoiningRequest:
        """Put the first tokens into the request's slot, as far as they are cached."""
        sequence.rows = TokenRows(self._needs)
        ids, namespace = _text(sequence), sequence.request.namespace
        self.queried += len(ids)
        # The logits of the last token are not kept, and are needed.
        most = len(ids) - 1
        kept, length = self._cache.longest(ids[:most], namespace)
        lender, shared = None, length
        for other in running:
            if other.request.namespace == namespace:
                common_tokens = min(common(self._cached(other), ids), most)
                if common_tokens > shared:
                    lender, shared = other, common_tokens
        lent = self._target.saved(lender.slot, shared) if lender and shared >= SHORTEST else None
        if lent is not None and lent.length > length:
            assert lender is not None
            assert lender.rows is not None
            return self._taken(sequence, lent, lent.length, lender.rows.first(lent.length))
        if kept is None or length < SHORTEST:
            return JoiningRequest(sequence)
        rows = kept.rows
        if rows is not None:
            rows = first_rows(rows, length, prompt_rows=self._needs.prompt_rows)
        return self._taken(sequence, kept.saved, length, rows)

    def _taken(
        self,
        sequence: RunningRequest,
        saved: SavedTokens,
        length: int,
        rows: TargetOutput | None,
    ) -> JoiningRequest:
        """A request that begins with the first saved tokens, if they are not too few."""
        if length < SHORTEST:
            return JoiningRequest(sequence)
        self._target.restore(sequence.slot, saved, length)
        self.reused += length
        return JoiningRequest(sequence, length, rows)

    def keep(self, sequence: RunningRequest) -> None:
        """Keep the tokens of a request that has ended, before its slot is released."""
        if sequence.rows is None or not sequence.tokens:
            return
        tokens = self._cached(sequence)
        namespace = sequence.request.namespace
        if len(tokens) < SHORTEST or self._cache.longest(tokens, namespace)[1] == len(tokens):
            return
        if len(tokens) * self._target.info.token_bytes > self._cache.most:
            return
        saved = self._target.saved(sequence.slot, len(tokens))
        if saved is not None:
            rows = sequence.rows.first(saved.length)
            self._cache.add(Prefix(tokens[: saved.length].copy(), saved, rows), namespace)

    def _cached(self, sequence: RunningRequest) -> NDArray[np.int64]:
        """The request's tokens that are in the cache.

        The newest token is not; those behind the end of a request may be.
        """
        return _text(sequence)[: self._target.length(sequence.slot)]


def _text(sequence: RunningRequest) -> NDArray[np.int64]:
    """The request's tokens so far; its prompt if it has not begun."""
    found: NDArray[np.int64] = sequence.history.view()[0].numpy()
    return found

"""Begins requests with tokens that are cached already, and keeps those of requests that end.

The tokens come from a finished text, or from a request that runs. Both must be of the same
namespace, and of the weights of now. A request whose prompt begins like one that is being cached
waits for that one where it gains by it. Of a model with recurrent layers, a text can be taken up to
where its states were kept.
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from draftwood.engine.forking import copies
from draftwood.engine.joining import JoiningRequest
from draftwood.engine.prefix_cache import SHORTEST, Prefix, PrefixCache, common
from draftwood.engine.sequence import RunningRequest
from draftwood.engine.token_rows import TokenRows, first_rows, rows_bytes
from draftwood.protocols import Needs, ResumableTarget
from draftwood.runner.recurrent.states import TAIL


class Prefixes:
    """The prefixes of one engine's requests.

    Args:
        target: whose cache the tokens are in.
        needs: of the drafters.
        most: bytes of finished texts to keep.
        recurrent: whether the target has recurrent layers.

    """

    def __init__(
        self, target: ResumableTarget, needs: Needs, most: int, *, recurrent: bool = False
    ) -> None:
        self._recurrent = recurrent
        self._target = target
        self._needs = needs
        self._cache = PrefixCache(most)
        self._version: Hashable = None
        self._now: Hashable = None  # the target's, as far as it was asked for in this step

    @property
    def bytes(self) -> int:
        """Bytes of the finished texts that are kept."""
        return self._cache.bytes

    def arrives(
        self,
        sequence: RunningRequest,
        joining: Iterable[JoiningRequest],
        running: Iterable[RunningRequest],
    ) -> bool:
        """Whether a request had better wait: another one is just caching its first tokens.

        It waits while that one's rest takes less than what would be computed twice otherwise. A
        prompt that does not wait may take as long as twice its tokens, as half of what is cached in
        a step is of others.

        Args:
            sequence: without a slot.
            joining: requests whose prompts are being cached.
            running: those whose prompts are cached.
        """
        ids, namespace = _text(sequence), sequence.request.namespace
        others = [j for j in joining if j.sequence.request.namespace == namespace]
        coming = [(self._coming(j.sequence, ids), j.left) for j in others]
        if max((shared for shared, _ in coming), default=0) < SHORTEST:
            return False
        known = self._longest(sequence, running)[1]
        alone = 2 * (len(ids) - known)
        return any(
            shared >= known + SHORTEST and left + len(ids) - shared < alone
            for shared, left in coming
        )

    def _coming(self, other: RunningRequest, ids: NDArray[np.int64]) -> int:
        """How many first tokens of a prompt can be taken from another one when that is cached."""
        # The logits of the last token are not kept, and are needed.
        text = _text(other)
        shared = min(common(text, ids), len(ids) - 1)
        if not self._recurrent:
            return self._target.savable(other.slot, shared)
        known = len(text) - TAIL
        return known if shared >= known > 0 else 0

    def watch(self, sequence: RunningRequest) -> None:
        """Note what is needed to keep the text of a request that begins, and to lend it."""
        version = sequence.weights_version = self._weights_version()
        if version != self._version:  # what is kept is of other weights
            self._version, self._cache = version, PrefixCache(self._cache.most)
        if copies(self._target, sequence.slot):
            sequence.rows = TokenRows(self._needs)
            self._target.remember(sequence.slot)

    def next_step(self) -> None:
        """Weights may have changed since the step before."""
        self._now = None

    def _weights_version(self) -> Hashable:
        """Of now. It is asked for once a step, as it takes milliseconds of a large model."""
        if self._now is None:
            self._now = self._target.weights_version
        return self._now

    def clear(self) -> bool:
        """Give the memory of all finished texts back; False if there are none."""
        some = len(self._cache) > 0
        self._cache.clear()
        return some

    def begin(self, sequence: RunningRequest, running: Iterable[RunningRequest]) -> JoiningRequest:
        """Put a prompt's first tokens into the request's slot, as far as they are cached."""
        self.watch(sequence)
        found, length = self._longest(sequence, running)
        if found is None or length < SHORTEST:
            return JoiningRequest(sequence)
        if isinstance(found, Prefix):
            rows = found.rows
            if rows is not None:
                rows = first_rows(rows, length, prompt_rows=self._needs.prompt_rows)
            self._target.restore(sequence.slot, found.saved, length)
        else:
            assert found.rows is not None
            rows = found.rows.first(length)
            self._target.lend(found.slot, sequence.slot, length)
        return JoiningRequest(sequence, length, rows)

    def _longest(
        self, sequence: RunningRequest, running: Iterable[RunningRequest]
    ) -> tuple[Prefix | RunningRequest | None, int]:
        """The text or running request that most first tokens can be taken from, and how many.

        The logits of a prompt's last token are needed, so that one is always computed.
        """
        ids, namespace = _text(sequence), sequence.request.namespace
        most = len(ids) - 1
        best: Prefix | RunningRequest | None
        best, length = self._cache.longest(ids[:most], namespace)
        for other in running:
            of_now = other.rows is not None and other.weights_version == self._version
            if of_now and other.request.namespace == namespace:
                shared = min(common(self._cached(other), ids), most)
                savable = self._target.savable(other.slot, shared)
                if savable > length:
                    best, length = other, savable
        return best, length

    def keep(self, sequence: RunningRequest) -> None:
        """Keep the tokens of a request that has ended, before its slot is released."""
        if sequence.rows is None or not sequence.tokens:
            return
        # Those of its beginning, of now, and of what is kept.
        if not sequence.weights_version == self._weights_version() == self._version:
            return
        whole = self._cached(sequence)
        tokens = whole[: self._target.savable(sequence.slot, len(whole))]
        namespace, info = sequence.request.namespace, self._target.info
        if len(tokens) < SHORTEST or self._cache.longest(tokens, namespace)[1] == len(tokens):
            return
        rows = sequence.rows.copied(len(tokens))
        needed = tokens.nbytes + len(tokens) * info.token_bytes + info.slot_bytes
        needed += 0 if rows is None else rows_bytes(rows)
        if needed > self._cache.most:
            return
        self._cache.make_room(needed)  # before the copy is made
        saved = self._target.saved(sequence.slot, len(tokens))
        kept = Prefix(tokens.copy(), saved, rows)
        self._cache.add(_with_fewer_states(kept, self._cache.most), namespace)

    def _cached(self, sequence: RunningRequest) -> NDArray[np.int64]:
        """The request's tokens that are in the cache.

        The newest token is not; those behind the end of a request may be.
        """
        return _text(sequence)[: self._target.length(sequence.slot)]


def _with_fewer_states(text: Prefix, most: int) -> Prefix:
    """A text without its first states, of several, as far as it takes too many bytes."""
    while text.bytes > most and len(text.saved.states or ()) > 1:
        known = dict(text.saved.states or {})
        del known[min(known)]
        text = replace(text, saved=replace(text.saved, states=known))
    return text


def _text(sequence: RunningRequest) -> NDArray[np.int64]:
    """The request's tokens so far; its prompt if it has not begun."""
    found: NDArray[np.int64] = sequence.history.view()[0].numpy()
    return found

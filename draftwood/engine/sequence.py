"""One running request: its tokens and text so far, and its end.

Knows nothing of trees; it is handed the tokens that were committed.
"""

from collections.abc import Hashable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from draftwood.engine.detokenize import text_stream
from draftwood.engine.logprobs import TokenLogprob, token_logprobs
from draftwood.engine.request import Completion, Delta, FinishReason, Request, failure
from draftwood.engine.stats import Tally
from draftwood.engine.stop import StopMatcher
from draftwood.engine.token_rows import TokenRows
from draftwood.protocols import Constraint, Growth, RequestLoad
from draftwood.protocols.step import PACE
from draftwood.sampling.history import History
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.processors import WithheldTokens
from draftwood.sampling.sampler import Sampler
from draftwood.sampling.tree_mask import TreeMask
from draftwood.tree import ROOT, TokenTree


class Taken(NamedTuple):
    """Tokens that were appended to a request.

    Attributes:
        tokens: the newest ones.
        reason: for which the last one ends the request; None: it goes on.
        pieces: the text of each, if the text may end the request; it is made later otherwise.
        logprobs: of each, if they were asked for.
    """

    tokens: tuple[int, ...]
    reason: FinishReason | None
    pieces: tuple[str, ...]
    logprobs: tuple[TokenLogprob, ...]


class RunningRequest:
    """A running request: its tokens, text, random stream and policy state.

    Args:
        number: the request's, as the engine counts.
        request: what was asked for.
        limit: most tokens to generate, the context's end included.
        tokenizer: makes text of tokens; without one there is none.
        constraint: what the request's grammar allows; None without one.
    """

    def __init__(
        self,
        number: int,
        request: Request,
        limit: int,
        tokenizer: PreTrainedTokenizerBase | None,
        constraint: Constraint | None = None,
    ) -> None:
        self.number = number
        self.request = request
        self.limit = limit
        self.slot = -1
        self.rows: TokenRows | None = None
        self.weights_version: Hashable = None
        self.state: Any = None
        self.constraint = constraint
        self._mask: TreeMask | None = None
        self.tokens: list[int] = []
        given = request.sampler
        self.sampler = given.fresh() if given else sampler_of(request)
        self.history = History(request.ids, capacity=len(request.ids) + limit)
        self.noise = RequestNoise(request.sampling.seed, len(request.ids) - 1)
        self.stream = (
            text_stream(
                tokenizer,
                request.ids,
                skip_special_tokens=request.skip_special_tokens,
                shown=request.shown_special_tokens,
            )
            if tokenizer
            else None
        )
        self.matcher = StopMatcher(request.stop)
        self.text: list[str] = []
        self.logprobs: list[TokenLogprob] = []
        self.tally = Tally()
        self.pace = 1.0
        self.started = perf_counter()
        self.queued = self.ttft = float("nan")
        self.cached_tokens = 0

    def begin(self) -> None:
        """The request leaves the queue."""
        self.queued = perf_counter() - self.started

    def load(self, backlogs: Mapping[str, int]) -> RequestLoad:
        """The request as the next step finds it, with the tokens that each drafter has not read."""
        left = self.limit - len(self.tokens)
        return RequestLoad(
            len(self.history),
            left,
            self.pace,
            self.sampler.temperature,
            backlogs,
            constrained=self.constraint is not None,
        )

    def mask(self, tree: TokenTree) -> TreeMask | None:
        """What the grammar allows after the nodes of a tree; the same object for the same tree."""
        if self.constraint is None:
            return None
        if self._mask is None or self._mask.tree is not tree:
            self._mask = TreeMask(self.constraint, tree)
        return self._mask

    def growth(self, budget: int, forecast: Any = None) -> Growth:
        """The policy's view of the next step; the step's random numbers begin here."""
        room = self.limit - len(self.tokens) - 1
        self.noise.position = len(self.history) - 1
        return Growth(
            anchor=self.tokens[-1],
            room=room,
            budget=budget if room and self.request.speculate else 0,
            temperature=self.sampler.temperature,
            noise=self.noise,
            forecast=forecast,
            constrained=self.constraint is not None,
        )

    def take(self, tokens: Sequence[int], path: Sequence[int], logits: torch.Tensor) -> Taken:
        """Append tokens until one of them ends the request; the rest is cut off.

        Args:
            tokens: those of the accepted path, and the target's own one after it.
            path: accepted nodes, the root excluded.
            logits: ``[n, V]`` of the tree.

        If a stopping criterion or the tokenizer raises an exception, none of them counts.
        """
        taken: list[int] = []
        pieces: list[str] = []
        reason: FinishReason | None = None
        try:
            for token in tokens:
                taken.append(token)
                self.tokens.append(token)
                self.history.append(token)
                reason = self._reason(token)
                if self.request.stop:  # the text may end the request
                    pieces.append(self._piece(token, last=reason is not None))
                    reason = reason if self.matcher.matched is None else "stop"
                if reason:
                    break
            if self.constraint is not None and reason is None:
                self.constraint.advance(taken)
            logprobs = self._logprobs(taken, path, logits)
        except Exception:
            self._drop(len(taken))
            raise
        self.pace += PACE * (len(taken) - self.pace)
        return Taken(tuple(taken), reason, tuple(pieces), logprobs)

    def told(self, taken: Taken, drafted_by: Sequence[str] = ()) -> Delta:
        """The event of the newest tokens, with their text.

        Args:
            taken: the tokens.
            drafted_by: source of each accepted node; what follows them is the target's own.

        If the tokenizer raises an exception, none of them counts.
        """
        pieces = taken.pieces
        if not self.request.stop:
            last = len(taken.tokens) - 1 if taken.reason else None
            try:
                pieces = tuple(
                    self._piece(token, last=i == last) for i, token in enumerate(taken.tokens)
                )
            except Exception:
                self._drop(len(taken.tokens))
                raise
        self.text += pieces
        self.logprobs += taken.logprobs
        own = [""] * (len(taken.tokens) - len(drafted_by))
        sources = (*drafted_by, *own)[: len(taken.tokens)]  # the end of a path may be cut off
        return Delta(self.number, taken.tokens, sources, pieces, taken.logprobs)

    def _drop(self, newest: int) -> None:
        del self.tokens[len(self.tokens) - newest :]

    def _logprobs(
        self, tokens: Sequence[int], path: Sequence[int], logits: torch.Tensor
    ) -> tuple[TokenLogprob, ...]:
        """Log probabilities of the newest tokens, if they were asked for.

        Now, not with the text: the next forward may overwrite the logits.
        """
        most = self.request.logprobs
        if most is None:
            return ()
        return token_logprobs(logits, [ROOT, *path][: len(tokens)], tokens, most)

    def _reason(self, token: int) -> FinishReason | None:
        """Why a token that was appended ends the request, its text apart."""
        request = self.request
        # Asked of the last token too: a criterion may count or show what it sees.
        stops = request.should_stop is not None and request.should_stop(self.history.view())
        if token in request.ends:
            return "eos"
        if len(self.tokens) >= self.limit:
            return "length" if len(self.tokens) >= request.max_new_tokens else "context"
        return "stop" if stops else None

    def _piece(self, token: int, *, last: bool) -> str:
        """The text that a token adds; ``last``: none follows."""
        if self.stream is None:
            return ""
        # What ends a text is not part of it, as a stop string is not.
        piece = "" if token in self.request.ends else self.stream.push([token])
        if last:
            piece += self.stream.flush()
        piece = self.matcher.feed(piece, counts=len(self.tokens) > self.request.min_new_tokens)
        if last and self.matcher.matched is None:
            piece += self.matcher.flush()
        return piece

    def completion(self, reason: FinishReason, error: Exception | None = None) -> Completion:
        """The finished request; ``error`` is the exception of its own that ended it, if any."""
        return Completion(
            tokens=tuple(self.tokens),
            text="".join(self.text),
            reason=reason,
            tally=self.tally,
            prompt_tokens=len(self.request.ids),
            queued=self.queued,
            ttft=self.ttft,
            seconds=perf_counter() - self.started,
            error=None if error is None else failure(self.number, error),
            logprobs=tuple(self.logprobs),
            cached_tokens=self.cached_tokens,
        )


def sampler_of(request: Request) -> Sampler:
    """The sampler of a request that brings none."""
    prompt, least = len(request.ids), request.min_new_tokens
    withheld = WithheldTokens(request.ends, prompt + least) if least and request.ends else None
    return Sampler(request.sampling, prompt, withheld)

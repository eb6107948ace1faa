"""A local model as the reference: Draftwood's plain decoding, one token a step."""

import math
from collections.abc import Sequence
from typing import Any

from draftwood.engine.engine import Engine
from draftwood.engine.logprobs import TokenLogprob
from draftwood.engine.request import Completion, Delta, Finished, Request
from draftwood.engine.token_bytes import tokens_of
from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.answer import Answer, Choice, Token
from draftwood.lab.endpoint.client import Refused
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.models import Loaded
from draftwood.models.chat_template import apply_template
from draftwood.sampling.params import SamplingParams

TOPS = 20
"""Likeliest tokens whose log probabilities are reported."""

_REASONS = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}
"""The API's words for the ends of a request."""

_SAMPLING = (
    "temperature",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
)


class LocalModel:
    """A model that is decoded plainly in this process.

    Args:
        loaded: the model. Its tokenizer has to be that of the server's model.

    Attributes:
        name: of the model.
        dtype: that it computes in.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.name = loaded.name
        self._tokenizer: Any = loaded.tokenizer
        self._engine = Engine(loaded.model, "ar", loaded.tokenizer, max_batch=16)
        self.dtype = str(self._engine.target.info.dtype).removeprefix("torch.")
        self._size = self._engine.target.info.vocab_size
        self._tokens = tokens_of(loaded.tokenizer, self._size)
        self._eos = loaded.eos

    def ask(
        self,
        prompt: Prompt,
        tokens: int,
        *,
        tops: int | None = None,  # noqa: ARG002 - they are always reported
        **fields: Any,
    ) -> Answer:
        """The answer to a prompt, with log probabilities; greedy unless the fields say otherwise.

        Raises:
            Refused: a field is not one of a request's sampling.
            DraftwoodError: the prompt does not fit the model.
        """
        unknown = next((name for name in fields if name not in _SAMPLING), None)
        if unknown is not None:
            raise Refused(f"the local model knows no {unknown}")
        bias = {int(token): value for token, value in (fields.get("logit_bias") or {}).items()}
        request = Request(
            self.ids(prompt),
            tokens,
            SamplingParams(**{**fields, "logit_bias": bias}),
            eos=self._eos,
            logprobs=min(TOPS, self._size),
        )
        pieces: list[str] = []
        for event in self._engine.stream([request]):
            if isinstance(event, Delta):
                pieces += event.pieces
            elif isinstance(event, Finished):
                return self._answer(event.completion.checked(), pieces)
        raise AssertionError("an engine ends every request")

    def token_ids(self, text: str) -> list[int]:
        """The token ids of a text in the middle of another."""
        return self._tokens.encode(text)

    def ids(self, prompt: Prompt) -> list[int]:
        """The token ids of a prompt, in the chat template if it is a user's turn."""
        if not prompt.chat:
            return list(self._tokenizer(prompt.text)["input_ids"])
        if not self._tokenizer.chat_template:
            raise DraftwoodError(f"{self.name} has no chat template: leave chat prompts out")
        turn = {"role": "user", "content": prompt.text}
        text = apply_template(self._tokenizer, [turn], tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def distribution(
        self, prompt: Prompt, length: int, least: float, top_k: int
    ) -> dict[str, float]:
        """Probabilities of the texts of the next tokens, sampled at temperature 1.

        Args:
            prompt: what is continued.
            length: number of tokens.
            least: continuations of less probability are left out.
            top_k: likeliest tokens that are kept; 0: all.

        Returns:
            Probability by text. The sum is below 1: continuations that are rare, end early or are
            no text by themselves are missing.
        """
        start = tuple(self.ids(prompt))
        found: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(length):
            tops = top_k or math.ceil(1 / least)
            requests = [self._next(start + tokens, tops) for tokens in found]
            done = [each.checked() for each in self._engine.generate(requests)]
            longer: dict[tuple[int, ...], float] = {}
            for (tokens, share), completion in zip(found.items(), done, strict=True):
                for token, logprob in _kept(completion.logprobs[0].top, top_k):
                    probability = share * math.exp(logprob)
                    if probability >= least and token not in self._eos:
                        longer[*tokens, token] = probability
            found = longer
        distribution: dict[str, float] = {}
        for tokens, share in found.items():
            try:
                text = self._tokens.joined(tokens).decode()
            except UnicodeDecodeError:
                continue
            distribution[text] = distribution.get(text, 0.0) + share
        return distribution

    def _next(self, ids: Sequence[int], tops: int) -> Request:
        return Request(ids, 1, eos=self._eos, logprobs=min(tops, self._size))

    def _answer(self, done: Completion, pieces: Sequence[str]) -> Answer:
        tokens, start = [], 0
        for entry, piece in zip(done.logprobs, pieces, strict=True):
            tokens.append(self._token(entry, start))
            start += len(piece)
        choice = Choice(done.text, _REASONS.get(done.reason), tuple(tokens))
        return Answer((choice,), generated=len(done.tokens))

    def _token(self, entry: TokenLogprob, start: int) -> Token:
        top: dict[str, float] = {}
        for token, logprob in entry.top:
            top.setdefault(self._tokens.spelling(token), logprob)  # of equal texts the likelier one
        spelling = self._tokens.spelling(entry.token)
        return Token(spelling, entry.logprob, tuple(top.items()), start)


def _kept(top: Sequence[tuple[int, float]], top_k: int) -> Sequence[tuple[int, float]]:
    """The tokens that top-k keeps, with the log probabilities that they have then."""
    if not top_k:
        return top
    kept = top[:top_k]
    total = math.log(sum(math.exp(logprob) for _, logprob in kept))
    return [(token, logprob - total) for token, logprob in kept]

"""A server of the OpenAI API whose model is a table, and whose speculation is broken on purpose.

The model has a few words as tokens; the last two decide the logits of the next one. A request with
``"speculate": false`` is decoded as the table says; any other one has the server's faults.
"""

import json
import math
import random
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import uvicorn
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from draftwood.server.run import bound_socket, url_of

WORDS = (
    *(" the", " cat", " dog", " saw", " and", " then", " a", " house", " in", " on"),
    *(" old", " new", ",", ".", "\n", " ran", " sat", " there", " they", " bird"),
    "<end>",
)
END = len(WORDS) - 1
Row = NDArray[np.float64]


@dataclass(frozen=True)
class Faults:
    """What is wrong with requests that speculate; all that is by default is nothing.

    Attributes:
        wrong: every so many tokens, the third best token is taken; 0: never.
        rounds: two best logits that are closer than this are swapped.
        eager: probability that the likeliest token is accepted without a test, when sampling.
        seedless: seeds have no effect.
        ignored: fields that have none.
        leaks: a stop string stays in the text.
        beyond: tokens beyond ``max_tokens``.
        logprobs: what is added to reported log probabilities.
        scale: temperature that they are reported at.
        one: one choice whatever ``n`` is.
        drops: the last chunk of a stream is lost.
        plain_too: requests that do not speculate have the same faults.
    """

    wrong: int = 0
    rounds: float = 0.0
    eager: float = 0.0
    seedless: bool = False
    ignored: tuple[str, ...] = ()
    leaks: bool = False
    beyond: int = 0
    logprobs: float = 0.0
    scale: float = 1.0
    one: bool = False
    drops: bool = False
    plain_too: bool = False


@dataclass(frozen=True)
class Toy:
    """The server.

    Attributes:
        faults: of speculation.
        refused: fields that get status 400.
        chat: whether it has chats alone.
        tops: most likeliest tokens that are reported; None: log probabilities are ignored.
        owner: who owns the model.
        key: that clients must send; empty: none.
        breaks: a field that ends in status 500.
        speaks: whether answers report drafts.
    """

    faults: Faults = field(default_factory=Faults)
    refused: tuple[str, ...] = ()
    chat: bool = False
    tops: int | None = 20
    owner: str = "draftwood"
    key: str = ""
    breaks: str = ""
    speaks: bool = True
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> Starlette:
        """The application."""
        path = "/v1/chat/completions" if self.chat else "/v1/completions"
        return Starlette(
            routes=[
                Route(path, self._complete, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/version", _version),
            ]
        )

    async def _models(self, request: Request) -> Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": f"wrong key, not {self.key}"}}, 401)
        return JSONResponse({"data": [{"id": "toy", "owned_by": self.owner}]})

    async def _tokenize(self, request: Request) -> Response:
        return JSONResponse({"tokens": tokens_of((await request.json())["prompt"])})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if body["model"] != "toy":
            return JSONResponse({"error": {"message": f"no model {body['model']}"}}, 404)
        wrong = [name for name in self.refused if name in body]
        if wrong:
            return JSONResponse({"error": {"message": f"unknown field {wrong[0]}"}}, 400)
        if self.breaks and self.breaks in body:
            return JSONResponse({"error": {"message": "worker died"}}, 500)
        plain = body.get("speculate") is False
        faults = Faults() if plain and not self.faults.plain_too else self.faults
        body = {name: value for name, value in body.items() if name not in faults.ignored}
        count = 1 if faults.one else body.get("n", 1)
        done = [Decoding(self, body, faults, index).run() for index in range(count)]
        if body.get("stream"):
            return Response(self._events(done[0], faults), media_type="text/event-stream")
        for each in done:
            if self.speaks:
                drafted = 0 if plain else 2 * len(each.tokens)
                stats = {"num_draft_tokens": drafted, "num_accepted_draft_tokens": drafted // 2}
                each.choice["speculative_decoding_stats"] = stats
        usage = {"completion_tokens": sum(len(each.tokens) for each in done)}
        return JSONResponse({"choices": [each.choice for each in done], "usage": usage})

    def _events(self, done: "Decoding", faults: Faults) -> str:
        text = done.text
        pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
        pieces = pieces[:-1] if faults.drops else pieces
        parts: list[dict[str, Any]] = [
            {"delta": {"content": piece}} if self.chat else {"text": piece}
            for piece in (*pieces, "")
        ]
        parts[-1]["finish_reason"] = done.reason
        chunks = [{"choices": [{"index": 0, **part}]} for part in parts]
        return "".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n"


async def _version(_request: Request) -> Response:
    return JSONResponse({"version": "1.2"})


def tokens_of(text: str) -> list[int]:
    """Token ids of a text; what is no word of the model is left out."""
    found = re.findall("|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)), text)
    return [WORDS.index(word) for word in found]


def logits_after(tokens: Sequence[int]) -> Row:
    """The model: float64 ``[21]``; likely tokens differ by some tenths or more."""
    return _row(tuple(tokens[-2:]))


@lru_cache(maxsize=1000)
def _row(last: tuple[int, ...]) -> Row:
    found = np.random.default_rng([7, *last]).normal(0.0, 1.5, len(WORDS))
    found[END] = -9.0
    found.setflags(write=False)
    return found


class Decoding:
    """One choice of a request."""

    def __init__(self, toy: Toy, body: dict[str, Any], faults: Faults, index: int) -> None:
        self._toy, self._body, self._faults = toy, body, faults
        prompt = body["messages"][-1]["content"] if toy.chat else body["prompt"]
        self._prompt = tokens_of(prompt)
        self.tokens: list[int] = []
        self.text, self.reason = "", "length"
        seed = None if faults.seedless else body.get("seed")
        self._random = random.Random(None if seed is None else seed + index)
        self._entries: list[tuple[int, Row]] = []
        self.choice: dict[str, Any] = {}
        self._index = index

    def run(self) -> "Decoding":
        """Decode to the end."""
        limit = self._body["max_tokens"] + self._faults.beyond
        stops = self._body.get("stop", [])
        while len(self.tokens) < limit:
            row = logits_after((*self._prompt, *self.tokens))
            token = self._next(self._penalised(row), len(self.tokens))
            self._entries.append((token, row))
            self.tokens.append(token)
            if token == END:
                self.reason = "stop"
                break
            self.text += WORDS[token]
            stop = next((each for each in stops if each in self.text), None)
            if stop is not None:
                self.reason = "stop"
                if not self._faults.leaks:
                    self.text = self.text[: self.text.index(stop)]
                break
        self.choice = self._made()
        return self

    def _penalised(self, row: Row) -> Row:
        body, found = self._body, row.copy()
        for token in {*self._prompt, *self.tokens}:
            factor = body.get("repetition_penalty", 1.0)
            found[token] = found[token] / factor if found[token] > 0 else found[token] * factor
        for token in set(self.tokens):
            found[token] -= body.get("presence_penalty", 0.0)
            found[token] -= body.get("frequency_penalty", 0.0) * self.tokens.count(token)
        for token, bias in body.get("logit_bias", {}).items():
            found[int(token)] += bias
        return found

    def _next(self, row: Row, place: int) -> int:
        best = [int(token) for token in np.argsort(-row)]
        if not self._body.get("temperature"):
            if self._faults.wrong and place % self._faults.wrong == self._faults.wrong - 1:
                return best[2]
            close = row[best[0]] - row[best[1]] < self._faults.rounds
            return best[1] if close else best[0]
        kept = best[: self._body["top_k"]] if self._body.get("top_k", -1) > 0 else best
        if place and self._random.random() < self._faults.eager:
            return kept[0]
        weights = [math.exp(row[token]) for token in kept]
        return self._random.choices(kept, weights)[0]

    def _made(self) -> dict[str, Any]:
        found: dict[str, Any] = {"index": self._index, "finish_reason": self.reason}
        if self._toy.chat:
            found["message"] = {"role": "assistant", "content": self.text}
        else:
            found["text"] = self.text
        asked = self._body.get("top_logprobs" if self._toy.chat else "logprobs")
        if asked is None or self._toy.tops is None:
            return found
        entries = [self._reported(*entry, min(asked, self._toy.tops)) for entry in self._entries]
        if self._toy.chat:
            found["logprobs"] = {
                "content": [
                    {"token": text, "logprob": own, "top_logprobs": _listed(top)}
                    for text, own, top in entries
                ]
            }
        else:
            found["logprobs"] = {
                "tokens": [text for text, _, _ in entries],
                "token_logprobs": [own for _, own, _ in entries],
                "top_logprobs": [top for _, _, top in entries],
            }
        return found

    def _reported(self, token: int, row: Row, most: int) -> tuple[str, float, dict[str, float]]:
        scaled = row / self._faults.scale
        values = scaled - np.log(np.exp(scaled).sum()) + self._faults.logprobs
        best = np.argsort(-values)[:most]
        return WORDS[token], float(values[token]), {WORDS[i]: float(values[i]) for i in best}


def _listed(top: dict[str, float]) -> list[dict[str, Any]]:
    return [{"token": text, "logprob": logprob} for text, logprob in top.items()]


@contextmanager
def serving(toy: Toy) -> Iterator[str]:
    """The URL of the API, until the end of the block."""
    bound = bound_socket("127.0.0.1", 0)
    bound.listen()  # a request that comes before the thread runs waits
    server = uvicorn.Server(
        uvicorn.Config(toy.app(), lifespan="off", log_config=None, access_log=False, ws="none")
    )
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    try:
        yield url_of(bound)
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
        assert not thread.is_alive()

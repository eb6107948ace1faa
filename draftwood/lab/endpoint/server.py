"""A server as one side of a comparison: how it is asked, and what it can do.

What it can do is found out by requests of one token: which of the two kinds of completions it has,
which fields it takes, and how many log probabilities it reports.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.answer import Answer, MalformedError, answer_of, streamed
from draftwood.lab.endpoint.client import Client, Failed, Refused
from draftwood.lab.endpoint.prompts import Prompt

TEXT, CHAT = "/completions", "/chat/completions"

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1.0,),
    "top_k": (-1, 0),
    "min_p": (0.0,),
    "repetition_penalty": (1.0,),
    "repeat_penalty": (1.0,),
}
"""Values that switch off what a server may do by default, the first one that it takes.

Servers take defaults from the model's generation config (vLLM, SGLang) or have their own
(llama.cpp). With them, reported log probabilities would not be those of the sampled distribution.
"""

_TOPS = (20, 5, 1)
"""Numbers of likeliest tokens to ask for; the first that a server grants."""

PROBES = 2 + 1 + sum(map(len, NEUTRAL.values())) + len(_TOPS)
"""Most requests to find out what a server can do: its paths, :data:`NEUTRAL`, log probabilities."""


@dataclass(frozen=True)
class Abilities:
    """What a server can do.

    Attributes:
        paths: of the completions that it has, the preferred one first.
        neutral: fields of all requests, which switch defaults off.
        tops: likeliest tokens whose log probabilities it reports; None: it reports none.
    """

    paths: tuple[str, ...]
    neutral: Mapping[str, Any]
    tops: int | None


@dataclass
class Drafts:
    """Drafted and accepted tokens of a side's answers, as far as they report them."""

    reported: bool = False
    drafted: int = 0
    accepted: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, answer: Answer) -> None:
        """Count those of an answer."""
        if answer.drafted is not None:
            with self.lock:
                self.reported = True
                self.drafted += answer.drafted
                self.accepted += answer.accepted or 0


class Server:
    """A server that is asked in one way.

    Args:
        client: sends the requests.
        model: name of the model in requests.
        api: ``"completions"``, ``"chat"``, or ``"auto"``: the first one if the server has both.
        extra: further fields of every request, such as the switch that turns speculation off.

    Attributes:
        drafts: counts of the answers so far.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        api: str = "auto",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.client, self.model = client, model
        self.extra = dict(extra or {})
        self.drafts = Drafts()
        self._api = api

    @cached_property
    def abilities(self) -> Abilities:
        """What the server can do.

        Raises:
            DraftwoodError: it answers no request for completions.
        """
        paths = tuple(self._paths())
        neutral = self._neutral(paths[0])
        return Abilities(paths, neutral, self._tops(paths[0], neutral))

    def ask(self, prompt: Prompt, tokens: int, *, tops: int | None = None, **fields: Any) -> Answer:
        """The answer to a prompt, greedy unless the fields say otherwise.

        Args:
            prompt: what to continue or to answer.
            tokens: most new tokens.
            tops: likeliest tokens to report log probabilities of; None: ask for none.
            fields: further fields of the request.

        Raises:
            Refused: the server does not take a field.
            Failed: it breaks down, or sends what is no answer.
        """
        path, body = self.request(prompt, tokens, tops=tops, **fields)
        return self._answer(path, body)

    def stream(self, prompt: Prompt, tokens: int, **fields: Any) -> Answer:
        """As :meth:`ask`, streamed."""
        path, body = self.request(prompt, tokens, **fields)
        try:
            return streamed(self.client.stream(path, body))
        except MalformedError as error:
            raise Failed(str(error)) from error

    def request(
        self, prompt: Prompt, tokens: int, *, tops: int | None = None, **fields: Any
    ) -> tuple[str, dict[str, Any]]:
        """Path and body of a request."""
        path = self.path_of(prompt)
        return path, self._body(path, prompt, tokens, tops, {**self.abilities.neutral, **fields})

    def path_of(self, prompt: Prompt) -> str:
        """Where a prompt is asked: a user's turn among the chats, if the server has them."""
        paths = self.abilities.paths
        return CHAT if prompt.chat and CHAT in paths else paths[0]

    def token_ids(self, text: str) -> list[int] | None:
        """The token ids of a text in the middle of another, if the server tells."""
        for body in (
            {"prompt": text, "add_special_tokens": False},  # vLLM, Draftwood
            {"content": text, "add_special": False},  # llama.cpp
        ):
            try:
                found = self.client.post(f"{self.client.root}/tokenize", body)["tokens"]
                if found:  # llama.cpp finds none in a body that it does not know
                    return [int(each) for each in found]
            except (Refused, Failed, KeyError, TypeError, ValueError):
                continue
        return None

    def _answer(self, path: str, body: Mapping[str, Any]) -> Answer:
        try:
            found = answer_of(self.client.post(path, body))
        except MalformedError as error:
            raise Failed(str(error)) from error
        self.drafts.add(found)
        return found

    def _body(
        self, path: str, prompt: Prompt, tokens: int, tops: int | None, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        asked: dict[str, Any] = {"model": self.model}
        if path == CHAT:
            asked["messages"] = [{"role": "user", "content": prompt.text}]
            logprobs = {} if tops is None else {"logprobs": True, "top_logprobs": tops}
        else:
            asked["prompt"] = prompt.text
            logprobs = {} if tops is None else {"logprobs": tops}
        return {
            **asked,
            "max_tokens": tokens,
            "temperature": 0.0,
            **logprobs,
            **fields,
            **self.extra,
        }

    def _paths(self) -> Iterator[str]:
        wanted = {"completions": (TEXT,), "chat": (CHAT,)}.get(self._api, (TEXT, CHAT))
        refusals = []
        for path in wanted:
            try:
                self._probe(path, {})
                yield path
            except (Refused, Failed) as refusal:
                refusals.append(f"{path}: {refusal}")
        if len(refusals) == len(wanted):
            raise DraftwoodError(
                f"{self.client.url} answers no request of one token ({'; '.join(refusals)})"
            )

    def _neutral(self, path: str) -> dict[str, Any]:
        every = {name: values[0] for name, values in NEUTRAL.items()}
        if self._takes(path, every):
            return every
        found = {}
        for name, values in NEUTRAL.items():
            value = next((each for each in values if self._takes(path, {name: each})), None)
            if value is not None:
                found[name] = value
        return found

    def _tops(self, path: str, neutral: Mapping[str, Any]) -> int | None:
        for tops in _TOPS:
            try:
                answer = self._probe(path, neutral, tops)
            except (Refused, Failed):
                continue
            return tops if answer.first.tokens and answer.first.tokens[0].top else None
        return None

    def _takes(self, path: str, fields: Mapping[str, Any]) -> bool:
        try:
            self._probe(path, fields)
        except (Refused, Failed):  # llama-cpp-python answers a value out of range with status 500
            return False
        return True

    def _probe(self, path: str, fields: Mapping[str, Any], tops: int | None = None) -> Answer:
        return self._answer(path, self._body(path, Prompt("probe", "Once"), 1, tops, fields))

"""The engine's requests, from the fields of the API."""

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.grammars.grammar import Grammar
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.params import SamplingParams
from draftwood.server.errors import bad_request, refused
from draftwood.server.schemas.fields import SamplingFields
from draftwood.server.settings import SAMPLING, ServeSettings
from draftwood.server.structured import grammar_of

_OPENAI: Mapping[str, float] = {"temperature": 1.0}
"""Where the API's defaults are not those of :class:`SamplingParams`."""

_WITHIN = {"presence_penalty": 2, "frequency_penalty": 2, "logit_bias": 100}
"""The API's bounds of what is added to logits."""

_STOPS, _LONGEST_STOP = 64, 1024
"""Most stop strings of a request, and most characters of each."""

MOST_LOGPROBS = 20
"""Most likely tokens that are reported at a place."""


@dataclass(frozen=True)
class Wanted:
    """What the two kinds of completions spell differently.

    Attributes:
        max_tokens: as the client gave it.
        default_tokens: if it gave none; None: what the context holds.
        logprobs: see :attr:`Request.logprobs`.
        prompt_field: the field that the prompt comes from.
        parses: the text will be parsed, so that special tokens have to be in it.
        tags: those that have to; None: all.
        grammar: of the text, unless the body names one.
        limit_field: the field that ``max_tokens`` comes from.
    """

    max_tokens: int | None
    default_tokens: int | None
    logprobs: int | None
    prompt_field: str
    parses: bool = False
    tags: Collection[int] | None = None
    grammar: Grammar | None = None
    limit_field: str = "max_tokens"


def requests_of(
    body: SamplingFields,
    prompts: Sequence[Sequence[int]],
    wanted: Wanted,
    settings: ServeSettings,
    eos: frozenset[int],
    owner: str = "",
) -> list[Request]:
    """A request for each choice of each prompt, ``n`` neighbours for one prompt.

    ``owner`` tells clients apart that share nothing.

    Raises:
        ApiError: a field cannot be honoured.
    """
    sampling, grammar = _sampling(body, settings), grammar_of(body) or wanted.grammar
    ends = frozenset(() if body.ignore_eos else eos) | frozenset(body.stop_token_ids or ())
    stop = _stop(body.stop or ())
    # A name as long as a body would be kept with everything that the user says.
    user = hashlib.sha256(body.user.encode()).hexdigest()[:32] if body.user else ""
    if body.min_tokens and grammar is not None:
        raise refused("min_tokens", "a text of a given form may end earlier")
    # What is parsed has its tags.
    shows_all = wanted.parses and wanted.tags is None
    skips = not shows_all and body.value("skip_special_tokens", True)
    shown = (wanted.tags or ()) if wanted.parses else ()
    found = []
    for ids in prompts:
        limit = _limit(len(ids), wanted, settings)
        if not 0 <= (body.min_tokens or 0) <= limit:
            raise bad_request(
                f"min_tokens is {body.min_tokens}: give 0 to {limit}, the most new tokens",
                "min_tokens",
            )
        request = Request(
            prompt=ids,
            max_new_tokens=limit,
            sampling=sampling,
            eos=ends,
            stop=stop,
            namespace=f"{owner}/{user}" if owner else user,
            logprobs=wanted.logprobs,
            grammar=grammar,
            speculate=body.value("speculate", True),
            min_new_tokens=body.min_tokens or 0,
            skip_special_tokens=skips,
            shown_special_tokens=shown,
        )
        # Without a seed, equal prompts have answers of their own.
        first = secrets.randbits(64) if body.seed is None else sampling.seed
        for choice in range(body.value("n", 1)):
            seed = (first + choice) % SEED_LIMIT
            found.append(replace(request, sampling=replace(sampling, seed=seed)))
    return found


def _stop(given: str | Sequence[str]) -> tuple[str, ...]:
    """The stop strings; each is looked for after every token."""
    found = (given,) if isinstance(given, str) else tuple(given)
    if len(found) > _STOPS:
        raise bad_request(f"stop has {len(found)} strings: at most {_STOPS}", "stop")
    if any(len(each) > _LONGEST_STOP for each in found):
        raise bad_request(f"a stop string has more than {_LONGEST_STOP} characters", "stop")
    return found


def _sampling(body: SamplingFields, settings: ServeSettings) -> SamplingParams:
    defaults = {**_OPENAI, **settings.sampling}
    given: dict[str, Any] = {
        name: value
        for name in (*SAMPLING, "presence_penalty", "frequency_penalty", "logit_bias")
        if (value := body.value(name, defaults.get(name))) is not None
    }
    for name, most in _WITHIN.items():
        values = given.get(name, 0)
        for value in values.values() if isinstance(values, dict) else (values,):
            if not -most <= value <= most:
                raise bad_request(f"{name} must be in [-{most}, {most}], but is {value}", name)
    top_k = int(given.get("top_k", 0))
    given["top_k"] = 0 if top_k == -1 else top_k  # as vLLM spells it
    seed = (body.seed or 0) % SEED_LIMIT
    for name, value in given.items():  # one at a time: an error names its field
        try:
            SamplingParams(**{name: value})
        except DraftwoodError as error:
            raise bad_request(str(error), name) from error
    return SamplingParams(**given, seed=seed)


def _limit(prompt: int, wanted: Wanted, settings: ServeSettings) -> int:
    """Most new tokens of a prompt of so many."""
    left = settings.context - prompt
    if left < 1:
        raise bad_request(
            f"the prompt has {prompt} tokens and the context holds {settings.context}, the answer "
            "included: shorten the prompt",
            wanted.prompt_field,
            "context_length_exceeded",
        )
    asked = wanted.default_tokens if wanted.max_tokens is None else wanted.max_tokens
    if asked is not None and asked < 1:
        name = wanted.limit_field
        raise bad_request(f"{name} is {asked}: ask for at least 1", name)
    return left if asked is None else min(asked, left)

"""Requests with mixed settings, as a client of OpenAI's API sends them.

The same seed makes the same requests. Prompts are parts of docs/bench.md. Several begin at the same
place of it, so that a server may share what it has computed of them.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from draftwood import Grammar, Request, SamplingParams

TEXT = Path(__file__).parents[1] / "docs" / "bench.md"
PLACES, LONGEST = 6, 300
"""Places of the text at which prompts begin, and most tokens of a prompt's part of it."""

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "people": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["city", "people"],
    "additionalProperties": False,
}
REGEX = r"[a-z]{2,8}( [a-z]{2,8}){2,9}\."
CHOICE = ["a method of the benchmark", "a model", "a prompt", "none of these"]
STOPS = ("\n\n", ". ", " the", "s a", "e")
SEEDS = 2**64
CHAT, TEXTS = "/v1/chat/completions", "/v1/completions"

KINDS = (
    *("chat", "completion", "token_ids", "greedy", "sampled", "filtered", "penalties"),
    *("logit_bias", "stop", "min_tokens", "json_schema", "regex", "choice", "not_drafted"),
    *("two_choices", "streamed", "whole", "cancelled", "logprobs", "token_sources"),
)
"""What a request may be; it is of several kinds."""


@dataclass(frozen=True)
class Mixed:
    """A request.

    Attributes:
        path: where it is posted.
        body: what is posted.
        cancelled_after: the client goes away after so many chunks with text; 0: it stays.
    """

    path: str
    body: Mapping[str, Any]
    cancelled_after: int = 0

    @property
    def kinds(self) -> frozenset[str]:
        """All kinds that it is of."""
        has = self.body.get
        form = has("response_format") or has("structured_outputs") or {}
        found = {
            "chat": self.path == CHAT,
            "completion": self.path == TEXTS,
            "token_ids": isinstance(has("prompt"), list),
            "greedy": has("temperature") == 0,
            "sampled": has("temperature") != 0,
            "filtered": (has("top_p"), has("top_k"), has("min_p")) != (1.0, 0, 0.0),
            "penalties": has("repetition_penalty") != 1 or "presence_penalty" in self.body,
            "json_schema": "json_schema" in form,
            "not_drafted": has("speculate") is False,
            "two_choices": has("n") == 2,
            "streamed": bool(has("stream")),
            "whole": not has("stream"),
            "cancelled": self.cancelled_after > 0,
        }
        named = ("logit_bias", "stop", "min_tokens", "logprobs", "token_sources")
        return frozenset(
            {kind for kind, of in found.items() if of}
            | {name for name in named if name in self.body}
            | {name for name in ("regex", "choice") if name in form}
        )


def mixed(count: int, seed: int, tokenizer: PreTrainedTokenizerBase) -> list[Mixed]:
    """So many requests; of ten, one is cancelled."""
    draw, ids = random.Random(seed), tokenizer.encode(TEXT.read_text(encoding="utf-8"))
    return [_mixed(draw, ids, tokenizer, cancelled=i % 10 == 7) for i in range(count)]


def request_of(
    asked: Mixed, choice: int, tokenizer: PreTrainedTokenizerBase, eos: frozenset[int]
) -> Request:
    """A choice as a request of an engine, by the public interface alone."""
    body, has = asked.body, asked.body.get
    prompt: Any = has("prompt")
    if asked.path == CHAT:
        text = tokenizer.apply_chat_template(
            list(body["messages"]), tokenize=False, add_generation_prompt=True
        )
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    elif isinstance(prompt, str):
        prompt = tokenizer(prompt)["input_ids"]
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    further = ("presence_penalty", "frequency_penalty")
    given = {name: body[name] for name in (*names, *further) if name in body}
    bias = {int(token): value for token, value in has("logit_bias", {}).items()}
    return Request(
        prompt,
        body["max_tokens"],
        SamplingParams(**given, logit_bias=bias, seed=(body["seed"] + choice) % SEEDS),
        eos=frozenset() if has("ignore_eos") else eos,
        stop=tuple(has("stop", ())),
        min_new_tokens=has("min_tokens", 0),
        skip_special_tokens=has("skip_special_tokens", True),
        grammar=_grammar(body),
    )


def _grammar(body: Mapping[str, Any]) -> Grammar | None:
    if "response_format" in body:
        return Grammar.json_schema(body["response_format"]["json_schema"]["schema"])
    form = body.get("structured_outputs", {})
    if "regex" in form:
        return Grammar.regex(form["regex"])
    return Grammar.choice(form["choice"]) if form else None


def _mixed(
    draw: random.Random, ids: list[int], tokenizer: PreTrainedTokenizerBase, *, cancelled: bool
) -> Mixed:
    start = draw.randrange(PLACES) * (len(ids) - LONGEST) // PLACES
    part = ids[start : start + draw.randint(4, LONGEST)]
    text = str(tokenizer.decode(part))
    chat, logprobs = draw.random() < 0.5, draw.random() < 0.4
    body: dict[str, Any] = {"max_tokens": draw.randint(8, 96), **dict(_sampling(draw))}
    if chat:
        # An answer is compared as the model wrote it: nothing of it is parsed.
        body |= {"messages": _conversation(draw, text), "skip_special_tokens": False}
    else:
        body["prompt"] = part if draw.random() < 0.3 else text
    if logprobs:
        body["logprobs"] = chat or 0
    else:
        body["token_sources"] = True
    if cancelled:
        body |= {"stream": True, "max_tokens": 96, "ignore_eos": True}
        return Mixed(CHAT if chat else TEXTS, body, draw.randint(1, 6))
    body |= dict(_form(draw))
    if draw.random() < 0.5:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if draw.random() < 0.15:
        body["n"] = 2
    return Mixed(CHAT if chat else TEXTS, body)


def _sampling(draw: random.Random) -> Iterator[tuple[str, Any]]:
    """Sampling parameters, those named that a model may bring defaults of."""
    sampled = draw.random() < 0.65
    yield "temperature", draw.choice((0.3, 0.7, 1.0, 1.3)) if sampled else 0
    yield "seed", draw.randrange(SEEDS)
    filtered = sampled and draw.random() < 0.6
    yield "top_p", draw.choice((0.6, 0.9)) if filtered else 1.0
    yield "top_k", draw.choice((0, 40)) if filtered else 0
    yield "min_p", draw.choice((0.0, 0.05)) if filtered else 0.0
    penalised = draw.random() < 0.25
    yield "repetition_penalty", draw.choice((1.0, 1.2)) if penalised else 1.0
    if penalised:
        yield "presence_penalty", draw.choice((-0.5, 0.6))
        yield "frequency_penalty", draw.choice((0.0, 0.4))
    if draw.random() < 0.2:
        bias = {str(draw.randrange(1, 2000)): draw.choice((-100, -3, 4)) for _ in range(8)}
        yield "logit_bias", bias
    if draw.random() < 0.15:
        yield "speculate", False
    if draw.random() < 0.3:
        yield "user", draw.choice("ab")


def _form(draw: random.Random) -> Iterator[tuple[str, Any]]:
    """What ends an answer, and what it must be."""
    kind = draw.choice(("json", "regex", "choice")) if draw.random() < 0.25 else ""
    if kind == "json":
        named = {"name": "city", "schema": SCHEMA}
        yield "response_format", {"type": "json_schema", "json_schema": named}
    elif kind == "regex":
        yield "structured_outputs", {"regex": REGEX}
    elif kind == "choice":
        yield "structured_outputs", {"choice": CHOICE}
    elif draw.random() < 0.3:
        yield "stop", draw.sample(STOPS, 2)
    if not kind and draw.random() < 0.15:
        yield "min_tokens", draw.randint(2, 8)


def _conversation(draw: random.Random, text: str) -> list[dict[str, str]]:
    """Messages of one or two turns."""
    found = [{"role": "user", "content": f"What does this mean?\n{text}"}]
    if draw.random() < 0.3:
        found.insert(0, {"role": "system", "content": "Answer in one sentence."})
    if draw.random() < 0.3:
        found += [
            {"role": "assistant", "content": "It is about a benchmark."},
            {"role": "user", "content": "Of what?"},
        ]
    return found

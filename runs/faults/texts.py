"""Prompts that are told apart by their answers, and the text that each must get."""

from dataclasses import dataclass

import draftwood
from draftwood import Engine, Request

SHORT, LONG = 4, 200
_SUBJECTS = ("ship", "river", "teacher", "garden", "winter", "letter", "market", "doctor", "window")
_BEGINNINGS = (
    "The {} was",
    "def {}(self,",
    "Once, a {}",
    "class {}(",
    "In the {} there",
    "A {} is",
)


@dataclass(frozen=True)
class Text:
    """A prompt, and what plain decoding answers: by number of tokens, which no end token cuts."""

    prompt: str
    answers: dict[int, str]


def texts(count: int) -> list[Text]:
    """Prompts whose first tokens differ, decoded plainly in this process."""
    model, tokenizer = draftwood.embedded()
    prompts = [each.format(word) for word in _SUBJECTS for each in _BEGINNINGS]
    engine = Engine(model, "ar", tokenizer, max_batch=16)
    found: dict[str, str] = {}
    for prompt, done in zip(prompts, _decoded(engine, prompts, SHORT), strict=True):
        found.setdefault(done, prompt)
    chosen = list(found.values())[:count]
    long = _decoded(engine, chosen, LONG)
    short = {prompt: text for text, prompt in found.items()}
    return [
        Text(prompt, {SHORT: short[prompt], LONG: text})
        for prompt, text in zip(chosen, long, strict=True)
    ]


def _decoded(engine: Engine, prompts: list[str], tokens: int) -> list[str]:
    # No token ends an answer, as the servers are asked to ignore_eos (runs.faults.asking.GREEDY).
    requests = [Request(prompt, tokens, eos=()) for prompt in prompts]
    return [done.checked().text for done in engine.generate(requests)]

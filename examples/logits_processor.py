"""A logits processor of your own: a text without the letter e.

    python examples/logits_processor.py [MODEL]

``generate`` takes it as ever, and each drafted token is scored as plain decoding of its path would
score it. The engine takes it in a request's ``sampler``. Tokens that are never to be chosen need no
processor there: ``SamplingParams(banned_tokens=...)`` does the same.
"""

import sys
from typing import Any, ClassVar

import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase

import draftwood
from draftwood import Engine, Request, SamplingParams
from draftwood.sampling.sampler import Sampler

PROMPT = "A ship was on its way to"
LETTER = "e"


class Lipogram(LogitsProcessor):
    """Forbids all tokens that have a letter in them."""

    keeps_state: ClassVar = False  # its scores depend on its arguments alone

    def __init__(self, tokenizer: PreTrainedTokenizerBase, letter: str) -> None:
        special = set(tokenizer.all_special_ids)
        vocabulary = tokenizer.get_vocab().items()
        self.banned = sorted(i for text, i in vocabulary if letter in text and i not in special)

    def __call__(self, _: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores float ``[B, V]``, whatever the tokens before are."""
        banned = torch.tensor(self.banned, device=scores.device)
        return scores.index_fill(1, banned, -torch.inf)


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    processor = Lipogram(tokenizer, LETTER)
    inputs = tokenizer(PROMPT, return_tensors="pt").to(model.device)
    settings = {
        **inputs,
        "max_new_tokens": 40,
        "do_sample": False,
        "logits_processor": LogitsProcessorList([processor]),
    }
    expected = model.generate(**settings)[0, inputs["input_ids"].shape[1] :].tolist()

    ids = model.generate(**settings, custom_generate=draftwood.auto())
    tokens = ids[0, inputs["input_ids"].shape[1] :].tolist()
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    print(f"{text!r}\nthe letter {LETTER!r} is in it: {LETTER in text}")

    engine = Engine(model, "auto", tokenizer)
    asked = [
        Request(PROMPT, 40, sampler=Sampler.from_processors([processor], temperature=0)),
        Request(PROMPT, 40, SamplingParams(banned_tokens=tuple(processor.banned))),
    ]
    found = [list(done.checked().tokens) for done in engine.generate(asked)]
    print(f"same tokens: {tokens == expected and found == [expected, expected]}")


if __name__ == "__main__":
    main()

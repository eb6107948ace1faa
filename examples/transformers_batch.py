"""A batch of prompts of different lengths in one call of ``model.generate``.

    python examples/transformers_batch.py [MODEL]

``draftwood.generate`` takes the texts themselves and pads them. ``model.generate`` takes what your
tokenizer has padded on the left. A row does not wait for the others: each has its own tree, and the
trees of a step are scored in one forward.
"""

import sys
from typing import Any

import torch

import draftwood
from draftwood import Completion

PROMPTS = [
    "The ship left the harbour at dawn. The ship",
    "Once upon a time",
    "def mean(values):",
]


def report(completions: list[Completion]) -> None:
    for completion in completions:
        tally = completion.tally
        print(f"{len(completion.tokens)} tokens, {tally.mean_acceptance_length:.2f} a call")


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    settings = {"max_new_tokens": 32, "do_sample": False, "pad_token_id": pad}

    ids: Any = draftwood.generate(model, PROMPTS, tokenizer=tokenizer, on_finish=report, **settings)
    for row in ids:
        print(repr(tokenizer.decode(row, skip_special_tokens=True)))

    tokenizer.pad_token_id, tokenizer.padding_side = pad, "left"
    inputs = tokenizer(PROMPTS, padding=True, return_tensors="pt").to(model.device)
    padded = model.generate(**inputs, **settings, custom_generate=draftwood.auto())
    expected = model.generate(**inputs, **settings)
    print(f"same tokens: {torch.equal(ids, expected) and torch.equal(padded, expected)}")
    draftwood.detach(model)


if __name__ == "__main__":
    main()

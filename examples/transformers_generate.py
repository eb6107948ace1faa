"""The same tokens from ``model.generate``, in fewer calls of the model.

Run:  python examples/transformers_generate.py [MODEL]

MODEL is a directory or a hub id; without one the model that ships with Draftwood is used.
"""

import sys
from typing import Any

import torch

import draftwood
from draftwood import Completion

PROMPT = "The ship left the harbour at dawn. The ship"


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    inputs = tokenizer(PROMPT, return_tensors="pt").to(model.device)
    settings = {"max_new_tokens": 64, "do_sample": False}

    expected = model.generate(**inputs, **settings)

    def report(completions: list[Completion]) -> None:
        tally = completions[0].tally
        sys.stdout.write(
            f"{tally.committed} tokens in {tally.steps} calls of the model: "
            f"{tally.mean_acceptance_length:.2f} tokens a call\n"
        )

    found = model.generate(**inputs, **settings, custom_generate=draftwood.auto(), on_finish=report)
    sys.stdout.write(f"{tokenizer.decode(found[0])}\n")
    sys.stdout.write(f"same as generate: {torch.equal(found, expected)}\n")
    draftwood.detach(model)


if __name__ == "__main__":
    main()

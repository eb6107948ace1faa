"""One more argument of ``model.generate``: the same tokens, in fewer calls of the model.

    python examples/transformers_generate.py [MODEL]

MODEL is a directory or a hub id; without one the model that ships with Draftwood is used.
"""

import sys
from typing import Any

import torch

import draftwood
from draftwood import Completion

PROMPT = "The ship left the harbour at dawn. The ship"


def report(completions: list[Completion]) -> None:
    tally = completions[0].tally
    print(
        f"{tally.committed} tokens in {tally.steps} calls of the model: "
        f"{tally.mean_acceptance_length:.2f} tokens a call"
    )


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    inputs = tokenizer(PROMPT, return_tensors="pt").to(model.device)
    settings = {"max_new_tokens": 64, "do_sample": False}
    expected = model.generate(**inputs, **settings)

    found = model.generate(**inputs, **settings, custom_generate=draftwood.auto(), on_finish=report)

    print(tokenizer.decode(found[0], skip_special_tokens=True))
    print(f"same tokens as without it: {torch.equal(found, expected)}")
    draftwood.detach(model)


if __name__ == "__main__":
    main()

"""A smaller model that drafts.

    python examples/draft_model.py [MODEL SMALL]

Without arguments: the embedded model, and the smaller one that ships beside it. ``auto`` drafts
with the small model where that pays. ``talon`` always does.
"""

import sys

import draftwood
from draftwood import Engine, Request, SamplingParams

PROMPT = "Question: A baker makes 12 trays of rolls with 8 rolls on each tray."


def main() -> None:
    big, small = sys.argv[1:3] if len(sys.argv) > 2 else ("embedded", "embedded-draft")
    loaded = draftwood.load(big)
    methods = {
        "plain": draftwood.ar(),
        "talon": draftwood.talon(draft=small, budget=16),
        "auto": draftwood.auto(draft=small),
    }
    requests = [
        Request(PROMPT, 48),
        Request(PROMPT, 48, SamplingParams(temperature=0.8, seed=7)),
    ]
    tokens = []
    for name, method in methods.items():
        done = Engine(loaded.model, method, loaded.tokenizer).generate(requests)
        tokens.append([each.checked().tokens for each in done])
        tally = done[0].tally
        print(
            f"{name}: {tally.mean_acceptance_length:.2f} tokens a step, "
            f"{tally.draft_efficiency:.2f} forwards of the small model a step"
        )
    print(f"same tokens: {tokens[0] == tokens[1] == tokens[2]}")


if __name__ == "__main__":
    main()

"""An EAGLE-3 head that drafts from the model's own hidden states.

    python examples/eagle3_head.py [MODEL HEAD]

Without arguments: the embedded model, and the head that ships beside it. HEAD is a directory or a
hub id in one of the published layouts (docs/transformers.md); ``draftwood train eagle3`` trains
one.
"""

import sys

import draftwood
from draftwood import Engine, Request

PROMPT = "def mean(values):\n    return"


def main() -> None:
    name, head = sys.argv[1:3] if len(sys.argv) > 2 else ("embedded", "embedded-eagle3")
    loaded = draftwood.load(name)
    methods = {
        "plain": draftwood.ar(),
        "the head's tree": draftwood.eagle3(head=head, budget=16),
        "a spine copied from the text, with the head's branches": draftwood.goose_eagle3(
            head=head, budget=16
        ),
    }
    tokens = []
    for kind, method in methods.items():
        [done] = Engine(loaded.model, method, loaded.tokenizer).generate([Request(PROMPT, 48)])
        tokens.append(done.checked().tokens)
        print(f"{kind}: {done.tally.mean_acceptance_length:.2f} tokens a step")
        for source, drafted in done.tally.drafted_by_source.items():
            accepted = done.tally.accepted_by_source[source]
            print(f"  {source}: {accepted} of {drafted} drafted tokens accepted")
    print(f"same tokens: {tokens[0] == tokens[1] == tokens[2]}")


if __name__ == "__main__":
    main()

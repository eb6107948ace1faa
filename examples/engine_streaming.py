"""The engine's stream: new text with the source of each token, and statistics of each step.

    python examples/engine_streaming.py [MODEL]

Accepted drafted tokens are in brackets. The others are the model's own: one in every step.
"""

import sys

from draftwood import Delta, Engine, Finished, Request, Stepped

PROMPT = "The ship left the harbour at dawn. The ship"
METHOD = "auto"


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "embedded"
    engine = Engine.load(name, METHOD)
    drafted: list[int] = []
    found: tuple[int, ...] = ()
    for event in engine.stream([Request(PROMPT, 64)]):
        if isinstance(event, Delta):
            for piece, accepted in zip(event.pieces, event.accepted, strict=True):
                print(f"[{piece}]" if accepted else piece, end="", flush=True)
        elif isinstance(event, Stepped):
            drafted.append(event.stats.tree.drafted)
        elif isinstance(event, Finished):
            done = event.completion.checked()
            found = done.tokens
            print(f"\nended by {done.reason!r} after {done.tally.steps} steps")
            print(f"{done.tally.mean_acceptance_length:.2f} tokens a step")
            print(f"first token after {done.ttft * 1e3:.0f} ms, then {done.tpot * 1e3:.1f} ms each")
    print(f"nodes drafted in each step: {drafted}")

    # Engines on one model share what attaching it has made.
    [plain] = Engine(engine.target, "ar", engine.tokenizer).generate([Request(PROMPT, 64)])
    print(f"same tokens as plain decoding: {found == plain.tokens}")


if __name__ == "__main__":
    main()

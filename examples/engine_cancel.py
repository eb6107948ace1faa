"""A loop of one's own around the engine: a queue, and a request that is cancelled.

    python examples/engine_cancel.py [MODEL]

``add`` puts a request into the queue, ``step`` decodes once for all that run, and ``cancel`` ends
one of them. A server does no more than this.
"""

import sys

from draftwood import Delta, Engine, Finished, Request

PROMPTS = ["The ship left the harbour. The ship", "Once upon a time", "def mean(values):"]


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "embedded"
    engine = Engine.load(name, "goose:budget=16", max_batch=2)
    numbers = [engine.add(Request(prompt, 48, eos=())) for prompt in PROMPTS]
    unwanted = numbers[0]
    texts = dict.fromkeys(numbers, "")
    reasons: dict[int, str] = {}
    most = 0
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Delta):
                texts[event.request_id] += "".join(event.pieces)
            elif isinstance(event, Finished):
                reasons[event.request_id] = event.completion.reason
        most = max(most, engine.running)
        if len(texts[unwanted]) > 40:
            ended = engine.cancel(unwanted)  # None once it has ended
            if ended is not None:
                reasons[unwanted] = ended.completion.reason
    for number in numbers:
        print(f"{reasons[number]}: {texts[number]!r}")
    print(f"at most {most} ran at once")


if __name__ == "__main__":
    main()

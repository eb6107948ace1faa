"""Requests of different kinds, decoded together by one engine.

    python examples/engine_batch.py [MODEL]

Each request has its own length, sampling, seed, stop strings and log probabilities. Its tokens are
those that it has alone.
"""

import sys

from draftwood import Engine, Request, SamplingParams

REQUESTS = {
    "greedy": Request("The ship left the harbour. The ship", 32),
    "sampled": Request("Once upon a time", 32, SamplingParams(temperature=0.8, top_p=0.95, seed=1)),
    "stopped": Request("One day the king said to his men:", 32, stop=(",",)),
    "with log probabilities": Request("def mean(values):", 24, logprobs=2),
    "decoded plainly": Request("def mean(values):", 24, speculate=False),
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "embedded"
    engine = Engine.load(name, "goose:budget=16")

    together = engine.generate(list(REQUESTS.values()))

    for kind, done in zip(REQUESTS, together, strict=True):
        length = done.checked().tally.mean_acceptance_length
        print(f"{kind} ({done.reason}, {length:.2f} tokens a step): {done.text!r}")
    first = together[3].logprobs[0]
    print(f"log probability of the first token: {first.logprob:.2f}")
    alone = [engine.generate([request])[0] for request in REQUESTS.values()]
    same = [a.tokens == b.tokens for a, b in zip(together, alone, strict=True)]
    print(f"same tokens alone: {all(same)}")


if __name__ == "__main__":
    main()

"""Trains an EAGLE-3 head until its held-out accuracy stops to rise, then lowers the rates.

Usage: python runs/smollm2/head.py OUT [--least 2250000] [--hours 12] -- ARGUMENTS

ARGUMENTS are those of `draftwood train eagle3`, without --out, --tokens and --stop-after. The head
is trained at constant rates and judged after every 0.5 million tokens: the share of held-out
positions of the domain `answers` whose first drafted token is the target's. When two judgements
differ by less than 0.005, or the hours are over, the last quarter of the training follows, in which
the rates fall. Each judgement is a line of OUT/curve.jsonl. Stopped at any point, the command goes
on when called again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

EVERY = 500_000
"""Tokens between judgements."""

GAIN = 0.005
"""Rise of the accuracy below which training ends."""

FALLING = 0.25
"""Share of all updates, the last ones, with falling rates."""

ROWS, LENGTH = 1, 1024
CONSTANT = 10**10
"""Total tokens that put the falling rates out of reach."""


def train(out: Path, tokens: int, stop_after: int | None, arguments: list[str]) -> dict[str, Any]:
    """Train on to ``tokens`` or for ``stop_after`` updates; returns the provenance."""
    words = [sys.executable, "-m", "draftwood", "train", "eagle3", "--out", str(out)]
    words += ["--tokens", str(tokens), "--decay-share", str(FALLING), *arguments]
    words += ["--rows", str(ROWS), "--length", str(LENGTH)]
    words += [] if stop_after is None else ["--stop-after", str(stop_after)]
    subprocess.run(words, check=True)
    found: dict[str, Any] = json.loads((out / "eagle3/model/provenance.json").read_text())
    return found


def updates_of(out: Path) -> int:
    """Updates in the run's checkpoint, which may be past the last judgement."""
    path = out / "eagle3/checkpoint.pt"
    if not path.exists():
        return 0
    return int(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["step"])


def judged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def settled(curve: list[dict[str, Any]], least: int, hours: float) -> bool:
    """Whether the constant rates have given what they can."""
    if not curve or curve[-1]["tokens"] < least:
        return False
    late = curve[-1]["wall_seconds"] >= hours * 3600 * (1 - FALLING)
    return late or (len(curve) > 1 and curve[-1]["first"] - curve[-2]["first"] < GAIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--least", type=int, default=2_250_000, help="tokens at constant rates")
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("arguments", nargs="+")
    given = parser.parse_args()
    path = given.out / "curve.jsonl"
    batch = ROWS * LENGTH
    while not settled(judged(path), given.least, given.hours):
        wanted = (judged(path)[-1]["updates"] if judged(path) else 0) + EVERY // batch
        left = max(1, wanted - updates_of(given.out))
        record = train(given.out, CONSTANT, left, given.arguments)
        trained, held_out = record["trained"], record["held_out"]["answers"]
        if trained["updates"] < wanted:
            raise SystemExit("interrupted; call again to go on")
        line = {name: trained[name] for name in ("updates", "tokens", "wall_seconds")}
        line |= {"first": held_out["greedy"][0], "accepted": held_out["accepted_tokens"]}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    updates = round(judged(path)[-1]["updates"] / (1 - FALLING))
    train(given.out, updates * batch, None, given.arguments)


if __name__ == "__main__":
    main()

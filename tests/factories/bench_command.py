"""Runs ``draftwood bench``, and writes two small sets of prompts for it."""

import json
from pathlib import Path

from tests.factories.command_line import run


def bench(*argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``draftwood bench ARGV``."""
    return run("bench", "--max-new-tokens", "16", *argv)


def two_sets(place: Path) -> str:
    """Two texts to be continued and a dialogue, in ``place``, as ``--prompts`` takes them."""
    plain = [
        {"id": f"c/{i}", "task": "code", "prompt": f"abc{i} abc{i} ", "completion": True}
        for i in range(2)
    ]
    talk = [{"id": "m/0", "task": "chat", "turns": ["Say abc.", "Again."]}]
    for name, items in (("code", plain), ("talk", talk)):
        lines = "\n".join(json.dumps(item) for item in items)
        (place / f"{name}.jsonl").write_text(lines)
    return f"{place / 'code.jsonl'},{place / 'talk.jsonl'}"

"""What tests of the subcommand share: a call of it, and two small sets of prompts."""

import json
from pathlib import Path

from click.testing import CliRunner

from draftwood import cli


def run(*argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``draftwood bench ARGV``."""
    runner = CliRunner()
    with runner.isolation() as streams:
        code = 0
        try:
            cli.main(["bench", "--max-new-tokens", "16", *argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, streams[0].getvalue().decode(), streams[1].getvalue().decode()


def two_sets(place: Path) -> str:
    """Two plain prompts and a dialogue, written into ``place``, as ``--prompts`` takes them."""
    plain = [{"id": f"c/{i}", "task": "code", "prompt": f"abc{i} abc{i} "} for i in range(2)]
    talk = [{"id": "m/0", "task": "chat", "turns": ["Say abc.", "Again."]}]
    for name, items in (("code", plain), ("talk", talk)):
        lines = "\n".join(json.dumps(item) for item in items)
        (place / f"{name}.jsonl").write_text(lines)
    return f"{place / 'code.jsonl'},{place / 'talk.jsonl'}"

"""Peak resident memory of one generation, by method; every method in a process of its own.

Prints one JSON object.

    python runs/peak_memory.py --methods ar,sd,fixed-tree,dynatree,eagle3,talon:drafter=eagle3
"""

import json
import os
import subprocess
import sys

import click

from draftwood.lab.bench.provenance import provenance

PROMPT = "def quicksort(values):\n"


def peak(model: str, dtype: str, method: str, tokens: int) -> dict[str, object]:
    """Peak megabytes of a process, and the number of tokens that it generated."""
    name, *settings = method.split(":")
    flags = [part for item in settings for part in ("--" + item).split("=", 1)]
    command = [sys.executable, "-m", "draftwood", "generate", PROMPT, "--method", name, *flags]
    command += ["--model", model, "--dtype", dtype, "--max-new-tokens", str(tokens), "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise click.ClickException(f"{method} ended with exit code {child.returncode}")
    return {"peak_mb": usage.ru_maxrss / 1024, "tokens": len(json.loads(printed)["tokens"])}


@click.command()
@click.option("--model", default="embedded", show_default=True)
@click.option("--dtype", default="auto", show_default=True)
@click.option("--methods", required=True, help="Separated by commas, as for bench.")
@click.option("--tokens", default=512, show_default=True)
def main(model: str, dtype: str, methods: str, tokens: int) -> None:
    """Measure and print."""
    found = {method: peak(model, dtype, method, tokens) for method in methods.split(",")}
    facts = provenance(model={"name": model, "dtype": dtype}, settings={"tokens": tokens}, sets=[])
    click.echo(json.dumps({"provenance": facts, "peak_memory": found}, indent=1))


if __name__ == "__main__":
    main()

"""What a server does when clients, requests or the model fail: ``draftwood serve embedded``.

Each case sends requests and does harm; then /health and a normal request are asked for. Every
answer is compared with the text that plain decoding in this process gives its prompt. A case passes
if no request is left without an answer, no answer has another text than its own, the server is idle
afterwards, and the case's own bounds of time and memory hold.

Prints one JSON object. Linux: memory is read from /proc.

    python runs/server_faults.py --only half_open --only bombs
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import click
import httpx

from runs.faults import cases, ends
from runs.faults.asking import Tally, client_of
from runs.faults.server import Server
from runs.faults.texts import SHORT, Text, texts

Case = Callable[[Any, list[Text], int], Awaitable[tuple[Tally, dict[str, Any]]]]

SHARED: dict[str, tuple[Case, int]] = {
    "killed_clients": (cases.killed_clients, 8),
    "half_open": (cases.half_open, 1000),
    "bodies": (cases.bodies, 0),
    "bombs": (cases.bombs, 0),
    "over_the_context": (cases.over_the_context, 0),
    "long_run": (cases.long_run, 10_000),
}
"""Cases on one server, and their sizes."""

OWN: dict[str, tuple[Case, int, tuple[str, ...]]] = {
    "little_memory": (ends.little_memory, 8, ("--memory", "12MB")),
    "full_queue": (ends.full_queue, 6, ("--max-batch", "4", "--max-queue", "2")),
    "terminated": (ends.terminated, 12, ("--max-batch", "4")),
}
"""Cases with a server of their own, and its flags."""


async def judged(server: Server | None, case: Case, known: list[Text], size: int) -> dict[str, Any]:
    """The figures of a case and what the server is like afterwards."""
    before = server.memory() if server else None
    tally, seen = await case(server, known, size)
    found: dict[str, Any] = {**tally.figures(), **seen}
    faults = [name for name in ("unanswered", "foreign") if found[name]]
    faults += [] if seen.get("within", True) else ["out of bounds"]
    if seen.get("taken"):
        faults.append("bodies were taken")
    if server and server.process.poll() is None:
        after = Tally()
        async with client_of(server.url) as client:
            await after.ask(client, known[0], SHORT)
        idle = await asyncio.to_thread(server.idle)
        status = httpx.get(f"{server.url}/health", timeout=60).status_code
        found |= {
            "memory_mb": [before, server.memory()],
            "health": status,
            "afterwards": server.figures(),
        }
        if not idle or status != httpx.codes.OK or after.answered != 1 or after.foreign:
            faults.append("not well afterwards")
    elif server and server.process.returncode not in (0, None):
        faults.append(f"the server ended: {server.process.returncode}")
    return found | {"verdict": f"failed: {', '.join(faults)}" if faults else "passed"}


@click.command()
@click.option("--only", multiple=True, help="Names of cases; all by default.")
@click.option("--requests", default=10_000, show_default=True, help="Of the long run.")
@click.option("--connections", default=1000, show_default=True, help="Half-open ones.")
def main(only: tuple[str, ...], requests: int, connections: int) -> None:
    """Put a server through faults."""
    names = [*SHARED, *OWN, "failing_model"]
    for name in only:
        if name not in names:
            raise click.UsageError(f"there is no case {name}: {', '.join(names)}")
    chosen = [name for name in names if not only or name in only]
    sizes = {"half_open": connections, "long_run": requests}
    known, found = texts(24), {}

    def run(name: str, server: Server | None, case: Case, size: int) -> None:
        found[name] = asyncio.run(judged(server, case, known, sizes.get(name, size)))
        click.echo(json.dumps({name: found[name]}), err=True)  # not lost if a later one hangs

    if any(name in SHARED for name in chosen):
        with Server() as server:
            for name in chosen:
                if name in SHARED:
                    run(name, server, *SHARED[name])
    for name in chosen:
        if name in OWN:
            case, size, flags = OWN[name]
            with Server(*flags) as server:
                run(name, server, case, size)
    if "failing_model" in chosen:
        run("failing_model", None, ends.failing_model, 4)
    click.echo(json.dumps(found))
    if any(each["verdict"] != "passed" for each in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""One engine for many coroutines: their streams, and one that is given up.

    python examples/engine_asyncio.py [MODEL]

An ``EngineThread`` decodes on a thread of its own. It reports what happens to a request to the
request's callback, on that thread; the callback hands it to the event loop. ``draftwood serve``
works in this way.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from draftwood import Completion, Delta, Engine, Finished, Request
from draftwood.engine.thread import EngineThread, Failed, Report

PROMPTS = ["The ship left the harbour. The ship", "Once upon a time", "def mean(values):"]


async def reports(thread: EngineThread, request: Request) -> AsyncGenerator[Report, None]:
    """What happens to a request. Closing the generator ends the request."""
    loop, found = asyncio.get_running_loop(), asyncio.Queue[Report]()

    def told(_: int, report: Report) -> None:
        loop.call_soon_threadsafe(found.put_nowait, report)

    [ticket] = thread.submit([request], told)
    try:
        while True:
            report = await found.get()
            if isinstance(report, Failed):
                raise report.error
            yield report
            if isinstance(report, Finished):
                return
    finally:
        thread.cancel(ticket)  # nothing happens if it has ended


async def answer(thread: EngineThread, request: Request, enough: int) -> Completion | None:
    """The whole answer; None if it is given up after so many characters."""
    text = ""
    async with aclosing(reports(thread, request)) as stream:
        async for report in stream:
            if isinstance(report, Delta):
                text += "".join(report.pieces)
                if len(text) > enough:
                    print(f"given up: {text!r}")
                    return None
            if isinstance(report, Finished):
                print(f"{report.completion.reason}: {text!r}")
                return report.completion.checked()
    raise AssertionError("a request ends with its completion, or with an error")


async def answers(thread: EngineThread, requests: list[Request]) -> list[Completion | None]:
    """Answers of all requests, which run together; the last one is given up."""
    enough = [10_000] * (len(requests) - 1) + [40]
    return await asyncio.gather(
        *(answer(thread, *each) for each in zip(requests, enough, strict=True))
    )


def main() -> None:
    engine = Engine.load(sys.argv[1] if len(sys.argv) > 1 else "embedded")
    requests = [Request(prompt, 48, eos=()) for prompt in PROMPTS]
    thread = EngineThread(engine)
    try:
        found = asyncio.run(answers(thread, requests))
    finally:
        thread.close()

    plain = Engine(engine.target, "ar", engine.tokenizer).generate(requests)
    same = all(
        mine.tokens == theirs.tokens
        for mine, theirs in zip(found, plain, strict=True)
        if mine is not None
    )
    print(f"{found.count(None)} of {len(found)} given up")
    print(f"same tokens as plain decoding: {same}")


if __name__ == "__main__":
    main()

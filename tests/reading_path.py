"""``python -m tests.reading_path`` lists the files that a plain decode runs through.

The decode is ``pld`` (the context drafter, the chain policy and the walk verifier) on the embedded
model, greedily. A file counts if one of its functions runs after the engine was built; a file that
is only imported does not. The README states the length of this list, and a test checks it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import draftwood

PACKAGE = Path(draftwood.__file__).parent
PROMPT = "the cat sat on the mat and the cat sat on the"


def reading_path() -> list[Path]:
    """The files, sorted, relative to the package."""
    from draftwood import Engine, Request

    model, tokenizer = draftwood.embedded()
    engine = Engine(model, "pld", tokenizer)
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        engine.generate([Request(PROMPT, max_new_tokens=16)])
    finally:
        sys.setprofile(None)
    paths = (Path(name) for name in seen)
    return sorted(p.relative_to(PACKAGE) for p in paths if p.is_relative_to(PACKAGE))


def lines(paths: Sequence[Path]) -> int:
    """Lines of the files, blank ones and docstrings included."""
    return sum(len((PACKAGE / path).read_text(encoding="utf-8").splitlines()) for path in paths)


if __name__ == "__main__":
    found = reading_path()
    for path in found:
        sys.stdout.write(f"{lines([path]):5} {path}\n")
    sys.stdout.write(f"{lines(found):5} lines in {len(found)} files\n")

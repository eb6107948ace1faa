"""``python tests/installed.py PYTHON`` tries an installed Draftwood, away from the repository.

PYTHON is the interpreter of the environment in which it is installed. This script needs nothing but
the standard library, so that the environment may hold no more than the wheel and what it requires.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROMPT = "The ship left the harbour. The ship"
TOKENS = 8


def failures(
    python: Path, outside: Path, checks: Mapping[str, Callable[[Path, Path], str]] | None = None
) -> list[str]:
    """What does not work, a line each; none if all does.

    Args:
        python: of the environment; its command ``draftwood`` is beside it.
        outside: an empty directory outside of the repository, in which everything runs.
        checks: functions of both, which return a complaint or "", by name; None: all.
    """
    found = []
    for name, check in (CHECKS if checks is None else checks).items():
        try:
            complaint = check(python, outside)
        except subprocess.CalledProcessError as error:
            complaint = f"exit code {error.returncode}: {error.stderr.strip()[-500:]}"
        if complaint:
            found.append(f"{name}: {complaint}")
    return found


def imported(python: Path, outside: Path) -> str:
    """Whether the package is that of the environment."""
    home = Path(_output(outside, python, "-c", "import draftwood; print(draftwood.__file__)"))
    inside = home.is_relative_to(ROOT) or not home.is_relative_to(python.parents[1])
    return f"{home} is not the installed package" if inside else ""


def version(python: Path, outside: Path) -> str:
    """Whether the command says the repository's version."""
    source = (ROOT / "draftwood/__init__.py").read_text(encoding="utf-8")
    [number] = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    first = _draftwood(python, outside, "--version").partition("\n")[0]
    return "" if first == f"draftwood, version {number}" else f"it says {first!r}"


def methods(python: Path, outside: Path) -> str:
    """Whether the command lists methods."""
    listed = _draftwood(python, outside, "methods")
    lacking = [name for name in ("ar", "auto", "goose", "traversal") if f"{name} " not in listed]
    return f"it does not list {', '.join(lacking)}" if lacking else ""


def generated(python: Path, outside: Path) -> str:
    """Whether the command continues a text with the embedded model."""
    limit = ("--max-new-tokens", str(TOKENS))
    text = _draftwood(python, outside, "generate", "def quicksort(", *limit, "--json")
    count = len(json.loads(text)["tokens"])
    return "" if count == TOKENS else f"{count} tokens instead of {TOKENS}"


def readme(python: Path, outside: Path) -> str:
    """Whether the example of the README prints a longer text than its prompt."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    text = _output(outside, python, "-c", code)
    return "" if text.startswith(PROMPT) and len(text) > len(PROMPT) else f"it prints {text!r}"


def _draftwood(python: Path, outside: Path, *argv: str) -> str:
    return _output(outside, python.parent / "draftwood", *argv)


def _output(outside: Path, *command: str | Path) -> str:
    """Standard output of a command that must succeed, without white space around it."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    shown = {name: value for name, value in os.environ.items() if name not in hidden}
    own = {"DRAFTWOOD_CACHE": str(outside / "cache"), "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=outside,
        env=shown | own,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.strip()


CHECKS: Mapping[str, Callable[[Path, Path], str]] = {
    "import draftwood": imported,
    "draftwood --version": version,
    "draftwood methods": methods,
    "draftwood generate": generated,
    "the README's Python": readme,
}


def main() -> int:
    """Print what fails; the exit code is 1 if anything does."""
    python = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as outside:
        found = failures(python, Path(outside))
    print("\n".join(found) or "The installed Draftwood works.")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

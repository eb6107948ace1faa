"""A newcomer reads the whole mechanism in one sitting: the path there stays short."""

from pathlib import Path

import draftwood

PACKAGE = Path(draftwood.__file__).parent
PATH = (
    "tree.py",
    "protocols.py",
    "sampling.py",
    "registry.py",
    "engine.py",
    "target/runner.py",
    "target/cache.py",
    "drafters/context.py",
    "policies/chain.py",
    "verifiers/walk.py",
)


def test_reading_path_is_short() -> None:
    lines = [line for name in PATH for line in (PACKAGE / name).read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) < 1500


def test_files_are_small() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 300 or path.name == "protocols.py", path

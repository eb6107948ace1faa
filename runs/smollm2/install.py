"""Copies a part of SmolLM2's drafts into the package, with how it was made.

Usage: python runs/smollm2/install.py PART SOURCE ASSETS COMMAND...

PART is table.safetensors, calibration.json or head; SOURCE is the file or directory that COMMAND
made. ASSETS/smollm2/provenance.json gets an entry for the part: command, commit, versions and
hardware.
"""

import argparse
import hashlib
import json
import shlex
import shutil
from pathlib import Path

import draftwood
from draftwood.files import write_json
from draftwood.lab.bench.provenance import git_state, hardware, versions


def install(part: str, source: Path, assets: Path, command: list[str]) -> None:
    code = git_state(Path(draftwood.__file__).parent)  # before this adds to the checkout
    home = assets / "smollm2"
    home.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, home / part, dirs_exist_ok=True)
        files = sorted(path for path in (home / part).iterdir() if path.is_file())
    else:
        shutil.copy(source, home / part)
        files = [home / part]
    path = home / "provenance.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[part] = {
        "command": shlex.join(command),
        "code": code,
        "versions": versions(),
        "hardware": hardware(),
        "sha256": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
    }
    write_json(path, dict(sorted(known.items())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["table.safetensors", "calibration.json", "head"])
    parser.add_argument("source", type=Path)
    parser.add_argument("assets", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    install(given.part, given.source, given.assets, given.command)


if __name__ == "__main__":
    main()

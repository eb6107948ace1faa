"""Keeps the answers of a run in one file, or lays them out as the run's shards.

Usage: python runs/smollm2/answers.py pack DIRECTORY    writes runs/smollm2/answers.jsonl.gz
       python runs/smollm2/answers.py unpack DIRECTORY  writes DIRECTORY/answers-*.jsonl

`draftwood train answers` resumes from shards, so that after `unpack` it generates only what is
missing, and refuses another model, recipe or list of prompts. The file has answers and no prompts:
`prompts.py` makes those again from the training text.
"""

import argparse
import gzip
from pathlib import Path

from draftwood.files import read_json, write_bytes, write_json
from draftwood.lab.train.answers import RECIPE_FILE

KEPT = Path(__file__).parent / "answers.jsonl.gz"
RECIPE = KEPT.with_name("answers.recipe.json")
"""The run's own recipe.json: what the answers depend on."""


def pack(directory: Path) -> None:
    shards = sorted(directory.glob("answers-*.jsonl"))
    if not shards:
        raise SystemExit(f"{directory} has no answers-*.jsonl")
    write_json(RECIPE, read_json(directory / RECIPE_FILE))
    content = b"".join(path.read_bytes() for path in shards)
    write_bytes(KEPT, gzip.compress(content, compresslevel=9, mtime=0))


def unpack(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    recipe = read_json(RECIPE)
    place = directory / RECIPE_FILE
    if not place.exists():
        write_json(place, recipe)
    elif read_json(place) != recipe:
        raise SystemExit(f"{directory} has answers of another recipe: name another directory")
    lines = gzip.decompress(KEPT.read_bytes()).splitlines(keepends=True)
    for number, start in enumerate(range(0, len(lines), recipe["shard"])):
        path = directory / f"answers-{number:04d}.jsonl"
        if not path.exists():
            write_bytes(path, b"".join(lines[start : start + recipe["shard"]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["pack", "unpack"])
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    {"pack": pack, "unpack": unpack}[given.action](given.directory)


if __name__ == "__main__":
    main()

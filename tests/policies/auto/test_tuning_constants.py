"""The page on ``auto`` lists every tuning constant with its value."""

import ast
import importlib
import re
from pathlib import Path

from tests.methods_page import PAGE

FILES = (
    *(
        f"policies/auto/{file}"
        for file in ("calibration", "copies", "features", "offsets", "policy")
    ),
    *(f"policies/auto/{file}" for file in ("sampled_pool", "tuner")),
    *(f"costs/{file}" for file in ("guard", "live", "refine", "recall")),
)
OTHERS = {"NOT_ASKED", "NOT_LISTED", "COPIED", "TABLE", "NEURAL", "COPIED_CODES", "RANKED_CODES"}
OTHERS |= {"_PLACES", "_DECAY", "_LIMIT", "_SPARE"}
"""Numbers that change nothing, or follow from others."""


def constants(file: str) -> dict[tuple[str, str], str]:
    """File and name of each number, or tuple of numbers, at the top of a module, to its value."""
    module = importlib.import_module("draftwood." + file.replace("/", "."))
    found = {}
    for statement in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
        if not isinstance(statement, ast.Assign):
            continue
        for name in ast.walk(statement.targets[0]):
            if isinstance(name, ast.Name) and name.id not in OTHERS:
                value = getattr(module, name.id)
                values = value if isinstance(value, tuple) else (value,)
                if all(isinstance(each, int | float) for each in values):
                    found[file, name.id] = ", ".join(f"{each:g}" for each in values)
    return found


def test_every_tuning_constant_is_in_the_table() -> None:
    text = (PAGE.parent / "auto.md").read_text(encoding="utf-8")
    table = text[text.index("## Tuning constants") :]
    rows = re.findall(r"^\| `([\w/]+)` \| `(\w+)` \| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)
    known = {key: value for file in FILES for key, value in constants(file).items()}
    assert {(file, name): value for file, name, value in rows} == known
    assert f"These {len(known)} constants" in table

"""``edit:``: given code to be edited, in one turn or in a dialogue of three.

The code is the reference solution of HumanEval (with its prompt), MBPP, ClassEval or another set
with a ``reference`` in code.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats._entry import SourceRow, text
from draftwood.lab.bench.views._choice import choice, name_of

_ORDERS = (
    ("edit_types", ("Annotate it with Python types, arguments and results alike.",)),
    ("edit_docstring", ("Document every definition in Google style and leave all statements.",)),
    ("edit_rename", ("The name `{name}` is too vague. Call it `{other}` wherever it occurs.",)),
    ("edit_validate", ("Make it robust: reject senseless arguments with a helpful ValueError.",)),
    ("edit_comment", ("Put a short remark above each block that says why it is there.",)),
    ("edit_log", ("Report the arguments and the result of each call to `logging.debug`.",)),
    (
        "edit_dialogue",
        (
            "Annotate it with Python types, arguments and results alike.",
            "Thanks. Write docstrings for it, too, and show all of it once more.",
            "Last, call `{name}` `{other}` instead. Again I need the complete code.",
        ),
    ),
    (
        "edit_dialogue",
        (
            "Reject senseless arguments with a helpful ValueError.",
            "Now undo that for None, which shall give None back. Show everything.",
            "Add a usage example under it, behind `if __name__ == '__main__':`.",
        ),
    ),
)
"""Tasks, and the orders of each: one, or those of a dialogue."""


def _prompts(rows: Sequence[SourceRow]) -> Iterable[dict[str, Any]]:
    for row in rows:
        code = _code(row)
        found = re.search(r"^ *(?:class|def) +(\w+)", code, re.MULTILINE)
        name = found[1] if found else "main"
        task, orders = choice(row, _ORDERS)
        turns = [order.format(name=name, other=f"revised_{name}") for order in orders]
        turns[0] = (
            f"```python\n{code}\n```\n\nThis is my code. {turns[0]} Reply with the full code."
        )
        yield {"id": f"edit/{name_of(row)}", "task": task, "turns": turns}


def _code(row: SourceRow) -> str:
    values = row.values
    if "canonical_solution" in values:
        code = text(row, "prompt") + text(row, "canonical_solution")
    elif "reference" in values and "entry_point" in values:
        code = text(row, "prompt") + text(row, "reference")
    else:
        key = next((key for key in ("solution_code", "code", "reference") if key in values), None)
        if key is None:
            raise DraftwoodError(
                f"{row.where}: no code to edit: a row needs a canonical_solution, solution_code, "
                "code or reference"
            )
        code = text(row, key)
    return code.replace("\r\n", "\n").strip("\n")


VIEW = _prompts

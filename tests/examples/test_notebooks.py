"""The notebooks are their sources, executed: the same cells, with small outputs and no errors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import FOLDER, cells, sources

MOST_BYTES = 200_000
MACHINE = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|usr|opt|var|private|Users)/|site-packages")
"""Paths of the machine that ran a notebook."""
NAMES = [source.stem for source in sources()]


def notebook(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def complaints(made: Any, source: str) -> list[str]:
    """What is wrong with a notebook."""
    found = [
        (cell["cell_type"], "".join(cell["source"]))
        for cell in made["cells"]
        if cell["cell_type"] in ("code", "markdown")
    ]
    wrong = [] if found == cells(source) else ["its cells are not those of the source"]
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    if [cell["execution_count"] for cell in code] != [*range(1, len(code) + 1)]:
        wrong.append("it was not executed once from top to bottom")
    outputs = [output for cell in code for output in cell["outputs"]]
    if not outputs:
        wrong.append("it has no outputs")
    wrong += [f"an error: {o.get('evalue')}" for o in outputs if o["output_type"] == "error"]
    wrong += ["an output on standard error" for o in outputs if o.get("name") == "stderr"]
    text = json.dumps(made)
    if len(text) > MOST_BYTES:
        wrong.append(f"it has {len(text)} bytes")
    wrong += [f"a path of a machine: {path}" for path in MACHINE.findall(text)]
    return wrong


def test_there_are_notebooks_of_all_sources() -> None:
    assert len(NAMES) >= 3
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_source_executed(name: str) -> None:
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert complaints(notebook(name), source) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_installs_the_package_first_and_finds_the_same_tokens(name: str) -> None:
    made = notebook(name)
    first = next(cell for cell in made["cells"] if cell["cell_type"] == "code")
    assert '"pip", "install"' in "".join(first["source"])
    printed = "".join(
        line
        for cell in made["cells"]
        for output in cell.get("outputs", [])
        for line in output.get("text", [])
    )
    assert "same tokens" in printed
    assert "False" not in printed


def test_the_check_sees_what_is_wrong(tmp_path: Path) -> None:
    [name, *_] = NAMES
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert complaints(notebook(name), source + "\n# %%\nmore = 1\n") == [
        "its cells are not those of the source"
    ]
    made = notebook(name)
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    code[0]["execution_count"] = None
    code[1]["outputs"] = [
        {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []},
        {"output_type": "stream", "name": "stderr", "text": [f"{tmp_path}/a: /home/me/a.py\n"]},
    ]
    wrong = complaints(made, source)
    assert wrong[:3] == [
        "it was not executed once from top to bottom",
        "an error: no",
        "an output on standard error",
    ]
    assert "a path of a machine: /home/" in wrong
    for cell in code:
        cell["outputs"] = []
    assert "it has no outputs" in complaints(made, source)
    code[1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["x" * MOST_BYTES]}]
    assert any("bytes" in each for each in complaints(made, source))


def test_cells_of_the_percent_format() -> None:
    text = "# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\na = 1\n\n\n# %%\nb = 2\n"
    assert cells(text) == [("markdown", "# Title\n\nText"), ("code", "a = 1"), ("code", "b = 2")]

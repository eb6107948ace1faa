"""``python -m tests.notebooks`` executes the notebooks' sources and writes the notebooks.

The sources are ``examples/notebooks/*.py``, in percent format: ``# %%`` begins a cell of code and
``# %% [markdown]`` one of text, in comments. A test compares both. Needs the extra ``notebooks``.
"""

import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SECONDS = 600
"""Most that one cell may take."""


def cells(source: str) -> list[tuple[str, str]]:
    """The cells of a source in percent format, each as its kind and its text.

    The kind is ``"code"`` or ``"markdown"``, as in a notebook.
    """
    parts = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)
    assert not parts[0].strip(), "a source begins with a cell"
    found = []
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        body = text.strip("\n")
        if title.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.split("\n")]
            found.append(("markdown", "\n".join(lines)))
        else:
            assert not title.strip(), title
            found.append(("code", body))
    return found


def sources() -> list[Path]:
    """The notebooks' sources."""
    return sorted(FOLDER.glob("*.py"))


def executed(source: Path) -> Any:
    """The notebook of a source, with the outputs of a run."""
    import nbformat
    from nbclient import NotebookClient

    makes = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    made = [makes[kind](text) for kind, text in cells(source.read_text(encoding="utf-8"))]
    for number, cell in enumerate(made):
        cell["id"] = f"cell-{number}"  # random otherwise
    notebook = nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": KERNEL})
    client: Any = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name=KERNEL["name"],
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    for cell in made:
        if cell["cell_type"] == "code":
            cell["outputs"] = [output for output in cell["outputs"] if not passing(output)]
    notebook["metadata"] = {"kernelspec": KERNEL}  # and not this machine's version of Python
    nbformat.validate(notebook)
    return notebook


def passing(output: Any) -> bool:
    """Whether an output is no result: Draftwood's progress, or a library's on standard error."""
    shown = output.get("data", {}).get("text/plain", "")
    progress = output["output_type"] == "display_data" and "draftwood: " in shown
    return progress or output.get("name") == "stderr"


def main(names: list[str]) -> None:
    """Write all notebooks, or those of these names."""
    import nbformat

    for source in sources():
        if not names or source.stem in names:
            nbformat.write(executed(source), source.with_suffix(".ipynb"))
            print(source.with_suffix(".ipynb").name)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])

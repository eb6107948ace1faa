"""HumanEval (Chen et al. 2021, arXiv 2107.03374): functions to complete.

The prompt is the file's own: signature and docstring, with the last line break, as in the paper.
Sets with further keys (HumanEval+) are read too.
"""

from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, label, text


def _entry(row: SourceRow, _set_name: str) -> Entry:
    turns = (text(row, "prompt"),)
    name = label(row, "task_id")
    return Entry(name, "code_completion", turns, dialogue=False, completion=True)


FORMAT = Format(
    required=("task_id", "prompt", "entry_point", "canonical_solution", "test"),
    shape="task_id, prompt, entry_point, canonical_solution, test",
    entry=_entry,
    set_name=lambda *_: "humaneval",
)

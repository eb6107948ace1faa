"""MBPP (Austin et al. 2021, arXiv 2108.07732): functions to write, with tests they must pass.

The full set has the task as ``text``, the sanitised one as ``prompt``; ids are the same in both.
The prompt is the paper's without its three worked examples: the role and the task, every listed
test on a line of its own, then ``[BEGIN]``, after which the code is expected.
"""

from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, Values, label, text, texts


def _fits(values: Values) -> bool:
    return ("text" in values) != ("prompt" in values)


def _entry(row: SourceRow, set_name: str) -> Entry:
    task = text(row, "text" if "text" in row.values else "prompt")
    tests = "\n".join(texts(row, "test_list"))
    prompt = (
        f"You are an expert Python programmer, and here is your task: {task} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )
    name = f"{set_name}/{label(row, 'task_id')}"
    return Entry(name, "code_generation", (prompt,), dialogue=False, completion=True)


FORMAT = Format(
    required=("task_id", "code", "test_list"),
    shape="task_id, code, test_list, text or prompt",
    entry=_entry,
    set_name=lambda *_: "mbpp",
    fits=_fits,
)

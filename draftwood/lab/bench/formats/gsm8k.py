"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168): grade-school word problems.

The prompt is ``Question: ...`` and ``Answer:`` on a line of its own, without examples: the template
of EleutherAI's lm-evaluation-harness, at zero shots. Rows have no id, so their number is used.
The answers end in ``#### `` and the result, unlike those of other sets with the same keys.
"""

from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, Values, text


def _fits(values: Values) -> bool:
    answer = values["answer"]
    return isinstance(answer, str) and "#### " in answer


def _entry(row: SourceRow, set_name: str) -> Entry:
    prompt = f"Question: {text(row, 'question')}\nAnswer:"
    return Entry(f"{set_name}/{row.number}", "math", (prompt,), dialogue=False)


FORMAT = Format(
    required=("question", "answer"),
    shape="question, answer with '#### ' before the result",
    entry=_entry,
    set_name=lambda *_: "gsm8k",
    fits=_fits,
)

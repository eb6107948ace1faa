"""``question.jsonl`` of FastChat's judge: MT-Bench, Spec-Bench and others with the same keys.

The categories of all rows distinguish MT-Bench and Spec-Bench. MT-Bench's tasks are its
categories. Spec-Bench's tasks are the six of its evaluation (Xia et al. 2024, arXiv 2401.07851,
Table 1), one of which is MT-Bench. Other sets have the name of their source, and their categories
as tasks. Turns form a dialogue. Rows with a ``sub_category`` are SPEED-Bench's.
"""

from collections.abc import Sequence

from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, label, text, texts

_MT_BENCH = frozenset(
    {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
)
_SPEC_BENCH = frozenset({"translation", "summarization", "qa", "math_reasoning", "rag"})


def _set_name(rows: Sequence[SourceRow], source_name: str) -> str:
    categories = {row.values["category"] for row in rows if isinstance(row.values["category"], str)}
    if categories <= _MT_BENCH:
        return "mt_bench"
    return "spec_bench" if categories <= _MT_BENCH | _SPEC_BENCH else source_name


def _entry(row: SourceRow, set_name: str) -> Entry:
    category = text(row, "category")
    task = "mt_bench" if set_name == "spec_bench" and category in _MT_BENCH else category
    name = f"{set_name}/{label(row, 'question_id')}"
    return Entry(name, task, texts(row, "turns"), dialogue=True)


FORMAT = Format(
    required=("question_id", "category", "turns"),
    shape="question_id, category, turns",
    entry=_entry,
    set_name=_set_name,
    fits=lambda values: "sub_category" not in values,
)

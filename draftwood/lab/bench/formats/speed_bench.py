"""SPEED-Bench (arXiv 2604.09557), from ``nvidia/SPEED-Bench`` or its ``prepare.py``.

The configuration ``qualitative`` has 11 categories, ``throughput_1k`` to ``throughput_32k`` have
three: ``low_entropy``, ``mixed`` and ``high_entropy``. ``prepare.py`` writes the turns as
``messages``. The dataset on the Hub holds a placeholder where a source may not be passed on; such a
row is refused.
"""

from collections.abc import Sequence

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, Values, label, text, texts

_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
_THROUGHPUT = frozenset({"low_entropy", "mixed", "high_entropy"})


def _set_name(rows: Sequence[SourceRow], _source_name: str) -> str:
    categories = {row.values["category"] for row in rows if isinstance(row.values["category"], str)}
    return "speed_bench_throughput" if categories <= _THROUGHPUT else "speed_bench"


def _entry(row: SourceRow, set_name: str) -> Entry:
    turns = texts(row, "turns") if "turns" in row.values else _of_user(row)
    if any(turn.startswith(_PLACEHOLDER) for turn in turns):
        raise DraftwoodError(
            f"{row.where}: this is a placeholder, the text must come from its own source: run "
            "SPEED-Bench's prepare.py and name the file that it writes"
        )
    name = f"{set_name}/{label(row, 'question_id')}"
    return Entry(name, text(row, "category"), turns, dialogue=True)


def _of_user(row: SourceRow) -> tuple[str, ...]:
    messages = row.values["messages"]
    if not isinstance(messages, list) or not messages:
        raise DraftwoodError(f"{row.where}: 'messages' must be a list of messages")
    if not all(isinstance(m, dict) and m.get("role") == "user" for m in messages):
        raise DraftwoodError(f"{row.where}: 'messages' must be those of the user only")
    inner = SourceRow(row.where, row.number, {"content": [m.get("content") for m in messages]})
    return texts(inner, "content")


def _fits(values: Values) -> bool:
    return "turns" in values or "messages" in values


FORMAT = Format(
    required=("question_id", "category", "sub_category"),
    shape="question_id, category, sub_category, turns or messages",
    entry=_entry,
    set_name=_set_name,
    fits=_fits,
)

"""``passage:``: a given text to answer from, to summarise or to extract from.

The text is a paragraph of WikiText-2 (a row with ``title``), the passage of Spec-Bench's ``rag`` or
``summarization``, or the ``context`` of a set of questions about texts (SQuAD). Rows without such a
text are left out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from draftwood.lab.bench.formats._entry import SourceRow, text, texts
from draftwood.lab.bench.views._choice import choice, name_of

_QUESTION = (
    "Below is some reference text and a question. Reply from this text alone and cite the sentence "
    "that settles it.\n\n{passage}\n\n{question}"
)
_ORDERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("summarise", ("Boil this down to three sentences.\n\n{passage}",)),
    (
        "answer",
        (
            "{passage}\n\nFrom this alone: what happens with or to {topic}? Cite the words that "
            "tell you so.",
        ),
    ),
    (
        "extract",
        (
            "{passage}\n\nPut the people, organisations, places and years that occur here into one "
            "JSON object. Reply with nothing else.",
        ),
    ),
    (
        "passage_dialogue",
        (
            "Read this and tell me in one sentence what it is about.\n\n{passage}",
            "Which of its sentences support that? Copy them.",
            "Now all of its facts, please, as a JSON array of short strings.",
        ),
    ),
)


def _prompts(rows: Sequence[SourceRow]) -> Iterable[dict[str, Any]]:
    for row in rows:
        passage, question = _passage(row)
        if not passage:
            continue
        task, orders = choice(row, _ORDERS)
        if question:
            task, orders = "answer", (_QUESTION,)
        topic = row.values.get("title") or _topic(passage)
        turns = [order.format(passage=passage, question=question, topic=topic) for order in orders]
        yield {"id": f"passage/{name_of(row)}", "task": task, "turns": turns}


def _passage(row: SourceRow) -> tuple[str, str]:
    """The passage, and the question about it if the row has one."""
    values = row.values
    if "context" in values:
        return text(row, "context").strip(), text(row, "question").strip()
    if values.get("category") == "rag":
        passage, _, question = texts(row, "turns")[0].strip().rpartition("\n")
        return passage.strip(), question.strip()
    if values.get("category") == "summarization":
        return texts(row, "turns")[0].partition(":")[2].strip(), ""
    if "title" in values:
        rest = values.get("reference")
        return (text(row, "prompt") + (rest if isinstance(rest, str) else "")).strip(), ""
    return "", ""


def _topic(passage: str) -> str:
    """The name that occurs most often within sentences."""
    names = Counter(re.findall(r"(?<=[a-z,] )[A-Z]\w+(?: [A-Z]\w+)*", passage))
    return names.most_common(1)[0][0] if names else "the main subject"


VIEW = _prompts

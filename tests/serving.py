"""``python -m tests.serving`` writes the tables of docs/serving.md from the server's structs.

A test compares the two.
"""

from pathlib import Path

import msgspec

from draftwood.server.metrics import COUNTERS, GAUGES, HISTOGRAMS, HTTP, HTTP_TEXT
from draftwood.server.schemas.chat import ChatRequest
from draftwood.server.schemas.completion import CompletionRequest
from draftwood.server.schemas.fields import SamplingFields, StreamOptions
from draftwood.server.schemas.messages import Message, Part
from draftwood.server.schemas.stats import Stats
from draftwood.server.schemas.tokens import DetokenizeRequest, TokenizeRequest
from draftwood.server.values import descriptions

PAGE = Path(__file__).parents[1] / "docs" / "serving.md"
END = "<!-- The end of the table. -->\n"


def fields(
    kind: type[msgspec.Struct],
    without: type[msgspec.Struct] | None = None,
    heading: str = "what the server does",
) -> str:
    """A table of a struct's fields and what the server does with them, or what they mean."""
    left_out = set(without.__struct_fields__) if without else set()
    rows = descriptions(kind).items()
    return f"| field | {heading} |\n|---|---|\n" + "".join(
        f"| `{name}` | {text} |\n" for name, text in rows if name not in left_out
    )


def metrics() -> str:
    """A table of the metrics."""
    named = {
        **{name: ("gauge", text) for name, text in GAUGES.items()},
        **{f"{name}_total": ("counter", text) for name, text in COUNTERS.items()},
        **{name: ("histogram", text) for name, (text, _) in HISTOGRAMS.items()},
        f"{HTTP}_total": ("counter", HTTP_TEXT),
    }
    return "| metric | kind | meaning |\n|---|---|---|\n" + "".join(
        f"| `{name}` | {kind} | {text} |\n" for name, (kind, text) in named.items()
    )


def tables() -> dict[str, str]:
    """All tables of the page, by name."""
    return {
        "fields of both": fields(SamplingFields),
        "fields of stream_options": fields(StreamOptions),
        "fields of chats": fields(ChatRequest, SamplingFields),
        "fields of completions": fields(CompletionRequest, SamplingFields),
        "fields of messages": fields(Message),
        "fields of parts": fields(Part),
        "fields of tokenize": fields(TokenizeRequest),
        "fields of detokenize": fields(DetokenizeRequest),
        "stats": fields(Stats, heading="meaning"),
        "metrics": metrics(),
    }


def written(page: str) -> str:
    """The page with these tables."""
    for name, table in tables().items():
        begin = f"<!-- {name}: written by python -m tests.serving. -->\n"
        before, found, rest = page.partition(begin)
        assert found, f"the page has no place for {name}"
        _, _, after = rest.partition(END)
        page = f"{before}{begin}\n{table}\n{END}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

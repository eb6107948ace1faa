"""The table of a document."""

from typing import cast

from rich.console import Console

from draftwood.cli._bench_view import table
from draftwood.engine.stats import Tally
from draftwood.lab.bench.aggregate import Baselines, method_entry
from draftwood.lab.bench.document import SCHEMA, Document
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.loops import Repeats
from tests.factories.bench_rows import repeating, row


def shown(methods: dict[str, list[RunRow]], *, complete: bool = True) -> str:
    baselines = Baselines(methods["ar"], methods.get("hf", []))
    entries = {n: method_entry(n, rows, baselines, [], {}) for n, rows in methods.items()}
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table(Document(SCHEMA, complete, {}, entries, {}, ())))
    return captured.get()


def rows(seconds: float, **others: object) -> list[RunRow]:
    tally = cast(Tally, others.get("tally", Tally()))
    return [row(str(i), group=i, seconds=seconds, tally=tally) for i in range(3)]


def test_speeds_and_tau_have_their_intervals_below() -> None:
    text = shown({"ar": rows(1.0), "goose": rows(0.5, tally=Tally(steps=2, committed=5))})
    line, below = text.split("goose")[1].splitlines()[:2]
    assert line.split() == ["20.0", "2.00", "2.50", "-", "100.0", "44.44", "-", "-", "0/3"]
    assert below.split() == ["20.0-20.0", "2.00-2.00", "2.50-2.50", "0%"]
    assert "incomplete" not in text
    assert "incomplete" in shown({"ar": rows(1.0)}, complete=False)


def test_the_speed_up_over_hf_is_shown_if_hf_ran() -> None:
    assert "vs hf" not in shown({"ar": rows(1.0)})
    text = shown({"ar": rows(1.0), "hf": rows(3.0)})
    assert "vs hf" in text
    (line,) = (line for line in text.splitlines() if line.split()[:1] == ["ar"])
    assert line.split()[1:4] == ["10.0", "1.00", "3.00"]


def test_figures_taken_on_looping_texts_are_marked() -> None:
    assert "†" not in shown({"ar": rows(1.0)})
    looping = [repeating(each, Repeats(9, 10), Repeats(1, 10)) for each in rows(1.0)]
    text = shown({"ar": looping})
    (line,) = (line for line in text.splitlines() if line.split()[:1] == ["ar"])
    assert line.split()[1:] == ["10.0†", "1.00†", "-", "-", "100.0", "100.00†", "-", "-", "3/6"]
    assert "† 3 of 6 outputs loop" in " ".join(text.split())
    assert "here 50% of all" in " ".join(text.split())

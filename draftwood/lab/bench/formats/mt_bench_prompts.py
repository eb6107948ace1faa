"""MT-Bench from the dataset HuggingFaceH4/mt_bench_prompts: the turns are in ``prompt``.

Set and tasks are those of MT-Bench's own file; the dataset has other ids.
"""

from draftwood.lab.bench.formats._entry import Entry, Format, SourceRow, Values, label, text, texts


def _fits(values: Values) -> bool:
    return isinstance(values["prompt"], list)


def _entry(row: SourceRow, set_name: str) -> Entry:
    name = f"{set_name}/{label(row, 'prompt_id')}"
    return Entry(name, text(row, "category"), texts(row, "prompt"), dialogue=True)


FORMAT = Format(
    required=("prompt_id", "category", "prompt"),
    shape="prompt_id, category, prompt as a list of turns",
    entry=_entry,
    set_name=lambda *_: "mt_bench",
    fits=_fits,
)

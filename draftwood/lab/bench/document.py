"""The document of a benchmark: the classes it is written from and read back with.

Every member of the JSON is a field of :class:`Document` or of a class that it names;
``docs/bench.md`` defines each. A figure that is unknown is null.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.files import Count, decode, encode, read_json
from draftwood.lab.bench.figures import Reliabilities, RunRow, Section
from draftwood.lab.bench.loop_marks import note

SCHEMA = 4
"""Goes up when a figure changes its name, its shape or its meaning."""
REFERENCE = "ar"
"""The method that speed-ups and equality are counted from."""
PEER = "hf"
"""transformers' plain ``generate``: where it takes part, speed-ups are counted from it too."""
PHASES = ("target", "draft", "verify", "commit", "learn", "other")
"""Phases of a step, whose seconds are counted."""

_SUMMARY = (
    "prompts",
    "tokens",
    "tokens_per_second",
    "speedup_vs_ar",
    "speedup_vs_hf",
    "mean_acceptance_length",
    "acceptance_rate",
    "identical",
    "compared",
    "near_ties",
    "rounding_prompts",
    "fault_prompts",
    "texts",
    "looping_texts",
)


@dataclass(frozen=True)
class Divergence:
    """The first difference between a run and the reference's.

    Attributes:
        id: the prompt's.
        run_seed: of the run.
        repeat: of the run.
        turn: whose answer differs, from 0.
        position: of the first differing token in that answer, from 0.
        expected: the reference's token there, None if its answer had ended.
        found: the method's, None likewise.
        gap: how far the worse of the two tokens was from being chosen there, in logits; None if
            an answer had ended, and before it is computed.
        bound: how far rounding can move that; None likewise.
        near_tie: whether rounding decides; None before it is computed.
    """

    id: str
    run_seed: Count
    repeat: Count
    turn: Count
    position: Count
    expected: Count | None
    found: Count | None
    gap: float | None = None
    bound: float | None = None
    near_tie: bool | None = None

    @property
    def fault(self) -> bool:
        """Whether it is known that rounding cannot explain it."""
        return self.near_tie is False


@dataclass(frozen=True)
class Committed:
    """A committed token's text, and the drafter that offered it (``""`` for the bonus)."""

    text: str
    source: str


@dataclass(frozen=True)
class StepExcerpt:
    """One step.

    Attributes:
        route: the tree's.
        drafted: nodes, root excluded.
        depth: of the tree.
        committed: the tokens that became part of the answer; accepted ones, then the bonus.
        rejected: texts of the chain of first children below the last accepted node, at most 8.
    """

    route: str
    drafted: Count
    depth: Count
    committed: tuple[Committed, ...]
    rejected: tuple[str, ...]


@dataclass(frozen=True)
class TreeExcerpt:
    """The whole tree of a step; node 0 is the root.

    Attributes:
        step: number of the step, from 0.
        parents: of each node; -1 for the root.
        texts: of each node's token.
        sources: the drafter of each node; ``"root"`` for the root.
        path: accepted nodes.
        bonus: text of the bonus token; empty if the answer ended before it.
    """

    step: Count
    parents: tuple[int, ...]
    texts: tuple[str, ...]
    sources: tuple[str, ...]
    path: tuple[Count, ...]
    bonus: str


@dataclass(frozen=True)
class Excerpt:
    """The beginning of an answer.

    Attributes:
        method: name of the contender.
        id: of the prompt.
        set: of the prompt.
        task: of the prompt.
        prompt: the last 300 characters of the context.
        steps: at most 48, from the first one.
        trees: of at most 3 of these steps, evenly spaced among those that drafted.
    """

    method: str
    id: str
    set: str
    task: str
    prompt: str
    steps: tuple[StepExcerpt, ...]
    trees: tuple[TreeExcerpt, ...]


@dataclass(frozen=True)
class PublishedAndBest:
    """A method as published and at its best setting; both texts name contenders."""

    published: str
    best: str


@dataclass(frozen=True)
class Searched:
    """The best settings of a search, as a document holds them.

    Attributes:
        file: of the search.
        by: the figure that decided.
        methods: by the name of the recipe.
        disturbed: why the search's times are not reliable; None if they are, or did not decide.
    """

    file: str
    by: str
    methods: Mapping[str, PublishedAndBest]
    disturbed: str | None = None


@dataclass(frozen=True)
class MethodResult(Section):
    """Settings, figures, rows and divergences of one contender.

    Attributes:
        name: as the user spelt it.
        by_set: the figures of each set.
        by_task: the figures of each task.
        by_seed: the figures of each seed; empty if there is one.
        near_ties: first differences from the reference that rounding explains.
        rounding_prompts: prompts that differ by rounding alone.
        fault_prompts: prompts with a difference that rounding does not explain.
        divergences: first differences.
        settings: of the method.
        rows: all runs.
        reliability: of predictions; None if the method predicted nothing.
    """

    name: str
    by_set: Mapping[str, Section]
    by_task: Mapping[str, Section]
    by_seed: Mapping[str, Section]
    near_ties: Count
    rounding_prompts: Count
    fault_prompts: Count
    divergences: tuple[Divergence, ...]
    settings: Mapping[str, object]
    rows: tuple[RunRow, ...]
    reliability: Reliabilities | None = None


@dataclass(frozen=True)
class Document:
    """The document of a whole run.

    Attributes:
        schema: :data:`SCHEMA`.
        complete: whether the run ended.
        provenance: see :mod:`draftwood.lab.bench.provenance`.
        methods: by name, in the order in which the user named them.
        missing: peers that were left out, with the reasons.
        excerpts: beginnings of answers.
        best: methods whose best setting was searched; None without ``--best``.
    """

    schema: int
    complete: bool
    provenance: Mapping[str, Any]
    methods: Mapping[str, MethodResult]
    missing: Mapping[str, str]
    excerpts: tuple[Excerpt, ...]
    best: Searched | None = None

    @property
    def by_speed(self) -> tuple[MethodResult, ...]:
        """The methods, fastest first; those without a speed last."""
        every = self.methods.values()
        return tuple(sorted(every, key=lambda m: -(m.tokens_per_second.median or -1.0)))

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, in the order of the document."""
        return tuple(dict.fromkeys(task for m in self.methods.values() for task in m.by_task))

    @property
    def dtype(self) -> str:
        """The dtype of the model, empty if it is not recorded."""
        return str(self.provenance.get("model", {}).get("dtype", ""))

    @property
    def loops(self) -> str:
        """The note on the method with most looping outputs; empty if there are none."""
        if not self.methods:
            return ""
        worst = max(self.methods.values(), key=lambda m: m.looping_texts)
        return note(worst.texts, worst.looping_texts, worst.repeated_8grams.value)


def read(found: object) -> Document:
    """The document in parsed JSON.

    Raises:
        DraftwoodError: ``found`` is no document, of another schema, or a value in it is missing or
            of another type; the message names the place.
    """
    if not isinstance(found, Mapping) or "schema" not in found:
        raise DraftwoodError("not a 'bench --json' file: give one")
    if found["schema"] != SCHEMA:
        raise DraftwoodError(
            f"this document has schema {found['schema']!r}, and this version reads schema "
            f"{SCHEMA}: run the benchmark again with this version"
        )
    try:
        return decode(Document, found)
    except DraftwoodError as error:
        raise DraftwoodError(f"{error}; run the benchmark again") from error


def load(path: Path) -> Document:
    """The document in a file.

    Raises:
        DraftwoodError: the file cannot be read, or :func:`read` refuses its content.
    """
    found = read_json(path)
    try:
        return read(found)
    except DraftwoodError as error:
        raise DraftwoodError(f"{path}: {error}") from error


def summary(document: Document, path: Path | None) -> dict[str, object]:
    """The figures of the last line on standard output."""
    return {
        "complete": document.complete,
        "json": None if path is None else str(path),
        "methods": {
            name: {key: encode(getattr(method, key)) for key in _SUMMARY}
            for name, method in document.methods.items()
        },
        "missing": document.missing,
    }

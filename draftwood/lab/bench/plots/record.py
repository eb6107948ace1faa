"""What a benchmark's document says, as typed values: the part of it that somebody shows.

``docs/bench.md`` defines each figure. Knows neither JSON nor how anything is shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from draftwood.lab.bench.acceptance import RankCount
from draftwood.lab.bench.forecast import Bin
from draftwood.lab.bench.loop_marks import note
from draftwood.lab.bench.tree_excerpt import TreeExcerpt

REFERENCE = "ar"
"""The method that speed-ups and equality are counted from."""
PEER = "hf"
"""The peer that speed-ups are counted from, too."""
PHASES = ("target", "draft", "verify", "commit", "learn", "other")
"""What the time of a step is spent on."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval; None where unknown."""

    middle: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class DepthRate:
    """Steps that drafted to this depth, and which share of them was accepted to it."""

    depth: int
    offered: int
    rate: Estimate


@dataclass(frozen=True)
class SourceRate:
    """Nodes of a source, and which share of them was accepted."""

    source: str
    drafted: int
    accepted: int
    rate: Estimate


@dataclass(frozen=True)
class Metrics:
    """What a method came to over some rows."""

    prompts: int
    tokens: int
    tokens_per_second: Estimate
    speedup: Estimate
    speedup_vs_peer: Estimate
    tau: Estimate
    acceptance_rate: Estimate
    draft_efficiency: Estimate
    ttft: Estimate
    tpot: Estimate
    overhead: Estimate
    peak_memory: float | None
    predicted_speedup: float | None
    identical: int
    compared: int
    texts: int
    looping_texts: int
    repeated: Estimate
    time_share: Mapping[str, float]
    by_depth: tuple[DepthRate, ...]
    by_source: tuple[SourceRate, ...]
    by_rank: tuple[RankCount, ...]


@dataclass(frozen=True)
class SourceReliability:
    """Judged candidates of a source, how many of them were expected to be taken and were.

    ``error`` is what was expected over what came, less one; ``bins`` are by tenths of the chance.
    """

    source: str
    candidates: int
    expected: float
    taken: int
    error: Estimate
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Reliability:
    """Steps of which something was foretold: tokens expected and committed, and the candidates."""

    steps: int
    expected: float
    committed: int
    error: Estimate
    by_source: tuple[SourceReliability, ...]


@dataclass(frozen=True)
class Divergence:
    """The first difference of an answer from the reference's."""

    id: str
    turn: int
    position: int
    expected: int | None
    found: int | None
    gap: float | None
    bound: float | None
    near_tie: bool | None


@dataclass(frozen=True)
class Method:
    """A contender: over all rows, without looping outputs, and by task.

    ``reliability`` is of all steps, and of the late ones alone; None where nothing was foretold.
    """

    name: str
    settings: Mapping[str, object]
    all: Metrics
    without_looping: Metrics
    by_task: Mapping[str, Metrics]
    divergences: tuple[Divergence, ...]
    rounding_prompts: int
    fault_prompts: int
    reliability: tuple[Reliability, Reliability] | None


@dataclass(frozen=True)
class Step:
    """A step of an excerpt; ``committed`` pairs a text with its source, ``""`` for the bonus."""

    route: str
    drafted: int
    committed: tuple[tuple[str, str], ...]
    rejected: tuple[str, ...]


@dataclass(frozen=True)
class Excerpt:
    """The beginning of a method's answer to a prompt."""

    method: str
    id: str
    task: str
    prompt: str
    steps: tuple[Step, ...]
    trees: tuple[TreeExcerpt, ...]


@dataclass(frozen=True)
class Searched:
    """A method whose best setting was searched: its name, and what both contenders are called."""

    name: str
    published: str
    best: str


@dataclass(frozen=True)
class Record:
    """A whole document. ``methods`` are in the order in which the user named them."""

    complete: bool
    provenance: Mapping[str, object]
    methods: tuple[Method, ...]
    missing: Mapping[str, str]
    excerpts: tuple[Excerpt, ...]
    searched: tuple[Searched, ...] = ()

    @property
    def by_speed(self) -> tuple[Method, ...]:
        """The methods, fastest first; those without a speed last."""
        return tuple(sorted(self.methods, key=lambda m: -(m.all.tokens_per_second.middle or -1.0)))

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks, in the order of the document."""
        return tuple(dict.fromkeys(task for m in self.methods for task in m.by_task))

    @property
    def dtype(self) -> str:
        """Of the model, empty if it is not recorded."""
        model = self.provenance.get("model")
        return str(model.get("dtype", "")) if isinstance(model, Mapping) else ""

    @property
    def loops(self) -> str:
        """What to say of looping outputs, of the method that has most; empty if there are none."""
        if not self.methods:
            return ""
        worst = max((m.all for m in self.methods), key=lambda metrics: metrics.looping_texts)
        return note(worst.texts, worst.looping_texts, worst.repeated.middle)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the methods, in the order of the document."""
        return tuple(m.name for m in self.methods)

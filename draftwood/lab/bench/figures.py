"""The figures of a run, of some runs together, and of a method's predictions.

Plain values: what a document holds of the rows that it is made of. ``docs/bench.md`` defines each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from draftwood.files import UNWRITTEN, Count
from draftwood.lab.bench.acceptance import AcceptanceCounts
from draftwood.lab.bench.intervals import Median, Ratio
from draftwood.lab.bench.predictions import Bin, Predictions
from draftwood.lab.loops import Repeats


@dataclass(frozen=True)
class RunRow:
    """A run in figures, as the document holds them; ``docs/bench.md`` defines every written field.

    Attributes:
        repeats: how much each answer repeats itself.
        acceptance: counts of the drafted nodes.
        forecasts: counts of predictions and their outcome.
    """

    id: str
    set: str
    task: str
    repeat: Count
    group: Count
    run_seed: Count
    seed: Count
    turns: Count
    prompt_tokens: Count
    truncated: bool
    tokens: Count
    seconds: float
    group_seconds: float
    ttft: float
    tpot: float | None
    steps: Count
    committed: Count
    drafted: Count
    draft_calls: Count
    accepted: Count
    mean_acceptance_length: float | None
    routes: Mapping[str, int]
    kinds: Mapping[str, int]
    phases: Mapping[str, float]
    overhead_ms_per_step: float | None
    finish_reasons: tuple[str, ...]
    looping: bool
    repeated_8grams: Count
    total_8grams: Count
    peak_memory_mb: float | None
    other_processes: float | None
    identical: bool | None
    repeats: tuple[Repeats, ...] = field(default=(), metadata=UNWRITTEN)
    acceptance: AcceptanceCounts = field(default_factory=AcceptanceCounts, metadata=UNWRITTEN)
    forecasts: Predictions = field(default_factory=Predictions, metadata=UNWRITTEN)


@dataclass(frozen=True)
class DepthRate:
    """Steps whose tree was so deep (``offered``), and whose accepted path was (``reached``)."""

    depth: Count
    offered: Count
    reached: Count
    rate: Ratio


@dataclass(frozen=True)
class SourceRate:
    """Nodes that one drafter proposed, and the accepted ones."""

    drafted: Count
    accepted: Count
    rate: Ratio


@dataclass(frozen=True)
class RankCount:
    """Offered nodes of one depth and rank, and the accepted ones."""

    depth: Count
    rank: Count
    offered: Count
    accepted: Count


@dataclass(frozen=True)
class Metrics:
    """Figures of some rows of one method; ``docs/bench.md`` defines every field."""

    prompts: Count
    tokens: Count
    tokens_per_second: Median
    speedup_vs_ar: Median
    speedup_vs_hf: Median
    ttft_ms: Median
    tpot_ms: Median
    mean_acceptance_length: Ratio
    acceptance_rate: Ratio
    draft_calls: Count
    draft_efficiency: Ratio
    predicted_speedup: float | None
    predicted_speedup_with_verification: float | None
    target_calls: Count
    identical: Count
    compared: Count
    texts: Count
    looping_texts: Count
    repeated_8grams: Ratio
    acceptance_by_depth: tuple[DepthRate, ...]
    acceptance_by_source: Mapping[str, SourceRate]
    acceptance_by_rank: tuple[RankCount, ...]
    routes: Mapping[str, int]
    kinds: Mapping[str, int]
    phases: Mapping[str, float]
    time_share: Mapping[str, float]
    overhead_percent: float | None
    overhead_ms_per_step: Median
    peak_memory_mb: float | None


@dataclass(frozen=True)
class Section(Metrics):
    """Figures of some rows, and the same without looping outputs."""

    without_looping: Metrics


@dataclass(frozen=True)
class SourceReliability:
    """Candidates of a source: predicted and observed acceptance, in all and by tenths."""

    candidates: Count
    predicted: float
    accepted: Count
    error: Ratio
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Reliability:
    """Steps with a prediction: tokens predicted and committed, and the candidates by source."""

    steps: Count
    predicted: float
    committed: Count
    error: Ratio
    by_source: Mapping[str, SourceReliability]


@dataclass(frozen=True)
class Reliabilities:
    """Figures of all steps, and of the late ones; ``docs/bench.md`` defines every field."""

    all_steps: Reliability
    late_steps: Reliability

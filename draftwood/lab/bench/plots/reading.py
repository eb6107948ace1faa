"""From a benchmark's document to typed values; what is not as it should be is named.

Knows nothing of how they are shown.
"""

from collections.abc import Iterator, Mapping

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.acceptance import RankCount
from draftwood.lab.bench.forecast import Bin
from draftwood.lab.bench.plots.cursor import Cursor
from draftwood.lab.bench.plots.record import (
    DepthRate,
    Divergence,
    Estimate,
    Excerpt,
    Method,
    Metrics,
    Record,
    Reliability,
    Searched,
    SourceRate,
    SourceReliability,
    Step,
)
from draftwood.lab.bench.tree_excerpt import TreeExcerpt

SCHEMA = 3


def read(document: object) -> Record:
    """The document's values.

    Args:
        document: what ``draftwood bench --json`` wrote, parsed.

    Raises:
        DraftwoodError: it is no such document, of another schema, or something in it is missing
            or of another type; the sentence names the place.
    """
    if not isinstance(document, Mapping) or "schema" not in document:
        raise DraftwoodError("not a 'bench --json' file")
    if document["schema"] != SCHEMA:
        raise DraftwoodError(
            f"this document has schema {document['schema']!r}, and schema {SCHEMA} is read: "
            "run the benchmark again with this version"
        )
    top = Cursor(document)
    return Record(
        complete=top["complete"].flag(),
        provenance=top["provenance"].mapping(),
        methods=tuple(_method(name, at) for name, at in top["methods"].items()),
        missing={name: at.text() for name, at in top["missing"].items()},
        excerpts=tuple(_excerpt(at) for at in top["excerpts"]),
        searched=tuple(_searched(top.maybe("best"))),
    )


def _searched(at: Cursor | None) -> Iterator[Searched]:
    if at is not None:
        for name, pair in at["methods"].items():
            yield Searched(name, pair["published"].text(), pair["best"].text())


def _method(name: str, at: Cursor) -> Method:
    told = at.maybe("reliability")
    return Method(
        name=name,
        settings=at["settings"].mapping(),
        all=_metrics(at),
        without_looping=_metrics(at["without_looping"]),
        by_task={task: _metrics(found) for task, found in at["by_task"].items()},
        divergences=tuple(_divergence(found) for found in at["divergences"]),
        rounding_prompts=at["rounding_prompts"].count(),
        fault_prompts=at["fault_prompts"].count(),
        reliability=None
        if told is None
        else (_reliability(told["all_steps"]), _reliability(told["late_steps"])),
    )


def _metrics(at: Cursor) -> Metrics:
    return Metrics(
        prompts=at["prompts"].count(),
        tokens=at["tokens"].count(),
        tokens_per_second=_median(at["tokens_per_second"]),
        speedup=_median(at["speedup_vs_ar"]),
        speedup_vs_peer=_median(at["speedup_vs_hf"]),
        tau=_ratio(at["mean_acceptance_length"]),
        acceptance_rate=_ratio(at["acceptance_rate"]),
        draft_efficiency=_ratio(at["draft_efficiency"]),
        ttft=_median(at["ttft_ms"]),
        tpot=_median(at["tpot_ms"]),
        overhead=_median(at["overhead_ms_per_step"]),
        peak_memory=at["peak_memory_mb"].number(),
        predicted_speedup=at["predicted_speedup"].number(),
        identical=at["identical"].count(),
        compared=at["compared"].count(),
        texts=at["texts"].count(),
        looping_texts=at["looping_texts"].count(),
        repeated=_ratio(at["repeated_8grams"]),
        time_share={name: found.number() or 0.0 for name, found in at["time_share"].items()},
        by_depth=tuple(
            DepthRate(found["depth"].count(), found["offered"].count(), _ratio(found["rate"]))
            for found in at["acceptance_by_depth"]
        ),
        by_source=tuple(
            SourceRate(
                source, found["drafted"].count(), found["accepted"].count(), _ratio(found["rate"])
            )
            for source, found in at["acceptance_by_source"].items()
        ),
        by_rank=tuple(
            RankCount(*(found[key].count() for key in ("depth", "rank", "offered", "accepted")))
            for found in at["acceptance_by_rank"]
        ),
    )


def _median(at: Cursor) -> Estimate:
    return Estimate(at["median"].number(), at["low"].number(), at["high"].number())


def _ratio(at: Cursor) -> Estimate:
    return Estimate(at["value"].number(), at["low"].number(), at["high"].number())


def _reliability(at: Cursor) -> Reliability:
    return Reliability(
        steps=at["steps"].count(),
        expected=at["expected"].amount(),
        committed=at["committed"].count(),
        error=_ratio(at["error"]),
        by_source=tuple(
            SourceReliability(
                source=source,
                candidates=found["candidates"].count(),
                expected=found["expected"].amount(),
                taken=found["taken"].count(),
                error=_ratio(found["error"]),
                bins=tuple(
                    Bin(
                        each["candidates"].count(), each["expected"].amount(), each["taken"].count()
                    )
                    for each in found["bins"]
                ),
            )
            for source, found in at["by_source"].items()
        ),
    )


def _divergence(at: Cursor) -> Divergence:
    return Divergence(
        id=at["id"].text(),
        turn=at["turn"].count(),
        position=at["position"].count(),
        expected=at["expected"].maybe_count(),
        found=at["found"].maybe_count(),
        gap=at["gap"].number(),
        bound=at["bound"].number(),
        near_tie=at["near_tie"].maybe_flag(),
    )


def _excerpt(at: Cursor) -> Excerpt:
    return Excerpt(
        method=at["method"].text(),
        id=at["id"].text(),
        task=at["task"].text(),
        prompt=at["prompt"].text(),
        steps=tuple(
            Step(
                route=step["route"].text(),
                drafted=step["drafted"].count(),
                committed=tuple((c["text"].text(), c["source"].text()) for c in step["committed"]),
                rejected=tuple(text.text() for text in step["rejected"]),
            )
            for step in at["steps"]
        ),
        trees=tuple(
            TreeExcerpt(
                step=tree["step"].count(),
                parents=tuple(node.whole() for node in tree["parents"]),
                texts=tuple(text.text() for text in tree["texts"]),
                sources=tuple(source.text() for source in tree["sources"]),
                path=tuple(node.count() for node in tree["path"]),
                bonus=tree["bonus"].text(),
            )
            for tree in at["trees"]
        ),
    )

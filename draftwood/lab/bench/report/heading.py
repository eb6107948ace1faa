"""The head of the page: what was measured, and the result in plain sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from draftwood.lab.bench.document import PEER, REFERENCE, Document, MethodResult
from draftwood.lab.bench.quiet import warning
from draftwood.lab.bench.report.words import interval
from draftwood.lab.bench.verdicts import verdict


def facts(document: Document) -> dict[str, object]:
    """Provenance in short; what is unknown is left out."""
    found = document.provenance
    members = ("model", "hardware", "versions", "git")
    model, hardware, versions, git = (found.get(name) or {} for name in members)
    commit = str(git.get("commit") or "")[:10]
    shown = {
        "date": found.get("date"),
        "model": model.get("name"),
        "dtype": model.get("dtype"),
        "machine": hardware.get("gpu") or _processor(hardware),
        "threads": found.get("threads"),
        "draftwood": versions.get("draftwood"),
        "torch": versions.get("torch"),
        "commit": f"{commit}, with changes" if git.get("dirty") else commit,
    }
    return {name: value for name, value in shown.items() if value not in (None, "")}


def _processor(hardware: Mapping[str, Any]) -> str:
    """The CPU, and the instructions that torch uses on it."""
    parts = (hardware.get("cpu"), hardware.get("cpu_capability"))
    return ", ".join(str(part) for part in parts if part)


def warnings(document: Document) -> list[str]:
    """Warnings if the run was interrupted, or if other processes kept the machine busy."""
    interrupted = (
        "This run was interrupted. The figures are of the runs that had ended by then, and not "
        "every method may have seen the same prompts."
    )
    disturbed = warning(document.provenance)
    return [*([] if document.complete else [interrupted]), *([disturbed] if disturbed else [])]


def sentences(document: Document) -> Iterator[str]:
    """The result in a few sentences."""
    rivals = [
        m
        for m in document.methods.values()
        if m.name != REFERENCE and m.speedup_vs_ar.middle is not None
    ]
    rivals.sort(key=lambda m: m.speedup_vs_ar.middle or 0.0, reverse=True)
    if rivals:
        together = (document.provenance.get("settings") or {}).get("batch", 1)
        yield _fastest(rivals[0], together)
        yield from _over_peers(rivals[0], document.methods.values())
        yield from _close(rivals[0], rivals[1:])
    else:
        yield "No method was compared with plain decoding."
    yield from _equality(document)
    if document.loops:
        yield f"{document.loops}. The figures taken on them are marked; the table can omit them."


def _fastest(best: MethodResult, together: int) -> str:
    speed = best.speedup_vs_ar
    middle = speed.middle or 0.0
    if middle <= 1:
        return (
            f"No method was faster than plain decoding: the fastest, {best.name}, came to "
            f"{middle:.2f} of its speed."
        )
    ends = interval(speed, "{:.2f}", " to ")
    sure = f" (95 % interval {ends})" if ends else ""
    tau = best.mean_acceptance_length.middle
    won = "" if tau is None else f", with {tau:.2f} tokens for each forward of the model"
    return (
        f"{best.name} was the fastest: {middle:.2f} times as fast as plain decoding"
        f"{sure}, the median over {_groups(best, together)}{won}."
    )


def _groups(of: MethodResult, together: int) -> str:
    """What a median is taken over."""
    if together == 1:
        return f"{of.prompts} prompts"
    groups = len({row.group for row in of.rows})
    return f"{groups} groups of up to {together} prompts decoded together"


def _over_peers(best: MethodResult, methods: Iterable[MethodResult]) -> Iterator[str]:
    """The median speed of the fastest method over that of each peer from transformers."""
    own = best.tokens_per_second.middle
    found = [
        f"{own / speed:.2f} times that of {m.name}"
        for m in methods
        if m.name.startswith(PEER) and m is not best
        if own is not None and (speed := m.tokens_per_second.middle)
    ]
    if found:
        yield f"Its median speed is {' and '.join(found)}."


def _close(best: MethodResult, others: Sequence[MethodResult]) -> Iterator[str]:
    """A sentence that names the methods whose intervals overlap with the fastest method's."""
    least = best.speedup_vs_ar.low
    if least is None and others:
        yield "There are too few prompts to tell whether the lead is certain."
    near = [m for m in others if least is not None and (m.speedup_vs_ar.high or 0.0) >= least]
    if near:
        who = f"that of {near[0].name}" if len(near) == 1 else f"those of {len(near)} others"
        yield f"Its interval overlaps with {who}: the lead is not certain."


def _equality(document: Document) -> Iterator[str]:
    compared = [m for m in document.methods.values() if m.compared and m.name != REFERENCE]
    if not compared:
        yield "No output was compared with that of plain decoding."
        return
    wrong = [m for m in compared if m.identical < m.compared]
    if not wrong:
        yield f"All {len(compared)} methods that were compared gave plain decoding's outputs."
        return
    if len(compared) > len(wrong):
        yield (
            f"{len(compared) - len(wrong)} of {len(compared)} methods that were compared gave "
            "plain decoding's outputs."
        )
    for m in wrong:
        yield f"{m.name}: {verdict(m, document.dtype)}."

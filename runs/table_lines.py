"""A benchmark's document in one line for each method."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from scipy.stats import binomtest

from draftwood.lab.bench.aggregate import speeds
from draftwood.lab.bench.document import REFERENCE, Document, MethodResult
from draftwood.lab.bench.figures import RunRow
from draftwood.lab.bench.intervals import Estimate, ends


def lines(name: str, document: Document) -> Iterator[str]:
    """A heading, and a line for each method."""
    note = "" if document.complete else ", incomplete"
    yield f"{name}{note}: tok/s; speed-up over {REFERENCE}; τ; loops; tokens of {REFERENCE}"
    width = max(map(len, document.methods), default=0)
    for each in document.methods.values():
        yield f"  {each.name:<{width}} {figures(each, document.methods[REFERENCE].rows)}"


def figures(method: MethodResult, plain: Sequence[RunRow]) -> str:
    """The figures of one method.

    They are its speed, speed-up and tokens per forward with 95 % intervals, the groups that are
    faster than plain decoding with the p-value of a sign test, the share of repeated 8-grams, and
    how many prompts have plain decoding's tokens.
    """
    parts = [shown(method.tokens_per_second, ".1f")]
    if method.name != REFERENCE:
        faster, groups, p = sign_test(method.rows, plain)
        parts.append(f"{shown(method.speedup_vs_ar, '.2f')} {faster}/{groups} p={p:.1g}")
    parts.append(f"τ {shown(method.mean_acceptance_length, '.2f')}")
    parts.append(f"loops {shown(method.repeated_8grams, '.0%', interval=False)}")
    if method.compared:
        parts.append(equality(method))
    return "; ".join(parts)


def shown(figure: Estimate, form: str, *, interval: bool = True) -> str:
    """A figure, and its interval if that is known."""
    if figure.middle is None:
        return "-"
    known = ends(figure) if interval else None
    middle = format(figure.middle, form)
    return middle if known is None else f"{middle} [{known[0]:{form}}-{known[1]:{form}}]"


def sign_test(rows: Sequence[RunRow], plain: Sequence[RunRow]) -> tuple[int, int, float]:
    """Groups that are faster than plain decoding, groups, and the two-sided p-value.

    A group's speed-up is the median over its seeds.
    """
    fast, slow = speeds(rows), speeds(plain)
    ratios: dict[int, list[float]] = defaultdict(list)
    for key, speed in fast.items():
        if key in slow:
            ratios[key[0]].append(speed / slow[key])
    faster = sum(median(found) > 1 for found in ratios.values())
    if not ratios:
        return 0, 0, 1.0
    return faster, len(ratios), float(binomtest(faster, len(ratios)).pvalue)


def equality(method: MethodResult) -> str:
    """How many prompts have plain decoding's tokens, and why the others differ.

    The gap is the largest one that a first difference had, in logits.
    """
    text = f"same {method.identical}/{method.compared}"
    if method.rounding_prompts:
        text += f", {method.rounding_prompts} rounded"
    if method.fault_prompts:
        text += f", {method.fault_prompts} FAULT"
    gaps = [found.gap for found in method.divergences if found.gap is not None]
    return f"{text} (gap <= {max(gaps):.2g})" if gaps else text

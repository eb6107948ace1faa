"""Results as lines, as JSON and as Markdown that can be pasted into an issue."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from draftwood.files import encode
from draftwood.lab.endpoint.checks._common import Cost
from draftwood.lab.endpoint.curl import curl
from draftwood.lab.endpoint.result import Outcome, Result
from draftwood.lab.endpoint.run import Report

_MARKS: Mapping[Outcome, str] = {
    "passed": "  ok ",
    "failed": "FAIL ",
    "undecided": "  ?  ",
    "not checked": "  -  ",
    "note": "  -  ",
}


_LOSSLESS = ("greedy", "penalties", "distribution")
"""Checks that compare texts with the reference's; the others are of the API as well."""


def plan_line(cost: Cost) -> str:
    """What a run will ask at most."""
    return f"up to {cost.requests} requests, which generate at most {cost.tokens:,} tokens"


def line(result: Result) -> str:
    """A result as one line: outcome, check, what was found."""
    return f"{_MARKS[result.outcome]} {result}"


def verdict(results: Sequence[Result]) -> str:
    """The last line."""
    run = [each for each in results if each.outcome not in ("not checked", "note")]
    failed = [each for each in run if each.outcome == "failed"]
    open_ones = [each for each in run if each.outcome == "undecided"]
    shared = sum(each.shared for each in failed)
    if failed:
        own = any(each.check in _LOSSLESS and not each.shared for each in failed)
        also = f"; {shared} of them fail without speculation as well" if shared else ""
        return f"{'NOT lossless: ' * own}{len(failed)} of {len(run)} checks failed{also}"
    if not run:
        return "nothing was checked"
    if open_ones:
        rest = sum(each.unfinished for each in open_ones)
        kinds = {
            "have a difference without a cause": len(open_ones) - rest,
            "were not finished": rest,
        }
        words = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
        return f"undecided: of {len(run)} checks {words}"
    counts = Counter(each.check for each in run)
    passing = ", ".join(f"{count} {check}" for check, count in counts.items())
    return f"no difference found: all {len(run)} checks passed ({passing})"


def passed(results: Sequence[Result]) -> bool:
    """Whether some check passed, none failed, and none is undecided."""
    outcomes = {each.outcome for each in results}
    return "passed" in outcomes and not outcomes & {"failed", "undecided"}


def document(report: Report) -> dict[str, object]:
    """The report as a JSON object."""
    checks = [
        {
            **encode(each),
            "text": str(each),
            "divergence": each.divergence
            and {**encode(each.divergence), "cause": each.divergence.cause},
            "curl": [curl(request) for request in each.requests],
        }
        for each in report.results
    ]
    for check in checks:
        del check["requests"]
    return {
        "passed": passed(report.results),
        "verdict": verdict(report.results),
        **{k: v for k, v in encode(report).items() if k != "results"},
        "checks": checks,
    }


def markdown(report: Report) -> str:
    """The report as Markdown."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: Report) -> Iterator[str]:
    settings = report.settings
    yield f"## Is it lossless? {verdict(report.results)}"
    yield ""
    yield f"- server: {_code(str(report.endpoint))}, model {_code(report.endpoint.model)}"
    yield f"- reference: {_code(report.reference)}"
    yield f"- date: {report.date}; draftwood {report.version}; {report.sent} requests"
    yield (
        f"- gaps up to {settings.tolerance} count as rounding; {settings.samples} samples a side "
        f"from seed {settings.seed}; {settings.concurrency} requests at once"
    )
    yield f"- prompts: {', '.join(map(_code, report.prompts))}"
    yield ""
    yield "| result | check | what was found |"
    yield "|---|---|---|"
    for each in report.results:
        yield f"| {_WORDS[each.outcome]} | {_cell(each.title)} | {_cell(each.text)} |"
    yield from _divergences(report.results)
    yield from _reproduction(report.results)


_WORDS: Mapping[Outcome, str] = {
    "passed": "ok",
    "failed": "**FAIL**",
    "undecided": "**?**",
    "not checked": "not checked",
    "note": "note",
}


def _divergences(results: Sequence[Result]) -> Iterator[str]:
    found = [(each, each.divergence) for each in results if each.divergence is not None]
    if not found:
        return
    yield ""
    yield "First differences (a gap is the reference's log probability of its own token less that "
    yield "of the other one):"
    yield ""
    yield "| check | after | token | reference | endpoint | gap | cause |"
    yield "|---|---|---|---|---|---|---|"
    for result, each in found:
        gap = "not known" if each.gap is None else f"{each.gap:.3g}"
        cells = (
            result.title,
            repr(each.before),
            "" if each.token is None else str(each.token),
            repr(each.expected),
            repr(each.found),
            f"> {gap}" if each.at_least else gap,
            each.cause,
        )
        yield f"| {' | '.join(map(_cell, cells))} |"


def _reproduction(results: Sequence[Result]) -> Iterator[str]:
    """The requests of the first result that did not pass."""
    bad = [each for each in results if each.outcome in ("failed", "undecided") and each.requests]
    bad.sort(key=lambda each: each.outcome != "failed")
    if not bad:
        return
    first = bad[0]
    yield ""
    yield f"To see it by hand ({first.title}):"
    yield ""
    yield "```bash"
    for who, request in zip(("the endpoint", "the reference"), first.requests, strict=False):
        yield f"# {who}"
        yield curl(request)
    yield "```"


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"


def _cell(text: str) -> str:
    """A text that does not end its cell or its row."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")

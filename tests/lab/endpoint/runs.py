"""Runs of the checks against a toy server."""

from collections.abc import Mapping
from typing import Any

from draftwood.lab.endpoint.comparison import Settings
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.report import line
from draftwood.lab.endpoint.run import Report, Target, Wanted, run
from draftwood.lab.endpoint.tolerance import Tolerance
from tests.factories.toy_server import Toy, serving

PROMPTS = (
    Prompt("first", "the cat saw the dog and the cat"),
    Prompt("second", "in the house there sat a bird, and then"),
)


def settings(samples: int = 0, tolerance: float = 0.01, **changed: Any) -> Settings:
    given: dict[str, Any] = {
        "tolerance": Tolerance(tolerance, "as given"),
        "samples": samples,
        "seed": 0,
        "same_seed": False,
        "concurrency": 4,
        "sampled_prompt": Prompt("samples", "the cat saw the dog"),
    }
    return Settings(**{**given, **changed})


def wanted(url: str, chosen: Settings, **changed: Any) -> Wanted:
    given: dict[str, Any] = {
        "endpoint": Target(url),
        "reference": None,
        "plain": None,
        "api": "auto",
        "prompts": PROMPTS,
        "settings": chosen,
        "timeout": 30.0,
        "most": 2000,
    }
    return Wanted(**{**given, **changed})


def checked(toy: Toy, chosen: Settings | None = None, **changed: Any) -> Report:
    """A run against a server of this toy, whose own switch gives the reference."""
    with serving(toy) as url:
        return run(wanted(url, chosen or settings(), **changed))


def outcomes(report: Report) -> Mapping[str, set[str]]:
    """Names of the checks by outcome."""
    found: dict[str, set[str]] = {}
    for each in report.results:
        found.setdefault(each.outcome, set()).add(each.check)
    return found


def lines(report: Report) -> str:
    return "\n".join(map(line, report.results))

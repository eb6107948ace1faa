"""Stored runs: gzipped JSON files in runs/data, which of them are refused, and their origin.

A stored run is a document of ``draftwood bench`` without excerpts, rows and the figures that no
page reads, or what another command printed, whole. Two members are added: ``made_by`` (script,
part and the environment of the call) and ``times`` (whether its times may be shown). If other
processes disturbed the run, its times are removed; a run that has nothing but times is refused.
"""

import gzip
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click

from draftwood.lab.bench.document import SCHEMA
from draftwood.lab.bench.intervals import FEWEST
from draftwood.lab.bench.quiet import objection

Run: TypeAlias = dict[str, Any]
"""A stored run."""
Runs: TypeAlias = dict[str, Run]
"""Stored runs by name."""

LARGEST = 500_000
"""Bytes that no file may exceed."""

SCRIPTS = Path(__file__).parents[1]

FIGURES = frozenset(
    [
        *("prompts", "tokens", "texts", "looping_texts", "repeated_8grams"),
        *("mean_acceptance_length", "acceptance_rate", "draft_efficiency"),
        "acceptance_by_source",
        *("identical", "compared", "near_ties", "divergences", "settings"),
    ]
)
TIMES = frozenset(["tokens_per_second", "speedup_vs_ar", "ttft_ms", "tpot_ms"])
PREDICTED = frozenset(["predicted_speedup", "predicted_speedup_with_verification"])
"""Members of a method's entry that pages read; the last two kinds are times."""

UNTIMED = frozenset(
    [
        *("checks", "lossless", "peak_memory", "methods"),
        *("modelled", "oracles", "rivals", "queues", "left_out", "shapes"),
    ]
)
TIMED = frozenset(
    [
        *("cost_ms_by_nodes", "reading", "steps", "host_work", "index_memory"),
        *("memory_recipes", "verifying_ms", "milliseconds_by_threads", "first_token"),
        "server_load",
    ]
)
"""Members of what other commands print: without times, and with."""

UNKNOWN = {"median": None, "low": None, "high": None}


def compact(run: Mapping[str, Any], script: str, part: str, environment: str = "") -> Run:
    """Reduce a run to what is stored.

    Args:
        run: the output of ``draftwood bench`` or of another command.
        script: name of the file in ``runs/`` that called the command.
        part: part of the script.
        environment: variables that it was called with, as in a command; without directories.

    Raises:
        ClickException: nothing but disturbed times, or a member that is neither in ``TIMED`` nor in
            ``UNTIMED``.
    """
    made_by = {"script": script, "part": part}
    if environment:
        made_by["environment"] = environment
    stored = {**run, "made_by": made_by}
    disturbed = objection(run)
    if "schema" in run:
        stored["times"] = disturbed is None
        stored["methods"] = {
            name: _entry(entry, times=stored["times"]) for name, entry in run["methods"].items()
        }
        stored.pop("excerpts", None)
        stored.pop("best", None)
    else:
        members = run.keys() - {"provenance"}
        if unknown := members - UNTIMED - TIMED:
            raise click.ClickException(
                f"nobody knows whether there are times in {', '.join(sorted(unknown))}: "
                "name them in TIMED or UNTIMED of results_page/stored.py"
            )
        stored["times"] = bool(members & TIMED)
        if stored["times"] and disturbed is not None:
            raise click.ClickException(f"its times may not be shown: {disturbed}")
    found: Run = _without_directories(stored)
    return found


def _entry(entry: Mapping[str, Any], *, times: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: entry[name] for name in FIGURES & entry.keys()}
    found |= {name: entry[name] if times else UNKNOWN for name in TIMES & entry.keys()}
    found |= {name: entry[name] if times else None for name in PREDICTED & entry.keys()}
    if "without_looping" in entry:
        found["without_looping"] = _entry(entry["without_looping"], times=times)
    for group in ("by_set", "by_task"):
        if group in entry:
            found[group] = {k: _entry(v, times=times) for k, v in entry[group].items()}
    return found


def _without_directories(found: Any) -> Any:
    """Remove directories of the measuring machine from names of files."""
    if isinstance(found, str):
        # What follows a name and a colon is a directory, what follows a scheme and :// is not.
        return re.sub(r"(?<![\w/])/(?!/)[\w./-]*/", "", found)
    if isinstance(found, Mapping):
        return {
            _without_directories(key): _without_directories(value) for key, value in found.items()
        }
    if isinstance(found, list):
        return [_without_directories(value) for value in found]
    return found


def write(run: Run, directory: Path, name: str) -> None:
    """Write a stored run and its provenance.

    Raises:
        ClickException: the file would exceed ``LARGEST``.
    """
    packed = gzip.compress(json.dumps(run).encode(), mtime=0)
    if len(packed) > LARGEST:
        raise click.ClickException(f"it has {len(packed)} bytes, more than {LARGEST}")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json.gz").write_bytes(packed)
    origin = {"made_by": run["made_by"], **run["provenance"]}
    text = json.dumps(origin, indent=1, sort_keys=True, ensure_ascii=False)
    (directory / f"{name}.provenance.json").write_text(text + "\n", encoding="utf-8")


def load(directory: Path) -> Runs:
    """Read all stored runs of a directory.

    Raises:
        ClickException: one of them is refused.
    """
    found = {}
    for path in sorted(directory.glob("*.json.gz")):
        run: Run = json.loads(gzip.decompress(path.read_bytes()))
        if wrong := complaint(run):
            raise click.ClickException(f"{path.name} may not be printed: {wrong}")
        found[path.name.removesuffix(".json.gz")] = _without_few(run)
    return found


def _without_few(run: Run) -> Run:
    """Remove the intervals of too few groups, which runs of earlier versions have."""
    if "schema" in run:
        batch = run["provenance"]["settings"]["batch"]
        methods = {name: _confident(entry, batch) for name, entry in run["methods"].items()}
        return {**run, "methods": methods}
    if "memory_recipes" not in run:
        return run
    recipes = {
        recipe: {
            **found,
            "passes": {
                name: _without_ends(each, few=each["prompts"] < FEWEST)
                for name, each in found["passes"].items()
            },
        }
        for recipe, found in run["memory_recipes"].items()
    }
    return {**run, "memory_recipes": recipes}


def _confident(entry: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """An entry of a method, or a part of one, without intervals of too few groups."""
    parts = {
        group: {name: _confident(part, batch) for name, part in entry[group].items()}
        for group in ("by_set", "by_task")
        if group in entry
    }
    if "without_looping" in entry:
        parts["without_looping"] = _confident(entry["without_looping"], batch)
    whole: Iterable[Mapping[str, Any]] = entry.get("by_set", {"": entry}).values()
    groups = sum(-(-each["prompts"] // batch) for each in whole)
    return {**_without_ends(entry, few=groups < FEWEST), **parts}


def _without_ends(entry: Any, *, few: bool) -> Any:
    if not few or not isinstance(entry, Mapping):
        return entry
    known = {name: _without_ends(each, few=few) for name, each in entry.items()}
    return {**known, "low": None, "high": None} if known.keys() >= {"low", "high"} else known


def complaint(run: Run) -> str:
    """Explain why a stored run is refused; empty if it is not."""
    if run.get("schema", SCHEMA) != SCHEMA:
        return (
            f"it has schema {run['schema']}, and this script reads schema {SCHEMA}: run the "
            "benchmark again with this version of Draftwood"
        )
    if not run.get("complete", True):
        return "it was interrupted: call its script again"
    git = run["provenance"].get("git")
    if not git or not git.get("commit"):
        return "it does not say at which commit it was made"
    if git.get("dirty"):
        return "there were changes beside its commit"
    made_by = run.get("made_by", {})
    script = SCRIPTS / made_by.get("script", "-")
    if not script.is_file() or not _has_part(script.read_text(encoding="utf-8"), made_by["part"]):
        return f"no part of a script in runs/ makes it: {made_by}"
    disturbed = objection(run)
    if run["times"] and disturbed is not None:
        return f"it has times, and {disturbed}"
    return ""


def _has_part(script: str, part: str) -> bool:
    parts = re.search(r'^run "([^"]*)" "\$@"$', script, re.MULTILINE)
    return parts is not None and part in parts[1].split()


LEAD = "smollm2_"
"""Runs on SmolLM2-135M-Instruct have names that begin so; the others are of the embedded pair."""


def both(runs: Runs, name: str) -> Iterator[tuple[str, Run]]:
    """Find a run by its name: that on SmolLM2, then that of the embedded pair."""
    for each in (f"{LEAD}{name}", name):
        if each in runs:
            yield each, runs[each]


INFLATED = f"{LEAD}inflated_"
"""Runs on SmolLM2 with the matrices of a larger model."""


HYBRID = "hybrid_"
"""Runs on a small model with recurrent layers."""


def leading(runs: Runs) -> Runs:
    """Select the runs on SmolLM2 as it is."""
    return {
        name: run
        for name, run in runs.items()
        if name.startswith(LEAD) and not name.startswith(INFLATED)
    }


def inflated(runs: Runs) -> Runs:
    """Select the runs on SmolLM2 with the matrices of a larger model."""
    return {name: run for name, run in runs.items() if name.startswith(INFLATED)}


def hybrid(runs: Runs) -> Runs:
    """Select the runs on a small model with recurrent layers."""
    return {name: run for name, run in runs.items() if name.startswith(HYBRID)}


def embedded(runs: Runs) -> Runs:
    """Select the runs on the embedded pair."""
    return {name: run for name, run in runs.items() if not name.startswith((LEAD, HYBRID))}


def benchmarks(runs: Runs) -> Runs:
    """Select the runs of ``draftwood bench``."""
    return {name: run for name, run in runs.items() if "schema" in run}


def commit(run: Run) -> str:
    """Name the commit that a run measured, in seven digits."""
    return str(run["provenance"]["git"]["commit"])[:7]


def mode(run: Run) -> tuple[str, str, str]:
    """Describe model, sampling and batch of a benchmark."""
    model, settings = run["provenance"]["model"], run["provenance"]["settings"]
    temperature = settings["sampling"]["temperature"]
    return (
        f"{model['name']} ({model['parameters'] / 1e6:,.3g} M, {model['dtype']})",
        f"temperature {temperature:g}" if temperature else "greedy",
        f"batch {settings['batch']}",
    )


def described(run: Run) -> str:
    """Describe model, sampling and batch of a benchmark in one phrase."""
    return ", ".join(mode(run))


def command(run: Run) -> str:
    """The command that made a run: environment, script and part."""
    made_by = run["made_by"]
    environment = made_by.get("environment", _environment(run))
    return f"{environment} runs/{made_by['script']} {made_by['part']}".strip()


def _environment(run: Run) -> str:
    """The environment of a run that was stored without one, as far as its settings tell."""
    settings, model = run["provenance"].get("settings", {}), run["provenance"].get("model", {})
    found: dict[str, object] = {}
    if run["made_by"]["script"].startswith("paper_"):  # others have a model of their own
        if model.get("name", "embedded") != "embedded":
            found["MODEL"] = model["name"]
            if settings.get("chat"):
                found["CHAT"] = 1
        if isinstance(settings.get("seeds"), str):
            found["SEEDS"] = shlex.quote(settings["seeds"].replace(",", " "))
    for name, setting in (("LIMIT", "limit"), ("TOKENS", "max_new_tokens")):
        if isinstance(settings.get(setting), int):
            found[name] = settings[setting]
    return " ".join(f"{name}={value}" for name, value in found.items())


def machine(run: Run) -> str:
    """Name the processor and the commit that a run measured."""
    cpu = run["provenance"].get("hardware", {}).get("cpu", "-")
    return f"{cpu}, `{commit(run)}`"


def date(run: Run) -> str:
    """Day on which a run began."""
    return str(run["provenance"]["date"])[:10]


def link(name: str, text: str | None = None) -> str:
    """Link from docs/results.md to the page of a run."""
    return f"[{text or name}](../runs/data/{name}.md)"

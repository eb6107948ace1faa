"""Runs that are stored, and runs that are refused."""

import gzip
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from click.testing import CliRunner, Result

from draftwood.lab.bench.document import SCHEMA
from runs.results_page import stored as module
from runs.results_page.readme import BEGIN, END
from runs.results_page.stored import command, compact, complaint, load, write
from tests.runs.stored_runs import BUSY, ROOT, bench, origin, stored, timed

pytestmark = pytest.mark.slow

METHODS = {"ar": timed(10, 10), "goose": timed(15, 15)}
MEMORY = {"peak_memory": {"ar": {"peak_mb": 512.0, "tokens": 9}}}


def test_a_stored_run_has_no_directories_and_its_provenance_beside_it(tmp_path: Path) -> None:
    asked = "draftwood bench --prompts /home/me/a.jsonl,/home/me/b.jsonl --json runs/out/x.json"
    sets = [{"file": "/home/me/a.jsonl", "sha256": "0"}, {"file": "edit:/home/me/b.jsonl"}]
    facts = origin(command=asked, prompts=sets, at="https://x.org/a/b")
    write(stored({"provenance": facts, **MEMORY}, "paper_dynatree.sh memory"), tmp_path, "memory")
    facts_stored = json.loads((tmp_path / "memory.provenance.json").read_text())
    assert "/home" not in json.dumps(facts_stored)
    assert [each["file"] for each in facts_stored["prompts"]] == ["a.jsonl", "edit:b.jsonl"]
    assert facts_stored["at"] == "https://x.org/a/b"
    assert facts_stored["made_by"] == {"script": "paper_dynatree.sh", "part": "memory"}
    found = load(tmp_path)["memory"]
    assert {"made_by": found["made_by"], **found["provenance"]} == facts_stored


def test_methods_of_a_stored_run_have_no_directories() -> None:
    table = "/home/me/table.safetensors"
    run = bench({"ar": timed(10), f"goose:adjacency.table={table}": timed(15)})
    run["methods"][f"goose:adjacency.table={table}"]["settings"] = {"adjacency.table": table}
    found = stored(run)["methods"]["goose:adjacency.table=table.safetensors"]
    assert found["settings"] == {"adjacency.table": "table.safetensors"}


def test_only_figures_that_pages_read_are_stored() -> None:
    found = stored(bench(METHODS))
    assert "excerpts" not in found
    entry = found["methods"]["goose"]
    assert not {"acceptance_by_rank", "time_share", "rows"} & entry.keys()
    assert entry["tokens_per_second"]["median"] == 15


@pytest.mark.parametrize(
    ("run", "part", "message"),
    [
        (bench(METHODS, provenance=origin(other_processes=BUSY)), "equality.sh law", "it has time"),
        (bench(METHODS) | {"complete": False}, "equality.sh law", "interrupted"),
        (bench(METHODS) | {"schema": SCHEMA + 1}, "equality.sh law", f"reads schema {SCHEMA}"),
        ({"provenance": origin(git={"commit": "a", "dirty": True})}, "equality.sh law", "changes"),
        ({"provenance": origin(git=None)}, "equality.sh law", "at which commit"),
        ({"provenance": origin()}, "equality.sh speed", "no part of a script in runs/"),
        ({"provenance": origin()}, "private.sh law", "no part of a script in runs/"),
    ],
)
def test_a_run_that_may_not_be_published_is_refused(
    tmp_path: Path, run: dict[str, Any], part: str, message: str
) -> None:
    wrong = stored(run, part)
    wrong["times"] |= "it has times".startswith(message)  # as if stored by hand
    assert message in complaint(wrong)
    write(wrong, tmp_path, "wrong")
    with pytest.raises(ClickException, match=r"wrong.json.gz may not be printed"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("member", "message"),
    [("verifying_ms", "other processes used 10%"), ("seconds", "nobody knows")],
)
def test_times_of_other_commands_are_known_and_refused(member: str, message: str) -> None:
    with pytest.raises(ClickException, match=message):
        stored({"provenance": origin(other_processes=BUSY), member: {}})


def test_a_large_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 50)
    with pytest.raises(ClickException, match="more than 50"):
        write(stored(bench(METHODS)), tmp_path, "large")


def call(script: str, *arguments: object) -> Result:
    """Run a script of runs/ as Python does: modules are first looked for beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "runs")
        main = runpy.run_path(str(ROOT / "runs" / script))["main"]
        return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_command_of_a_run_has_its_environment() -> None:
    provenance = origin(model={"name": "smollm2", "parameters": 135e6, "dtype": "float32"})
    provenance["settings"] |= {"limit": 2, "chat": True, "max_new_tokens": 256}
    run = bench(METHODS, provenance=provenance)
    derived = "MODEL=smollm2 CHAT=1 LIMIT=2 TOKENS=256 runs/paper_goose.sh tau"
    assert command(compact(run, "paper_goose.sh", "tau")) == derived
    noted = compact(run, "paper_goose.sh", "tau", "MODEL=/data/models/smollm2 LIMIT=3")
    assert command(noted) == "MODEL=smollm2 LIMIT=3 runs/paper_goose.sh tau"
    assert command(compact(run, "smollm2/grid.sh", "greedy")).startswith("LIMIT=2 TOKENS=256 runs")
    law = {"provenance": origin(settings={"seeds": "1,2"}), "checks": {}}
    made = command(compact(law, "paper_traversal.sh", "law"))
    assert made == "SEEDS='1 2' runs/paper_traversal.sh law"


def test_results_are_stored_from_where_scripts_leave_them_and_get_pages(tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "runs" / "data"
    for directory in (out, tmp_path / "docs"):
        directory.mkdir()
    run = {"provenance": origin(), **MEMORY}
    for name, found in {"memory": run, "other": run | {"provenance": origin(git=None)}}.items():
        (out / f"{name}.json").write_text(json.dumps(found))
        (out / f"{name}.part_of").write_text("paper_dynatree.sh memory\nTOKENS=9\n")
    done = call("keep.py", "--out", out, "--data", data)
    assert done.exit_code == 1
    assert "other is not stored: it does not say at which commit" in done.output
    assert [path.name for path in data.glob("*.gz")] == ["memory.json.gz"]
    assert json.loads(gzip.decompress((data / "memory.json.gz").read_bytes()))["times"] is False

    (tmp_path / "README.md").write_text(f"a\n{BEGIN}{END}b\n")
    done = call("results.py", "--root", tmp_path)
    assert done.exit_code == 0, done.output
    assert "is not measured yet" in (tmp_path / "README.md").read_text()
    shown = (data / "memory.md").read_text(encoding="utf-8")
    assert "| `ar` | 512 |" in shown
    assert "Made by `TOKENS=9 runs/paper_dynatree.sh memory`" in shown
    links = re.findall(r"\]\((\S+)\)", (tmp_path / "docs" / "results.md").read_text("utf-8"))
    assert "../runs/data/memory.md" in links
    assert all((tmp_path / "docs" / link).exists() for link in links if "README" not in link)

"""Every part of every script calls commands that exist, with methods that exist; nothing is run.

A stand-in for the interpreter writes down what a script calls and leaves results of the right kind.
"""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from draftwood import cli
from draftwood.lab.bench.contenders import choose
from draftwood.methods import method
from runs.contenders import contenders

pytestmark = pytest.mark.slow

RUNS = Path(__file__).parents[2] / "runs"
SETS = ["humaneval", "mbpp", "classeval", "gsm8k_test", "mt_bench", "wikitext2_test"]
SETS += ["spec_bench", "pg_prompts"]
STAND_IN = """#!{python} -IS
import json, os, sys
arguments = sys.argv[1:]
if arguments[0].endswith("contenders.py"):
    print({names!r}[" ".join(arguments[1:])])
    raise SystemExit
if arguments[0] == "-c":
    print("hf")
    raise SystemExit
with open({log!r}, "a") as log:
    log.write(json.dumps(arguments) + "\\n")
if arguments[2:3] == ["train"]:
    place = arguments[arguments.index("--out") + 1] + "/" + arguments[3] + "/model"
    os.makedirs(place)
    open(place + "/provenance.json", "w").close()
elif "--json" in arguments[:-1]:
    with open(arguments[arguments.index("--json") + 1], "w") as out:
        out.write('{{\\n "complete": true\\n}}\\n')
elif "--out" in arguments:
    open(arguments[arguments.index("--out") + 1], "w").close()
elif "inflate" in arguments:
    os.makedirs(arguments[-1])
    open(arguments[-1] + "/provenance.json", "w").close()
else:
    print("{{}}")
"""


NAMES = {
    " ".join((promise, *drafters)): ",".join(contenders(promise, drafters))
    for promise in ("all", "tokens:0.8", "law:0.8")
    for drafters in (["model"], ["eagle3"], ["model", "eagle3"])
}
"""What contenders.py prints, so that it need not be run again and again."""


SERVING = ("server_load.sh", "server_mix.sh")
"""They wait for a server, which the stand-in is not."""


def scripts() -> list[str]:
    """All but those that wait for a server."""
    found = [str(path.relative_to(RUNS)) for path in sorted(RUNS.rglob("*.sh")) if parts(path)]
    return [name for name in found if name not in SERVING]


def parts(path: Path) -> list[str]:
    found = re.search(r'^run "([^"]*)" "\$@"$', path.read_text(), re.MULTILINE)
    return found[1].split() if found else []


def called(script: str, directory: Path, **more: str) -> list[list[str]]:
    """The commands of a script, each as its arguments behind the interpreter.

    Variables of its environment are given as keywords.
    """
    python, log = directory / "python", directory / "log"
    python.write_text(STAND_IN.format(python=sys.executable, log=str(log), names=NAMES))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    for name in SETS:
        (directory / f"{name}.jsonl").touch()
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("MINUTES", "LIMIT", "TOKENS", "SIZES")},
        "PYTHON": str(python),
        "PROMPTS": str(directory),
        "OUT": str(directory / "out"),
        "DATA": str(directory),
        "SGLANG": str(python),
        "VLLM": str(python),
        "TINY": "1",
        **more,
    }
    done = subprocess.run(
        [str(RUNS / script)],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in log.read_text().splitlines()]


LLAMA_CPP = ("llamacpp", "llamacpp-lookup")


def known(arguments: list[str]) -> None:
    """Raises if a command of ours is none, or a method that it names."""
    if arguments[0] == "-m" and arguments[1] != "pytest":
        assert arguments[1] == "draftwood", shlex.join(arguments)
        name, *rest = arguments[2:]
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None, name
        if isinstance(command, click.Group):
            name, *rest = rest
            command = command.get_command(click.Context(command), name)
            assert command is not None, name
        if name == "check-lossless":
            words = [word for word in rest if re.fullmatch(r"[a-z][\w:=.\-]*", word)]
            for word in words:
                if not word.replace(".", "").isdigit() and word != "float32":
                    method(word)
            return
        flags = {
            flag for option in command.params for flag in (*option.opts, *option.secondary_opts)
        }
        assert {word for word in rest if word.startswith("--")} <= flags, shlex.join(rest)
    if "--methods" in arguments:
        named = arguments[arguments.index("--methods") + 1].split(",")
        # Its package is not among those that tests have.
        choose([name for name in named if name.partition(":")[0] not in LLAMA_CPP])


@pytest.mark.parametrize("script", scripts())
def test_every_part_calls_what_exists(script: str, tmp_path: Path) -> None:
    found = called(script, tmp_path)
    assert found
    for arguments in found:
        known(arguments)


DRAFTS = {"DRAFT": "embedded-draft", "HEAD": "embedded-eagle3"}


def test_the_grid_has_all_cells_of_a_chat_model(tmp_path: Path) -> None:
    found = called("smollm2/grid.sh", tmp_path, **DRAFTS, FURTHER="goose:budget=8")
    cells = {}
    shapes = set()
    for arguments in found:
        known(arguments)
        assert "--chat" in arguments
        given = {flag: arguments[i + 1] for i, flag in enumerate(arguments[:-1])}
        methods = given["--methods"].split(",")
        if "auto:shape=chain" in methods:
            assert methods == ["ar", "auto", "auto:shape=chain"]
            shapes.add((given["--batch"], given.get("--temperature", "0")))
            continue
        assert {"ar", "auto", "goose:budget=8", "hf"} <= set(methods)
        small = len(given["--prompts"].split(",")) == 4
        batch = given.get("--batch", "1")
        assert ("eagle3:budget=16:levels=4" in methods) == (batch != "16")
        drafts = small and batch != "16" and given["--dtype"] != "int8"
        assert ("sd:budget=5:draft=embedded-draft" in methods) == drafts
        assert "--draft" not in arguments, "auto drafts with the head"
        if given["--dtype"] == "int8":
            assert {"llamacpp:weights=q8_0", "llamacpp-lookup:weights=q4_1"} <= set(methods)
            continue
        key = (given["--dtype"], batch, given.get("--temperature", "0"))
        cells[*key, small] = given["--prompts"].count(",") + 1
    assert shapes == {(batch, heat) for batch in ("1", "4", "16") for heat in ("0", "1")}
    assert len(found) - len(shapes) - 1 == len(cells) == 20
    assert {key for key, sets in cells.items() if sets == 8} == {
        ("float32", "1", "0", False),
        ("float32", "1", "0.7", False),
    }
    assert set(cells.values()) == {4, 8}


SMALL_MODEL = ("sd", "talon", "dynatree", "opt-tree", "sequoia")
PAPERS = ("paper_goose.sh", "paper_dynatree.sh", "paper_talon.sh", "paper_traversal.sh")


@pytest.mark.parametrize("drafts", [("HEAD",), ("DRAFT", "HEAD")])
@pytest.mark.parametrize("script", PAPERS)
def test_the_papers_are_measured_on_another_model(
    script: str, drafts: tuple[str, ...], tmp_path: Path
) -> None:
    given = {name: DRAFTS[name] for name in drafts}
    found = called(script, tmp_path, MODEL="somewhere/smollm2", CHAT="1", **given)
    for arguments in found:
        known(arguments)
        if "--model" not in arguments:
            continue
        assert arguments[arguments.index("--model") + 1] == "somewhere/smollm2"
        assert "--chat" in arguments
        methods = arguments[arguments.index("--methods") + 1].split(",")
        if "--draft" not in arguments:
            drafting = [n for n in methods if n.startswith(SMALL_MODEL)]
            assert all("drafter=eagle3" in name for name in drafting)
    results = {path.stem for path in (tmp_path / "out").glob("*.part_of")}
    assert {name.split("_")[0] for name in results} == {"smollm2"}


def test_another_model_needs_a_head_where_there_is_no_draft_model(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="an EAGLE-3 head for somewhere"):
        called("paper_talon.sh", tmp_path, MODEL="somewhere")


def test_without_a_head_the_grid_leaves_out_what_needs_one(tmp_path: Path) -> None:
    for arguments in called("smollm2/grid.sh", tmp_path, MODEL="somewhere"):
        assert "--head" not in arguments
        assert "eagle3" not in arguments[arguments.index("--methods") + 1]


@pytest.mark.parametrize("script", ["smollm2/grid.sh", "smollm2/modelled.sh"])
def test_the_head_of_a_chat_model_is_the_shipped_one(script: str, tmp_path: Path) -> None:
    found = called(script, tmp_path)
    assert any("smollm2-eagle3" in each for arguments in found for each in arguments)


def test_a_result_names_the_script_by_its_place(tmp_path: Path) -> None:
    called("smollm2/grid.sh", tmp_path)
    named = (tmp_path / "out" / "smollm2_greedy.part_of").read_text()
    assert named == "smollm2/grid.sh greedy\nTINY=1\n"


def test_a_result_names_the_environment_of_the_call(tmp_path: Path) -> None:
    called("paper_goose.sh", tmp_path, MODEL="somewhere/smollm2", LIMIT="2", CHAT="1", HEAD="a b")
    named = (tmp_path / "out" / "smollm2_tau_greedy.part_of").read_text()
    lines = named.splitlines()
    assert lines == [
        "paper_goose.sh tau",
        r"MODEL=somewhere/smollm2 HEAD=a\ b CHAT=1 LIMIT=2 TINY=1",
    ]


def test_every_variable_of_a_script_is_noted_or_a_place() -> None:
    places = {"ASSETS", "DATA", "MINUTES", "OUT", "PORT", "PROMPTS", "PYTHON", "SGLANG", "VLLM"}
    parts = (RUNS / "parts.sh").read_text(encoding="utf-8")
    [listed] = re.findall(r"^variables=\(([^)]*)\)", parts, re.MULTILINE)
    noted = set(listed.split())
    for script in RUNS.glob("**/*.sh"):
        declared = re.findall(r"\$\{([A-Z_]+):?[-?]", script.read_text(encoding="utf-8"))
        assert set(declared) <= noted | places, script


def test_the_readme_names_every_script_and_its_parts() -> None:
    readme = (RUNS / "README.md").read_text(encoding="utf-8")
    for script in (*scripts(), *SERVING):
        line = next(line for line in readme.splitlines() if line.startswith(f"| `{script}`"))
        assert set(parts(RUNS / script)) <= set(re.findall(r"`(\w+)`", line)), script

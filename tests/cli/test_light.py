"""Help and refusals come before torch is imported, which takes seconds."""

import json
import subprocess
import sys
from typing import Any

import click
import pytest

from draftwood import cli

_RUN = """
import io, json, sys, contextlib
from draftwood import cli
found = []
for argv in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(argv)
        except SystemExit as stop:
            code = stop.code
    loaded = sorted({"torch", "transformers"} & set(sys.modules))
    found.append([code, out.getvalue(), err.getvalue(), loaded])
print(json.dumps(found))
"""

NAMES = [name for entries in cli.SECTIONS.values() for name in entries]
TRAIN = ("tokenizer", "target", "draft", "eagle3")


def run_light(*argvs: list[str]) -> list[tuple[int, str, str, list[str]]]:
    """Exit code, output, errors and heavy modules of each command line, in one process."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(argvs)], capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(done.stdout)
    return [tuple(each) for each in found]


def test_help_of_everything_loads_no_torch() -> None:
    argvs = [[], ["--help"], *([name, "--help"] for name in NAMES)]
    argvs += [["train", name, "--help"] for name in TRAIN]
    for argv, (code, out, err, loaded) in zip(argvs, run_light(*argvs), strict=True):
        assert (code, err, loaded) == (0, "", []), argv
        assert out.startswith("Usage: draftwood"), argv


def test_methods_loads_no_torch() -> None:
    listed, goose, auto = run_light(["methods"], ["methods", "goose"], ["methods", "auto"])
    for code, out, err, loaded in (listed, goose, auto):
        assert (code, err, loaded) == (0, "", [])
        assert max(map(len, out.splitlines())) <= 80
    assert "goose-eagle3 " in listed[1]


def test_cache_loads_no_torch() -> None:
    [(code, out, err, loaded)] = run_light(["cache"])
    assert (code, err, loaded) == (0, "", [])
    assert "entr" in out


WRONG: list[tuple[list[str], str]] = [
    (["generat"], "No such command 'generat': did you mean 'generate'?"),
    (["xyzzy"], "No such command 'xyzzy': 'draftwood --help' lists them"),
    (["generate", "x", "--method", "gose"], "unknown method 'gose': did you mean 'goose'?"),
    (["generate", "x", "--bugdet", "4"], "No such option '--bugdet'. Did you mean '--budget'?"),
    (["generate", "--bugdet", "4", "x"], "No such option '--bugdet'. Did you mean '--budget'?"),
    (["generate", "x", "--stream"], "No such option '--stream': text is streamed as it is"),
    (["generate", "x", "--verbos"], "No such option '--verbos'"),
    (["generate", "-v", "hi"], "No such option '-v': it goes before the command"),
    (["generate", "hi", "-n", "5"], "No such option '-n': did you mean --max-new-tokens?"),
    (["generate", "--prompt", "hi"], "No such option '--prompt': give the prompt as an argument"),
    (["generate", "hi", "--max-tokens", "5"], "did you mean --max-new-tokens?"),
    (["generate", "hello", "world"], "unexpected argument 'world': quote a prompt that has spaces"),
    (["generate", "x", "--draft-model", "p"], "No such option '--draft-model': did you mean"),
    (["generate", "x", "--draft", "eagle3"], "write drafter=eagle3"),
    (["generate", "x", "--drafter", "foo"], "there is no 'foo' among drafters"),
    (
        ["generate", "x", "--method", "goose", "--draft", "p"],
        "goose drafts without a model: use --method auto --draft p, "
        "or goose:adjacency=model:draft=p",
    ),
    (["generate", "x", "--method", "goose", "--draft", "p", "--spine", "off"], "without a model"),
    (["generate", "x", "--method", "ar", "--budget", "3"], "'ar' has no setting 'budget'"),
    (["generate", "x", "--method", "goose", "--layout", "drawn"], "No such option '--layout'"),
    (["generate", "x", "--budget", "many"], "expected an integer"),
    (["generate", "x", "--budget", "-4"], "budget is -4"),
    (["generate", "x", "--budget"], "Option '--budget' requires an argument"),
    (["generate", "x", "--device", "mps"], "device 'mps' cannot be used here: Draftwood runs on"),
    (["replay", "x", "--device", "xpu:0"], "device 'xpu:0' cannot be used here"),
    (["generate", "x", "--threads", "100000"], "'--threads': 100000 is not in the range"),
    (["replay", "x", "--threads", "100000"], "'--threads': 100000 is not in the range"),
    (
        ["train", "target", "--data", "x", "--out", "x", "--threads", "100000"],
        "'--threads': 100000 is not in the range",
    ),
    (
        ["theory", "--ps", "0.9", "--pt", "0.5", "--depth", "100000000"],
        "'--depth': 100000000 is not in the range",
    ),
    (["tree", "x", "--method", "gose"], "did you mean 'goose'?"),
    (["methods", "gose"], "did you mean 'goose'?"),
    (["check-lossless", "goose", "--bugdet", "4"], "Did you mean '--budget'"),
    (["bench", "--prompts", "x", "--methods", "ar,gose"], "did you mean 'goose'?"),
    (["bench", "--prompts", "x", "--methods", "ar,goose:bugdet=3"], "did you mean 'budget'?"),
    (["bench", "--prompt", "x"], "No such option '--prompt'"),
    (["replay", "x", "--methods", "gose"], "did you mean 'goose'?"),
    (["simulate", "--methods", "gose"], "did you mean 'goose'?"),
    (["calibrate", "x", "--prompts", "x", "--methods", "gose"], "did you mean 'goose'?"),
    *(([name, "--nonsense", "1"], "No such option '--nonsense'") for name in NAMES),
]


def test_wrong_commands_and_flags_are_refused_before_torch_is_loaded() -> None:
    found = run_light(*(argv for argv, _ in WRONG))
    for (argv, complaint), (code, out, err, loaded) in zip(WRONG, found, strict=True):
        assert complaint in err, argv
        assert (code, out, loaded) == (2, "", []), argv
        assert len(err.splitlines()) == 1, argv


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    """All commands below a group with their names."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


@pytest.mark.parametrize(("path", "command"), commands(cli.cli))
def test_every_flag_is_explained(path: tuple[str, ...], command: click.Command) -> None:
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{' '.join(path)} {param.opts[0]}"
            assert not param.help.endswith("..."), f"{' '.join(path)} {param.opts[0]}"
            assert not param.help.startswith("..."), f"{' '.join(path)} {param.opts[0]}"
    assert command.help
    if path[0] != "train":
        assert command.help.splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize("name", NAMES)
def test_summaries_are_whole_sentences_of_one_line(name: str) -> None:
    (summary,) = [entries[name] for entries in cli.SECTIONS.values() if name in entries]
    assert summary.endswith(".")
    assert len(name) + len(summary) < 72


@pytest.mark.parametrize("name", ["generate", "tree", "bench", "tune", "check-lossless"])
def test_the_main_commands_show_examples(name: str) -> None:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    assert f"draftwood {name}" in (command.epilog or "")

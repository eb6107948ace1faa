"""``python -m tests.cli_page`` writes docs/cli.md, the help of all commands, from the commands.

A test compares the two. Settings of methods are left out: the reference of methods has them.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from draftwood import cli

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """\
# Command line

Written by `python -m tests.cli_page` from the commands. `draftwood COMMAND --help` prints the same
on the terminal, and with `--method NAME` the settings of a method; these are in
[Methods](reference/methods.md), too.

Exit codes: 0 for success, 1 for what goes wrong in the middle, 2 for wrong input, 130 for Ctrl-C.
What goes wrong is one line on standard error. `draftwood -v COMMAND` shows what the library logs.

| variable | what it is |
|---|---|
| `DRAFTWOOD_CACHE` | directory of costs, layouts, kernels and models (`draftwood cache`) |
| `DRAFTWOOD_COMPILE` | `off`: no kernels are compiled |
| `DRAFTWOOD_API_KEY` | key of `serve`, where `--api-key` gives none |
| `DRAFTWOOD_METHOD`, `DRAFTWOOD_COSTS` | what drafts in [vLLM](vllm.md) and [SGLang](sglang.md) |
| `DRAFTWOOD_SGLANG_HOOK` | `1`: SGLang's NGRAM drafts with Draftwood |
| `HF_HOME`, `HF_TOKEN` | of the Hugging Face Hub: its cache, and access to gated models |
"""
_SHOWN = (str, int, float, Path)
_DEFAULT = re.compile(r" *\[default: ([^\]]*)\] *")


def written() -> str:
    """What the page should say."""
    group = cli.cli
    context = click.Context(group, info_name="draftwood")
    parts = [HEAD]
    for heading, names in cli.SECTIONS.items():
        parts.append(f"## {heading}\n")
        for name in names:
            command = group.get_command(context, name)
            assert command is not None, name
            parts += described(command, name, context)
    return "\n".join(parts)


def described(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """A command's heading, help, usage, options and examples, and those of its commands."""
    context = click.Context(command, info_name=name, parent=parent)
    level = 3 if parent.parent is None else 4
    yield f"{'#' * level} `{context.command_path}`\n"
    yield f"{prose(command.help or '')}\n"
    yield f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n"
    rows = [row(each, context) for each in command.params if isinstance(each, click.Option)]
    if rows:
        yield "| option | |\n|---|---|\n" + "".join(rows)
    if command.epilog:
        lines = [each.strip() for each in command.epilog.splitlines()]
        yield "".join(f"    {each}\n" for each in lines if each.startswith("draftwood "))
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None, each
            yield from described(found, each, context)


def row(option: click.Option, context: click.Context) -> str:
    """An option's row."""
    *others, last = (*option.opts, *option.secondary_opts)
    names = [*others, f"{last} {value(option)}".strip()]
    return f"| {', '.join(f'`{each}`' for each in names)} | {meaning(option, context)} |\n"


def value(option: click.Option) -> str:
    """What stands for an option's value; empty for one without a value."""
    if option.is_flag or option.count:
        return ""
    kinds = {click.Choice: "NAME", click.Path: "PATH", click.types.IntParamType: "INTEGER"}
    kinds |= {click.types.FloatParamType: "NUMBER"}
    found = next((kinds[each] for each in type(option.type).__mro__ if each in kinds), "TEXT")
    return option.metavar or found


def meaning(option: click.Option, context: click.Context) -> str:
    """What an option does, with its values and its default.

    Ranges are left out: some depend on the machine.
    """
    line = " ".join((option.help or "").replace("``", "`").split())
    said = _DEFAULT.sub(r" By default \1.", line).strip()
    if isinstance(option.type, click.Choice):
        said += f" One of {', '.join(f'`{each}`' for each in option.type.choices)}."
    if option.multiple and "epeatable" not in said:
        said += " Repeatable."
    default = option.get_default(context, call=False)
    if option.required:
        said += " Required."
    elif isinstance(default, _SHOWN) and not isinstance(default, bool) and str(default):
        said += f" By default `{default}`."
    return said.replace("|", "\\|")


def prose(text: str) -> str:
    """A help text as Markdown: paragraphs in lines of their own, code with one backtick."""
    clean = textwrap.dedent(text.replace("\b\n", "")).strip().replace("``", "`")
    paragraphs = re.split(r"\n\s*\n", clean)
    return "\n\n".join(textwrap.fill(" ".join(each.split()), 118) for each in paragraphs)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")

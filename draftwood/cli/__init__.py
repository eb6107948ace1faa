"""The ``draftwood`` command: subcommands are imported when they are called."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from draftwood import __version__
from draftwood.errors import DraftwoodError, RequestFailed
from draftwood.files import reason

# The commands with their lines of help; the list of commands imports none of them.
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Decode": {
        "generate": "Continue a prompt and stream the text.",
        "chat": "Chat with a model.",
        "demo": "Run six methods side by side on a few prompts.",
        "serve": "Serve a model by the OpenAI API.",
        "tree": "Draw the tree that one step drafts.",
        "methods": "List the methods, or the settings of one.",
        "drafters": "List the drafters, and which fit a model.",
    },
    "Measure": {
        "doctor": "Say what works here, how fast, and what would help.",
        "bench": "Time methods and other libraries on your prompts.",
        "throughput": "Measure throughput and latency at given concurrencies.",
        "report": "Write a page and plots of a benchmark's results.",
        "tune": "Measure what a step costs on this machine.",
        "cache": "List or delete cached measurements and models.",
        "check-lossless": "Check that a method keeps the model's distribution.",
    },
    "Fit to a model": {
        "calibrate": "Count how often a model accepts drafted candidates.",
        "search": "Find the best setting of each method on your prompts.",
        "harvest": "Make an adjacency table from text that a model reads.",
        "sequoia": "Search the best static tree for a draft model.",
        "train": "Train heads or a drafter for a model, or the embedded models.",
        "inflate": "Give a small model the shapes of a large one.",
    },
    "Without a model": {
        "record": "Decode prompts once and record the model's output.",
        "replay": "Run methods over a recording.",
        "simulate": "Run methods on synthetic text with synthetic drafters.",
        "theory": "Evaluate GOOSE's theory.",
    },
}
_COMMANDS = [name for summaries in SECTIONS.values() for name in summaries]


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return _COMMANDS

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"draftwood.cli.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown command with the nearest one, without importing any."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            from draftwood.errors import did_you_mean

            near = did_you_mean(name, _COMMANDS) or "'draftwood --help' lists them"
            raise click.UsageError(f"No such command {name!r}: {near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands by section, each with its whole line."""
        for heading, summaries in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(list(summaries.items()))


_NO_MEMORY = ("can't allocate memory", "out of memory")  # in torch's messages

_EXAMPLES = """\b
Examples:
  draftwood generate "def quicksort("
  draftwood generate "Once upon a time" --model PATH_OR_HUB_ID --draft SMALL
  draftwood COMMAND --help
"""


def _say_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    click.echo(f"draftwood, version {__version__}")
    from draftwood.costs.environment import facts

    for fact in facts():
        click.echo(f"{fact.name}: {fact.value}")
    ctx.exit()


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog=_EXAMPLES,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Show the versions and the device, and exit.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what the library logs.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool) -> None:
    """Decode faster with exactly the same output, by drafting trees of tokens."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    if not verbose:  # it tells of its libraries for other machines
        for name in ("torchao", "torch.utils._pytree"):  # and torch of how torchao registers
            logging.getLogger(name).setLevel(logging.ERROR)
    if os.environ.get("FORCE_COLOR"):
        ctx.color = True
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line.

    What goes wrong is one line on standard error. Exit codes: 2 for wrong input, 1 for what goes
    wrong in the middle, 130 if interrupted.
    """
    code = _run(argv)
    if code:
        sys.exit(code)


def _run(argv: Sequence[str] | None) -> Any:
    try:
        # A command that ends with an exit code of its own returns it here.
        code = cli.main(args=argv, prog_name="draftwood", standalone_mode=False)
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
    except RequestFailed as error:
        return _failed(error.reason, 1)
    except DraftwoodError as error:
        return _failed(str(error), 2)
    except click.ClickException as error:
        return _failed(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _failed("interrupted", 130)
    except BrokenPipeError:
        _forget_output()  # the reader has gone: nothing is left to say it to
        return 1
    except OSError as error:
        _forget_output()
        return _failed(reason(error), 1)
    except UnicodeError as error:
        return _failed(f"text that is not valid {_encoding(error)}: {error}", 2)
    except MemoryError:
        return _failed("not enough memory", 1)
    except RuntimeError as error:
        if not any(words in str(error).lower() for words in _NO_MEMORY):
            raise
        return _failed(str(error).strip().splitlines()[0], 1)
    return code


def _encoding(error: UnicodeError) -> str:
    return str(getattr(error, "encoding", "UTF-8")).upper()


def _forget_output() -> None:
    """Let standard output go nowhere, so that nothing fails once more when the process ends."""
    with suppress(AttributeError, OSError, ValueError):  # it is closed, or no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(message: str, code: int) -> int:
    click.echo(f"draftwood: {' '.join(message.split())}", err=True)
    return code

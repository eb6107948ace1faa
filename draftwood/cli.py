"""The ``draftwood`` command: subcommands are imported when they are called."""

import importlib
import logging
import sys
from collections.abc import Sequence

import click

from draftwood import __version__
from draftwood.errors import DraftwoodError

# Subcommand to the module that holds a click command of that name.
_COMMANDS = {
    "generate": "draftwood.commands.generate",
    "demo": "draftwood.commands.demo",
    "tree": "draftwood.commands.tree",
    "check-lossless": "draftwood.commands.check_lossless",
    "methods": "draftwood.commands.methods",
    "theory": "draftwood.commands.theory",
    "bench": "draftwood.bench.command",
    "report": "draftwood.commands.report",
    "search": "draftwood.bench.search",
    "sequoia": "draftwood.bench.sequoia",
    "calibrate": "draftwood.commands.calibrate",
    "tune": "draftwood.commands.tune",
    "cache": "draftwood.commands.cache",
    "record": "draftwood.commands.record",
    "replay": "draftwood.commands.replay",
    "simulate": "draftwood.commands.simulate",
    "train": "draftwood.train.command",
    "inflate": "draftwood.commands.inflate",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name])
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="draftwood")
@click.option("-v", "--verbose", is_flag=True, help="Show what the library logs.")
def cli(verbose: bool) -> None:
    """Decode faster with exactly the same output, by drafting trees of tokens."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; wrong input is one line on standard error and exit code 2."""
    try:
        # A command that ends with an exit code of its own returns it here.
        code = cli.main(args=argv, prog_name="draftwood", standalone_mode=False)
    except DraftwoodError as error:
        _fail(str(error), 2)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone: nothing is left to say it to
        sys.exit(1)
    if code:
        sys.exit(code)


def _fail(message: str, code: int) -> None:
    click.echo(f"draftwood: {' '.join(message.split())}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

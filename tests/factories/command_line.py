"""Runs ``draftwood`` in this process."""

from click.testing import CliRunner

from draftwood import cli


def run(*argv: str, typed: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of ``draftwood ARGV``.

    Args:
        argv: the arguments.
        typed: standard input.
    """
    with CliRunner().isolation(typed) as streams:
        code = 0
        try:
            cli.main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, streams[0].getvalue().decode(), streams[1].getvalue().decode()


def lost_reader(*_: object) -> None:
    """Stands for what prints to a pipe whose reader has gone."""
    raise BrokenPipeError


def output_of(*argv: str) -> str:
    """Standard output of ``draftwood ARGV``, which has to succeed."""
    code, out, err = run(*argv)
    assert code == 0, err
    return out


def refused(*argv: str) -> str:
    """The one line with which ``draftwood ARGV`` refuses before it prints anything."""
    code, out, err = run(*argv)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    return err

"""Click commands whose help lists options under headings, in the order of the options."""

from __future__ import annotations

from typing import Any

import click


class Option(click.Option):
    """An option under a heading of the help.

    Args:
        section: the heading; "" is the list without a heading.
    """

    def __init__(self, *args: Any, section: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class Command(click.Command):
    """A command whose help groups options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those without a section first."""
        sections: dict[str, list[tuple[str, str]]] = {"": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                sections.setdefault(getattr(param, "section", ""), []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading or "Options"):
                    formatter.write_dl(records)

"""``draftwood chat``: a chat with a model on the terminal."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from draftwood.cli._method_flags import MethodCommand, method_of, method_option, method_options
from draftwood.cli._options import (
    ModelOptions,
    max_new_tokens_option,
    model_argument,
    sampling_options,
)
from draftwood.cli._prompt import check_prompt
from draftwood.cli.generate import mean_length, show
from draftwood.errors import DraftwoodError
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.engine.request import Completion
    from draftwood.engine.session import Session

_PROMPT = "> "
_CONTINUED = "\\"
"""At the end of a line: the message goes on in the next one."""

_HELP = """\
/new     forget the chat; the system message stays
/undo    forget the last message and its answer
/stats   show or hide the figures after each answer
/help    show this list
/exit    leave; Ctrl-D does the same
A line that ends with \\ goes on in the next one. Ctrl-C ends an answer."""

_COMMANDS = frozenset({"/new", "/undo", "/stats", "/help", "/exit"})
_LIKE_A_COMMAND = re.compile(r"/\w*")

_EXAMPLES = """\b
Examples:
  draftwood chat smollm2
  draftwood chat PATH_OR_HUB_ID --system "You answer briefly." --temperature 0.7
  draftwood chat BIG --draft SMALL
"""


@click.command(cls=MethodCommand, epilog=_EXAMPLES)
@click.option("--system", metavar="TEXT", help="System message: what the model shall be like.")
@max_new_tokens_option(default=512)
@click.option(
    "--memory",
    default="1GB",
    show_default=True,
    help="Memory for the chat's keys and values between turns, such as 500MB.",
)
@model_argument
@method_option
@method_options
@sampling_options
@click.pass_context
def chat(
    ctx: click.Context,
    /,
    system: str | None,
    max_new_tokens: int,
    memory: str,
    name: str,
    model: ModelOptions,
    sampling: SamplingParams,
) -> int:
    """Chat with MODEL, which needs a chat template.

    A turn computes the new message only: keys and values of the chat so far are kept. Accepted
    drafted tokens are green. Without a terminal, each line of standard input is a message, and the
    exit code is 1 if one of them failed.
    """
    from draftwood.engine.memory import memory_bytes

    memory_bytes(memory)
    if sys.stdin is None:
        raise DraftwoodError("no messages: standard input is closed")
    if system:
        check_prompt(system, "the system message")
    chosen = method_of(ctx, name)

    from draftwood.engine.session import Session
    from draftwood.runner.attach import attach

    loaded = model.load({name: chosen})
    if not loaded.tokenizer.chat_template:
        raise DraftwoodError(
            f"{loaded.name} has no chat template: name a chat model, or continue a text with "
            "'draftwood generate'"
        )
    session = Session(attach(loaded.model), loaded.tokenizer, chosen, system=system, memory=memory)
    if session.note:
        click.secho(session.note, err=True, dim=True)
    typed = sys.stdin.isatty()
    talk = Talk(session, max_new_tokens, sampling, loaded.eos, typed=typed)
    if typed:
        click.secho(f"{loaded.name}; /help lists the commands", err=True, dim=True)
        talk.run(_typed())
        return 0
    talk.run(line.removesuffix("\n") for line in sys.stdin)
    return 1 if talk.failed else 0


@dataclass
class Talk:
    """A chat whose messages come from a terminal or a file.

    Attributes:
        session: the chat.
        max_new_tokens: most tokens of an answer.
        sampling: of every answer; the seed grows by one with each.
        eos: token ids that end an answer.
        typed: whether somebody types at a terminal. Then an interrupt ends the answer only, and an
            unknown command is told; otherwise it ends the chat, and is a message.
        failed: whether a message has failed.
        stats: whether figures are shown after each answer.
    """

    session: Session
    max_new_tokens: int
    sampling: SamplingParams
    eos: frozenset[int]
    typed: bool = False
    failed: bool = False
    stats: bool = True

    def run(self, lines: Iterator[str]) -> None:
        """Answer messages and obey commands until the lines end or one is ``/exit``."""
        for message in _messages(lines):
            if message == "/exit":
                return
            if message in _COMMANDS or (self.typed and _LIKE_A_COMMAND.fullmatch(message)):
                self._obey(message)
            elif message.strip():
                self._answer(message)

    def _obey(self, command: str) -> None:
        messages = self.session.messages
        if command == "/new":
            self.session.messages = [each for each in messages if each["role"] == "system"]
        elif command == "/undo":
            self.session.messages = messages[: max(self._begin(), len(messages) - 2)]
        elif command == "/stats":
            self.stats = not self.stats
        else:
            if command != "/help":
                click.echo(f"there is no command {command}", err=True)
            click.echo(_HELP, err=True)

    def _begin(self) -> int:
        """Number of the messages that are no turn: the system message."""
        return sum(each["role"] == "system" for each in self.session.messages)

    def _answer(self, message: str) -> None:
        from draftwood.engine.request import Delta, Finished

        turn = (len(self.session.messages) - self._begin()) // 2
        seed = (self.sampling.seed + turn) % SEED_LIMIT
        sampling = replace(self.sampling, seed=seed)
        events = self.session.stream(
            message, max_new_tokens=self.max_new_tokens, sampling=sampling, eos=self.eos
        )
        try:
            check_prompt(message, "the message")
            with closing(events):  # which cancels the request
                for event in events:
                    if isinstance(event, Delta):
                        show(event)
                    elif isinstance(event, Finished):
                        click.echo()
                        if self.stats:
                            click.secho(_figures(event.completion), err=True, dim=True)
        except KeyboardInterrupt:
            click.echo()
            if not self.typed:
                raise
            click.secho("[stopped; the chat is as it was before]", err=True, dim=True)
        except DraftwoodError as error:  # such as a chat longer than the model's context
            click.secho(f"draftwood: {error}", err=True)
            self.failed = True


def _figures(completion: Completion) -> str:
    tally = completion.tally
    rate = f"{1 / completion.tpot:.1f} tok/s, " if completion.tpot > 0 else ""
    cut = ", cut: --max-new-tokens allows more" if completion.reason == "length" else ""
    return (
        f"[{len(completion.tokens)} tokens, {rate}{mean_length(tally)} tokens per "
        f"call, first after {completion.ttft:.2f} s{cut}]"
    )


def _messages(lines: Iterator[str]) -> Iterator[str]:
    """Messages of one or more lines: one that ends with a backslash goes on."""
    begun: list[str] = []
    for line in lines:
        begun.append(line.removesuffix(_CONTINUED))
        if not line.endswith(_CONTINUED):
            yield "\n".join(begun)
            begun = []
    if begun:
        yield "\n".join(begun)


def _typed() -> Iterator[str]:
    """Lines from the terminal, until Ctrl-D; Ctrl-C drops what was typed of one."""
    with suppress(ImportError):  # not on Windows
        importlib.import_module("readline")  # gives ``input`` line editing and a history
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()

"""The options that give the text a form, and the grammar made of their values."""

from __future__ import annotations

from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from draftwood.cli._options import PATH, F, stack
from draftwood.cli._sections import Option
from draftwood.errors import DraftwoodError
from draftwood.files import read_json
from draftwood.grammars.grammar import DEFAULT, Grammar, backend_names

_EBNF = (".ebnf", ".gbnf")


def grammar_options(function: F) -> F:
    """Options that constrain the text; the command gets ``grammar``, a :class:`Grammar` or None."""

    @wraps(function)
    def with_grammar(
        *args: Any,
        json_object: bool,
        json_schema: Path | None,
        regex: str | None,
        choice: tuple[str, ...],
        grammar: Path | None,
        fixed_spaces: bool,
        grammar_backend: str,
        **rest: Any,
    ) -> Any:
        given = {
            "--json-object": json_object,
            "--json-schema": json_schema,
            "--regex": regex is not None,
            "--choice": choice,
            "--grammar": grammar,
        }
        named = [flag for flag, value in given.items() if value]
        if len(named) > 1:
            raise DraftwoodError(f"{' and '.join(named)} were given: the text has one form")
        if fixed_spaces and not (json_object or json_schema):
            raise DraftwoodError("--fixed-spaces is for --json-object and --json-schema")
        found = None
        if json_object:
            found = Grammar.json_object(backend=grammar_backend, fixed_spaces=fixed_spaces)
        elif json_schema:
            schema = read_json(json_schema)
            found = Grammar.json_schema(schema, backend=grammar_backend, fixed_spaces=fixed_spaces)
        elif regex is not None:
            found = Grammar.regex(regex, backend=grammar_backend)
        elif choice:
            found = Grammar.choice(choice, backend=grammar_backend)
        elif grammar:
            make = Grammar.ebnf if grammar.suffix in _EBNF else Grammar.lark
            found = make(_text(grammar), backend=grammar_backend)
        if found is not None:
            found.check()  # before a model is loaded
        return function(*args, grammar=found, **rest)

    option = partial(click.option, cls=Option, section="Form of the text")
    decorate: Any = stack(
        option("--json-object", is_flag=True, help="A JSON object."),
        option("--json-schema", type=PATH, metavar="FILE", help="JSON of the schema in a file."),
        option("--regex", metavar="PATTERN", help="A text that the expression matches as a whole."),
        option("--choice", multiple=True, metavar="TEXT", help="One of these texts. Repeatable."),
        option(
            "--grammar",
            type=PATH,
            metavar="FILE",
            help="A text of the grammar in a file: Lark, or EBNF as llama.cpp writes it if its "
            "name ends in .gbnf or .ebnf.",
        ),
        option(
            "--fixed-spaces",
            is_flag=True,
            help="JSON with one space behind each comma and colon and no other.",
        ),
        option(
            "--grammar-backend",
            type=click.Choice(backend_names()),
            default=DEFAULT,
            show_default=True,
            help="Library that compiles it.",
        ),
    )
    found: F = decorate(with_grammar)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DraftwoodError(f"cannot read the grammar from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DraftwoodError(
            f"the grammar in {path} is not valid UTF-8, at byte {error.start}: convert it to UTF-8"
        ) from None

"""Options of ``draftwood check-lossless --endpoint``, and which of the others go with them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from draftwood.cli._options import PATH, F, FiniteRange, stack, written_options
from draftwood.cli._sections import Option
from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.curl import KEY_VARIABLE

SAMPLES = 300
"""Default of ``--samples`` with an endpoint."""

_LONGEST = 86_400
"""Most seconds of ``--timeout``: a day."""

_OF_METHODS = ("everything", "temperature", "model")
"""Options of METHODs alone, by parameter; ``--model`` is a METHOD's, too."""


@dataclass(frozen=True)
class EndpointOptions:
    """Values of :func:`endpoint_options`."""

    endpoint: str | None
    reference: str | None
    reference_model: str | None
    plain_body: str | None
    served_model: str | None
    reference_served_model: str | None
    api: str
    api_key: str | None
    reference_api_key: str | None
    prompts: str | None
    limit: int | None
    tolerance: float | None
    same_seed: bool
    max_requests: int
    concurrency: int
    timeout: float
    markdown: Path | None

    @property
    def key(self) -> str | None:
        """The endpoint's key."""
        return self.api_key or os.environ.get(KEY_VARIABLE) or None

    @property
    def plain(self) -> Mapping[str, Any] | None:
        """The fields that decode one request plainly; None if they are not given.

        Raises:
            DraftwoodError: they are no JSON object.
        """
        if self.plain_body is None:
            return None
        try:
            found = json.loads(self.plain_body)
        except ValueError as error:
            raise DraftwoodError(f"--plain-body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise DraftwoodError('--plain-body is no JSON object: write {"FIELD": VALUE}')
        return found

    def check(
        self, ctx: click.Context, names: tuple[str, ...], settings: Mapping[str, str]
    ) -> None:
        """Refuse options that do not go together.

        Raises:
            DraftwoodError: an option needs ``--endpoint``, or is of METHODs.
        """
        if self.endpoint is None:
            given = written_options(ctx, [each.name for each in fields(self)])
            if given:
                raise DraftwoodError(f"{given[0]} needs --endpoint URL")
            return
        if names:
            raise DraftwoodError(f"{names[0]!r} is a METHOD, which --endpoint does not take")
        wrong = [*written_options(ctx, _OF_METHODS), *(f"--{name}" for name in settings)]
        if "--model" in wrong:
            raise DraftwoodError(
                "--model is of METHODs: with --endpoint, name the model that it serves with "
                "--served-model, and a local reference with --reference-model"
            )
        if wrong:
            raise DraftwoodError(f"{wrong[0]} is of METHODs, and --endpoint takes none")
        if self.reference is not None and self.reference_model is not None:
            raise DraftwoodError("give one reference: --reference or --reference-model")
        if self.reference_model is not None and self.plain_body is not None:
            raise DraftwoodError("--plain-body is of a server, and --reference-model is none")
        if self.reference is None:
            given = written_options(ctx, ["reference_api_key", "reference_served_model"])
            if given:
                raise DraftwoodError(f"{given[0]} needs --reference URL")


def endpoint_options(function: F) -> F:
    """Options of an endpoint; the command gets ``server``, an :class:`EndpointOptions`."""

    @wraps(function)
    def with_endpoint(*args: Any, **values: Any) -> Any:
        given = {each.name: values.pop(each.name) for each in fields(EndpointOptions)}
        return function(*args, server=EndpointOptions(**given), **values)

    option = partial(click.option, cls=Option, section="A server of the OpenAI API")
    decorate: Callable[[Any], F] = stack(
        option("--endpoint", metavar="URL", help="Check this server instead of METHODs."),
        option(
            "--reference",
            metavar="URL",
            help="A server of the same model without speculation.  [default: the endpoint with its "
            "own switch, if it is Draftwood's]",
        ),
        option(
            "--reference-model",
            metavar="NAME",
            help="The same model as a local reference: a directory, a hub id, embedded or smollm2.",
        ),
        option(
            "--plain-body",
            metavar="JSON",
            help="Fields that turn speculation off, added to the reference's requests.",
        ),
        option("--served-model", help="Name of the served model.  [default: the only one]"),
        option("--reference-served-model", help="The same for --reference."),
        option(
            "--api",
            type=click.Choice(["auto", "completions", "chat"]),
            default="auto",
            show_default=True,
            help="How to ask; auto: text completions, and chats if there are none.",
        ),
        option("--api-key", help=f"Key of the endpoint.  [default: the variable {KEY_VARIABLE}]"),
        option("--reference-api-key", help="Key of --reference.  [default: the endpoint's]"),
        option(
            "--prompts",
            metavar="SET[,SET]",
            help="Prompt files as for bench, in the place of the built-in prompts.",
        ),
        option("--limit", type=click.IntRange(1), help="Most prompts per set, evenly spaced."),
        option(
            "--tolerance",
            type=float,
            help="Largest gap of log probabilities that rounding explains.  [default: by --dtype]",
        ),
        option("--same-seed", is_flag=True, help="A seed must give the reference's text."),
        option(
            "--max-requests",
            type=click.IntRange(1),
            default=1000,
            show_default=True,
            help="Most requests; a longer plan is refused.",
        ),
        option(
            "--concurrency",
            type=click.IntRange(1, 64),
            default=4,
            show_default=True,
            help="Most requests at once.",
        ),
        option(
            "--timeout",
            type=FiniteRange(0.1, _LONGEST),
            default=120.0,
            show_default=True,
            help="Most seconds for a request and its whole answer.",
        ),
        option("--markdown", type=PATH, help="Write a report to this file, for an issue."),
    )
    return decorate(with_endpoint)

"""``draftwood drafters``: lists the sources of candidates, and which of them fit a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click
from rich.table import Table

from draftwood.cli._options import (
    ModelOptions,
    console,
    draft_option,
    head_option,
    model_options,
    written_options,
)
from draftwood.cli._sections import Command
from draftwood.errors import DraftwoodError
from draftwood.methods import registry
from draftwood.methods.binding import kind_of, kinds_of, model_flags
from draftwood.protocols import DrafterSpec
from draftwood.protocols.drafter import OWN
from draftwood.protocols.settings import settings as settings_of

if TYPE_CHECKING:
    from draftwood.engine.host import ModelHost

_EXAMPLES = """\b
Examples:
  draftwood drafters
  draftwood drafters --model smollm2
  draftwood drafters --model BIG --draft SMALL
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.option(
    "--fit",
    is_flag=True,
    help="Load the model, and say which drafters fit it; implied by each option below.",
)
@draft_option
@head_option
@model_options
def drafters(fit: bool, draft: str | None, head: str | None, model: ModelOptions) -> None:
    """List the drafters: what each proposes and needs, and which fit a model."""
    given = {name: value for name, value in (("draft", draft), ("head", head)) if value}
    fit = fit or bool(written_options(click.get_current_context()))
    columns = ["drafter", "proposes", "needs", "evidence for auto"]
    if fit:
        columns.append(f"fits {model.name}")
    table = Table(*columns, box=None, pad_edge=False)
    host = _host(model) if fit else None
    for name in registry.names("drafters"):
        spec = cast("type[DrafterSpec]", registry.load("drafters", name))
        cells = [name, spec.summary, _needs(name), _evidence(spec)]
        table.add_row(*cells, *([_fits(name, spec, host, given)] if host else []))
    console().print(table)


def _host(model: ModelOptions) -> ModelHost:
    from draftwood.engine.host import ModelHost
    from draftwood.runner.attach import attach

    loaded = model.load()
    return ModelHost(attach(loaded.model), loaded.tokenizer)


def _needs(name: str) -> str:
    """The option that names the drafter's model."""
    return next((f"--{flag}" for flag in model_flags() if name in kinds_of(flag)), "")


def _evidence(spec: type[DrafterSpec]) -> str:
    found = spec.evidence
    return ", ".join(feature.name for feature in (*found.copied, *found.ranked))


def _fits(name: str, spec: type[DrafterSpec], host: ModelHost, given: dict[str, str]) -> str:
    """Whether a drafter can be built for the target.

    With the model that is given or shipped, or with the target's own layers.
    """
    settings: dict[str, Any] = {}
    for flag in [flag for flag in model_flags() if name in kinds_of(flag)]:
        path = given.get(flag) or _shipped(flag, host)
        field = next(each for each in settings_of(spec) if each.flag == flag)
        if path is not None and kind_of(flag, path) == name:
            settings[field.name] = path
        elif field.default != OWN:
            return f"with --{flag}"
    try:
        note = spec(**settings).build(host).note
    except DraftwoodError as error:
        return f"no: {error}"
    shipped = [path for path in settings.values() if path not in given.values()]
    if shipped:
        return f"yes, with {shipped[0]}, which is shipped"
    return f"yes; {note}" if note else "yes"


def _shipped(flag: str, host: ModelHost) -> str | None:
    """What is shipped for the target's model under an option."""
    from draftwood.methods.shipped_models import shipped_for

    found = shipped_for(host.info.fingerprint)
    return None if found is None else found.parts.get(flag)

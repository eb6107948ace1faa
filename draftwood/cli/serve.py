"""``draftwood serve``: serves a model by the OpenAI API."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from draftwood import __version__
from draftwood.cli._method_flags import MethodCommand, method_of, method_option, method_options
from draftwood.cli._options import PATH, ModelOptions, model_argument
from draftwood.errors import DraftwoodError, need
from draftwood.files import reason
from draftwood.server.settings import PREFIX_CACHE, checked_keys, checked_origins

if TYPE_CHECKING:
    from draftwood.server.service import Service
    from draftwood.server.settings import Names

KEY_VARIABLE = "DRAFTWOOD_API_KEY"
_LIBRARIES = ("starlette", "uvicorn", "msgspec", "prometheus_client")
_EXAMPLES = """\b
Examples:
  draftwood serve smollm2
  draftwood serve BIG --draft SMALL --port 9000 --served-model-name big
  draftwood serve MODEL --method goose --budget 16 --max-batch 16 --memory 8GB
"""


@click.command(cls=MethodCommand, epilog=_EXAMPLES)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port; 0: a free one.",
)
@click.option(
    "--served-model-name",
    "names",
    multiple=True,
    help="Name that clients call the model by. Repeatable.  [default: MODEL]",
)
@click.option("--chat-template", type=PATH, help="Jinja file, in the place of the model's own.")
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    help=f"Key that clients must send. Repeatable.  [default: {KEY_VARIABLE}]",
)
@click.option(
    "--allowed-origin",
    "allowed_origins",
    multiple=True,
    help="CORS: origin whose pages may call the API, such as https://chat.example; '*': all pages. "
    "Repeatable.  [default: none]",
)
@click.option(
    "--max-batch",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Most requests decoded together.",
)
@click.option(
    "--max-queue",
    type=click.IntRange(0),
    default=256,
    show_default=True,
    help="Most requests that are held beyond --max-batch; others get status 429.",
)
@click.option("--memory", help="Most memory of keys and values, such as 4GB; requests wait for it.")
@click.option(
    "--prefix-cache",
    default=PREFIX_CACHE,
    show_default=True,
    help="Memory of finished texts, such as 4GB, whose beginnings later prompts need not compute; "
    "0: none. auto: 1GB, or none of a model with recurrent layers.",
)
@click.option(
    "--max-model-len",
    type=click.IntRange(2),
    help="Most tokens of a prompt and its answer.  [default: the model's context]",
)
@click.option(
    "--max-body",
    type=click.IntRange(1),
    default=8 << 20,
    show_default=True,
    help="Most bytes of a request's body.",
)
@click.option(
    "--sampling-defaults",
    type=click.Choice(["model", "openai"]),
    default="model",
    show_default=True,
    help="Sampling of requests that leave it out: of the model's generation config, or the API's.",
)
@click.option(
    "--metrics-names",
    type=click.Choice(["draftwood", "vllm"]),
    default="draftwood",
    show_default=True,
    help="Prefix of the metrics' names; vllm: dashboards made for vLLM work.",
)
@click.option("--access-log", is_flag=True, help="Log a line for each request (with -v).")
@model_argument
@method_option
@method_options
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    host: str,
    port: int,
    names: tuple[str, ...],
    chat_template: Path | None,
    api_keys: tuple[str, ...],
    allowed_origins: tuple[str, ...],
    max_batch: int,
    max_queue: int,
    memory: str | None,
    prefix_cache: str,
    max_model_len: int | None,
    max_body: int,
    sampling_defaults: Literal["model", "openai"],
    metrics_names: Names,
    access_log: bool,
    name: str,
    model: ModelOptions,
) -> None:
    """Serve MODEL by the OpenAI API: a directory, a hub id, embedded or smollm2.

    A first SIGTERM or Ctrl-C lets the requests that are held end, a second one stops at once.
    """
    chosen = method_of(ctx, name)
    for library in _LIBRARIES:
        need(library, "serve")
    template = None if chat_template is None else _read(chat_template)
    origins = checked_origins(allowed_origins)
    keys = checked_keys(api_keys or filter(None, (os.environ.get(KEY_VARIABLE),)))

    from draftwood.engine.memory import memory_bytes, prefix_bytes
    from draftwood.heap import frozen_heap
    from draftwood.server.loaded import service_of
    from draftwood.server.run import Server, bound_socket, url_of
    from draftwood.server.run import serve as run

    memory_bytes(memory)
    if prefix_cache != PREFIX_CACHE:
        prefix_bytes(prefix_cache)
    with closing(bound_socket(host, port)) as bound:  # before the model is loaded
        service = service_of(
            model.load({name: chosen}),
            chosen,
            names=names,
            template=template,
            api_keys=keys,
            allowed_origins=origins,
            max_batch=max_batch,
            max_queue=max_queue,
            memory=memory,
            prefix_cache=prefix_cache,
            max_model_len=max_model_len,
            max_body=max_body,
            sampling_defaults=sampling_defaults,
            metrics_names=metrics_names,
        )

        def announce() -> None:
            for line in _lines(service, url_of(bound)):
                click.echo(line, err=True)

        with frozen_heap():
            code = run(Server(service, started=announce, access_log=access_log), service, bound)
    raise click.exceptions.Exit(code)


def _lines(service: Service, url: str) -> Iterator[str]:
    """What is said once connections are accepted."""
    settings, engine = service.settings, service.thread.engine
    key = " with a key" if settings.api_keys else ""
    yield (
        f"Draftwood {__version__}: {', '.join(settings.names)} at {url}{key}, decoded by "
        f"{engine.method.name}"
    )
    yield f"The page to chat with it and to see its drafts: {url.removesuffix('v1')}"
    if engine.note:
        yield engine.note
    if service.text.template is None:
        yield "The model has no chat template: chats are refused (--chat-template FILE)."


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DraftwoodError(f"cannot read the chat template: {reason(error)}") from error

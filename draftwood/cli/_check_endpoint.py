"""``draftwood check-lossless --endpoint``: checks a server of the OpenAI API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from draftwood.cli._endpoint_options import EndpointOptions
from draftwood.cli._options import ModelOptions
from draftwood.errors import DraftwoodError, need
from draftwood.files import check_output, write_text

if TYPE_CHECKING:
    from draftwood.lab.endpoint.local import LocalModel
    from draftwood.lab.endpoint.prompts import Prompt

MOST_KEPT = 16
"""Largest ``--top-k``: continuations would be too many to count."""


def check_endpoint(
    server: EndpointOptions,
    model: ModelOptions,
    *,
    samples: int,
    seed: int,
    top_k: int,
    prompt: str,
    as_json: bool,
) -> None:
    """Check a server, and print what was found.

    Args:
        server: what is checked, and against what.
        model: how a local reference is loaded, all but its name.
        samples: continuations to sample of each side.
        seed: of the first sample.
        top_k: likeliest tokens to sample from; 0: all.
        prompt: whose continuations are sampled.
        as_json: print one JSON object instead of lines.

    Raises:
        click.exceptions.Exit: a check failed or is undecided.
        DraftwoodError: the input is wrong, or a server cannot be used.
    """
    for library in ("httpx", "scipy"):
        need(library, "endpoint")
    if not (top_k == 0 or 2 <= top_k <= MOST_KEPT):
        raise DraftwoodError(f"--top-k is {top_k}: with --endpoint give 0 (all), or 2 to 16")
    plain = server.plain
    if server.markdown is not None:
        from draftwood.lab.bench.prompts import files

        check_output(server.markdown, files(server.prompts))

    from draftwood.lab.endpoint import report as write
    from draftwood.lab.endpoint.comparison import Settings
    from draftwood.lab.endpoint.prompts import Prompt
    from draftwood.lab.endpoint.run import Target, Wanted, run
    from draftwood.lab.endpoint.tolerance import tolerance

    allowed = tolerance(server.tolerance, model.dtype)
    prompts = _prompts(server)
    local = _local(server, model)
    if local is not None and server.tolerance is None:
        allowed = tolerance(None, local.dtype)
    reference = None
    if server.reference is not None:
        key = server.reference_api_key or server.key
        reference = Target(server.reference, key, server.reference_served_model)
    sampled_prompt = Prompt("samples", prompt)
    wanted = Wanted(
        endpoint=Target(server.endpoint or "", server.key, server.served_model),
        reference=reference,
        plain=plain,
        api=server.api,
        prompts=prompts,
        settings=Settings(
            tolerance=allowed,
            samples=samples,
            seed=seed,
            same_seed=server.same_seed,
            concurrency=server.concurrency,
            sampled_prompt=sampled_prompt,
            top_k=top_k,
        ),
        timeout=server.timeout,
        most=server.max_requests,
    )

    def planned(cost: Any) -> None:
        click.echo(f"plan: {write.plan_line(cost)}; gaps up to {allowed} are rounding", err=True)

    def found(result: Any) -> None:
        if not as_json:
            click.echo(write.line(result))

    report = run(wanted, local, planned, found)
    if as_json:
        click.echo(json.dumps(write.document(report)))
    else:
        click.echo(write.verdict(report.results))
    if server.markdown is not None:
        write_text(server.markdown, write.markdown(report))
    if not write.passed(report.results):
        raise click.exceptions.Exit(1)


def _prompts(server: EndpointOptions) -> tuple[Prompt, ...]:
    from draftwood.lab.endpoint.prompts import BUILT_IN, from_files

    if server.prompts is None:
        return BUILT_IN[: server.limit]
    from draftwood.lab.bench.prompts import read, sources

    return from_files(read(sources(server.prompts), server.limit))


def _local(server: EndpointOptions, model: ModelOptions) -> LocalModel | None:
    """The local reference, loaded."""
    if server.reference_model is None:
        return None
    from dataclasses import replace

    from draftwood.lab.endpoint.local import LocalModel

    return LocalModel(replace(model, name=server.reference_model).load())

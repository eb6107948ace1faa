"""``draftwood check-lossless``: checks that methods keep the target's output distribution.

With ``--endpoint`` it checks a server instead: :mod:`draftwood.cli._check_endpoint`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from draftwood.cli._check_endpoint import check_endpoint
from draftwood.cli._endpoint_options import SAMPLES, EndpointOptions, endpoint_options
from draftwood.cli._method_flags import MethodsCommand, method_of, method_options, settings_given
from draftwood.cli._options import ModelOptions, model_options, written_options
from draftwood.cli._prompt import check_prompt, encode
from draftwood.errors import DraftwoodError
from draftwood.files import encode as to_json
from draftwood.methods.recipe import Method
from draftwood.sampling.params import SamplingParams

if TYPE_CHECKING:
    from draftwood.lab.lossless.exact import ExactCheck
    from draftwood.lab.lossless.model import GreedyCheck, ModelCheck, SampledCheck
    from draftwood.lab.lossless.pairs import Refusal

    Check = ExactCheck | Refusal | SampledCheck | GreedyCheck


_OF_ALL = ("--all", "--json")
"""Options of --all without a METHOD, which needs no model."""

REFUSED = "refused"
"""Kind of a pair that is not checked."""

PROMPT = "The cat saw the dog, and the dog saw the cat, and the cat"


_EXAMPLES = """\b
Examples:
  draftwood check-lossless goose
  draftwood check-lossless traversal:shape=2x2 --model BIG --draft SMALL
  draftwood check-lossless --all
  draftwood check-lossless --endpoint http://127.0.0.1:8000/v1
  draftwood check-lossless --endpoint URL --reference URL --markdown report.md
"""


@click.command(name="check-lossless", cls=MethodsCommand, epilog=_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[METHOD]...")
@click.option("--all", "everything", is_flag=True, help="Check every policy with every verifier.")
@click.option(
    "--samples",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Continuations to sample per METHOD; 0 loads no model. With --endpoint, of each side, "
    f"{SAMPLES} by default.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first sample.")
@click.option(
    "--temperature", type=float, default=1.0, show_default=True, help="Sampling temperature."
)
@click.option(
    "--top-k", type=int, default=4, show_default=True, help="Sample from the K likeliest tokens."
)
@click.option("--prompt", default=PROMPT, help="Prompt to continue.", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@endpoint_options
@model_options
@method_options
@click.pass_context
def check_lossless(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    everything: bool,
    samples: int,
    seed: int,
    temperature: float,
    top_k: int,
    prompt: str,
    as_json: bool,
    server: EndpointOptions,
    model: ModelOptions,
) -> None:
    """Check that each METHOD's output has the target's distribution.

    A METHOD is a name with or without settings, such as "traversal:shape=2x2".

    Exact enumeration over a vocabulary of three tokens proves it for the method's policy and
    verifier on small trees. On --model, a chi-square test compares samples with the model's
    distribution, which can refute losslessness but not prove it, and greedy tokens are compared
    with plain decoding's. Exit code 0: all checks passed; 1: one failed.

    With --endpoint, any server of the OpenAI API is compared with one that does not speculate.
    """
    server.check(ctx, names, settings_given(ctx))
    if server.endpoint is not None:
        check_prompt(prompt, "the prompt")
        by_default = ctx.get_parameter_source("samples") is ParameterSource.DEFAULT
        samples = SAMPLES if by_default else samples
        check_endpoint(
            server, model, samples=samples, seed=seed, top_k=top_k, prompt=prompt, as_json=as_json
        )
        return
    if settings_given(ctx) and not names:
        first = next(iter(settings_given(ctx)))
        raise DraftwoodError(f"--{first} is a setting of a METHOD: give one")
    if not names:
        if not everything:
            raise DraftwoodError("nothing to check: give a METHOD or --all")
        unused = [each for each in written_options(ctx) if each not in _OF_ALL]
        if unused:
            raise DraftwoodError(
                f"{unused[0]} says nothing to --all alone: give a METHOD, or leave it out"
            )
    chosen = {name: method_of(ctx, name) for name in names}
    check_prompt(prompt, "the prompt")

    from draftwood.lab.lossless.model import ModelCheck, check_countable
    from draftwood.runner.attach import attach

    facts: dict[str, object] = {}
    model_check = None
    if chosen and samples:
        sampling = SamplingParams(temperature=temperature, top_k=top_k, seed=seed)
        check_countable(sampling)
        loaded = model.load(chosen)
        ids = encode(loaded.tokenizer, prompt, chat=False)
        target = attach(loaded.model)
        model_check = ModelCheck(target, loaded.tokenizer, ids, sampling)
        facts = {"name": loaded.name, "dtype": str(target.info.dtype).removeprefix("torch.")}

    done: list[Check] = []
    for check in _checks(chosen, everything, model_check, samples):
        done.append(check)
        if not as_json:
            click.echo(line(check))
    if as_json:
        from draftwood.lab.bench.provenance import provenance

        settings = {
            "samples": samples,
            "seed": seed,
            "temperature": temperature,
            "top_k": top_k,
            "prompt": prompt,
        }
        origin = provenance(model=facts, settings=settings, sets=[])
        click.echo(json.dumps({"provenance": origin, **document(done)}))
    else:
        click.echo(verdict(done))
    if not lossless(done):
        raise click.exceptions.Exit(1)


def _checks(
    chosen: Mapping[str, Method],
    everything: bool,
    model_check: ModelCheck | None,
    samples: int,
) -> Iterator[Check]:
    from draftwood.lab.lossless.exact import check_exact
    from draftwood.lab.lossless.pairs import check_pair, registered_pairs

    if everything:
        yield from (check_pair(*pair) for pair in registered_pairs())
    for name, each in chosen.items():
        yield check_exact(name, each.policy, each.verifier)
        if model_check is not None:
            yield model_check.check_sampled(name, each, samples)
            yield model_check.check_greedy(name, each)


def line(check: Check) -> str:
    """A check as one line: outcome, subject, result."""
    how = "FAIL " if not check.passed else "  -  " if check.kind == REFUSED else "  ok "
    return f"{how} {check.subject}: {check}"


def lossless(checks: Sequence[Check]) -> bool:
    """Whether all checks passed, and some check ran."""
    return all(check.passed for check in checks) and any(c.kind != REFUSED for c in checks)


def verdict(checks: Sequence[Check]) -> str:
    """The last line: whether all checks passed."""
    run = [check for check in checks if check.kind != REFUSED or not check.passed]
    if not run:
        return "NOT lossless: every pair is refused, so that no check ran"
    failed = sum(not check.passed for check in run)
    if failed:
        return f"NOT lossless: {failed} of {len(run)} checks failed"
    kinds = Counter(check.kind for check in run)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"lossless: all {len(run)} checks passed ({counts})"


def document(checks: Sequence[Check]) -> dict[str, object]:
    """The checks as a JSON object, for ``--json``."""
    return {
        "lossless": lossless(checks),
        "checks": [
            {
                "kind": check.kind,
                "passed": check.passed,
                **to_json(check),
                "text": str(check),
            }
            for check in checks
        ],
    }

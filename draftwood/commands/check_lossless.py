"""``draftwood check-lossless``: proves, as far as it can be proven, that output laws are kept."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import click
import torch

from draftwood import models
from draftwood.bench.provenance import provenance
from draftwood.commands.generate import encode
from draftwood.errors import DraftwoodError
from draftwood.lossless.exact import ExactCheck, check_exact
from draftwood.lossless.golden import GoldenCheck, check_golden
from draftwood.lossless.model import GreedyCheck, Ground, SampledCheck, check_countable
from draftwood.lossless.pairs import Refusal, registered_pairs
from draftwood.options import method_of, model_options
from draftwood.recipes import Method
from draftwood.sampling import SamplingParams
from draftwood.target.attach import attach

Check = ExactCheck | Refusal | GoldenCheck | SampledCheck | GreedyCheck

PROMPT = "The cat saw the dog, and the dog saw the cat, and the cat"


@click.command(
    name="check-lossless",
    context_settings={"ignore_unknown_options": True},
    epilog="Further --setting value flags are the methods' own: see 'draftwood methods NAME'.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[METHOD]...")
@click.option("--all", "everything", is_flag=True, help="Every policy with every verifier.")
@click.option(
    "--golden",
    type=click.Path(path_type=Path),
    help="Compare the verifiers with a JSON file of worked cases.",
)
@click.option(
    "--samples",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Continuations drawn from the model with each METHOD; 0 loads no model.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first sample.")
@click.option("--temperature", type=float, default=1.0, show_default=True, help="Of the samples.")
@click.option("--top-k", type=int, default=4, show_default=True, help="Of the samples.")
@click.option("--prompt", default=PROMPT, help="What is continued.", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@model_options
def check_lossless(
    words: tuple[str, ...],
    everything: bool,
    golden: Path | None,
    samples: int,
    seed: int,
    temperature: float,
    top_k: int,
    prompt: str,
    as_json: bool,
    model: str,
    dtype: str,
    device: str,
    threads: int | None,
    trust_remote_code: bool,
) -> None:
    """Check that the output of each METHOD (as in "traversal:shape=2x2") is the target's own.

    The output law of its policy and verifier is enumerated exactly over tiny laws; then the method
    draws from --model, its continuations are counted against the model's law, and its greedy tokens
    are compared with plain decoding's. Exit code 0: all checks passed; 1: one failed.
    """
    chosen = methods_of(words)
    if not chosen and not everything and golden is None:
        raise DraftwoodError("nothing to check: give a METHOD, --all or --golden FILE")
    if threads:
        torch.set_num_threads(threads)
    ground, facts = None, {}
    if chosen and samples:
        sampling = SamplingParams(temperature=temperature, top_k=top_k, seed=seed)
        check_countable(sampling)
        loaded = models.load(model, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        ids = encode(loaded.tokenizer, prompt, chat=False)
        target = attach(loaded.model)
        ground = Ground(target, loaded.tokenizer, ids, sampling)
        facts = {"name": loaded.name, "dtype": str(target.info.dtype).removeprefix("torch.")}

    done: list[Check] = []
    for check in _checks(chosen, everything, golden, ground, samples):
        done.append(check)
        if not as_json:
            click.echo(line(check))
    if as_json:
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
    if not all(check.passed for check in done):
        raise click.exceptions.Exit(1)


def _checks(
    chosen: Mapping[str, Method],
    everything: bool,
    golden: Path | None,
    ground: Ground | None,
    samples: int,
) -> Iterator[Check]:
    if golden is not None:
        yield from check_golden(golden)
    if everything:
        yield from (pair.check() for pair in registered_pairs())
    for name, each in chosen.items():
        yield check_exact(name, each.policy, each.verifier)
        if ground is not None:
            yield ground.check_sampled(name, each, samples)
            yield ground.check_greedy(name, each)


def methods_of(words: Sequence[str]) -> dict[str, Method]:
    """The methods named, each with the ``--setting value`` flags among the words.

    Raises:
        DraftwoodError: a method or a setting is unknown.
    """
    names: list[str] = []
    flags: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            names.append(word)
            continue
        flags.append(word)
        if "=" not in word and rest:
            flags.append(rest.pop(0))
    if flags and not names:
        raise DraftwoodError(f"no METHOD is named that {flags[0]} could be a setting of")
    return {name: method_of(name, None, flags) for name in names}


def line(check: Check) -> str:
    """A check as one line: how it went, of what, what was found."""
    how = "  -  " if check.kind == Refusal.kind else "  ok " if check.passed else "FAIL "
    return f"{how} {check.subject}: {check}"


def verdict(checks: Sequence[Check]) -> str:
    """The last line."""
    judged = [check for check in checks if check.kind != Refusal.kind]
    failed = sum(not check.passed for check in judged)
    if failed:
        return f"NOT lossless: {failed} of {len(judged)} checks failed"
    return f"lossless: all {len(judged)} checks passed"


def document(checks: Sequence[Check]) -> dict[str, object]:
    """What ``--json`` prints of the checks."""
    return {
        "lossless": all(check.passed for check in checks),
        "checks": [
            {
                "kind": check.kind,
                "passed": check.passed,
                **{field.name: _plain(getattr(check, field.name)) for field in fields(check)},
                "text": str(check),
            }
            for check in checks
        ],
    }


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value

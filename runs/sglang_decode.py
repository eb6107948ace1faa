"""Decodes prompts with SGLang, with its own n-gram drafter or with Draftwood's plugin.

Runs in an environment that has SGLang and Draftwood (``make test-sglang`` makes one for CPUs).
Prints one JSON object: the token ids of every answer, seconds, and tokens a step.

    python runs/sglang_decode.py smollm2-directory prompts.json --drafts DRAFTWOOD --tokens 128
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

CPU = {"device": "cpu", "attention_backend": "torch_native", "mem_fraction_static": 0.4}
"""Settings of a machine without a GPU."""


def speculation(drafts: str, nodes: int) -> dict[str, Any]:
    """SGLang's settings of a speculative algorithm."""
    if drafts == "none":
        return {}
    return {"speculative_algorithm": drafts, "speculative_num_draft_tokens": nodes}


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("prompts", type=click.Path(exists=True, path_type=Path))
@click.option("--drafts", type=click.Choice(["none", "NGRAM", "DRAFTWOOD"]), default="none")
@click.option("--nodes", default=8, help="nodes of a tree, the root included")
@click.option("--tokens", default=64, help="new tokens of each answer")
@click.option("--dtype", default="float32")
@click.option("--most", default=8, help="most requests at once")
@click.option("--tensor-parallel", default=1)
@click.option("--context", default=2048)
@click.option("--cache-tokens", default=16384, help="tokens that the cache holds")
@click.option("--chunk", default=-1, help="prompt tokens of a forward; -1: no limit")
@click.option("--radix/--no-radix", default=True, help="keep prefixes for later prompts")
@click.option("--cpu/--gpu", default=True)
def main(
    model: Path,
    prompts: Path,
    drafts: str,
    nodes: int,
    tokens: int,
    dtype: str,
    most: int,
    tensor_parallel: int,
    context: int,
    cache_tokens: int,
    chunk: int,
    radix: bool,
    cpu: bool,
) -> None:
    """Decode the PROMPTS, a JSON list of lists of token ids, with a MODEL's directory."""
    import sglang

    engine = sglang.Engine(
        model_path=str(model),
        dtype=dtype,
        tp_size=tensor_parallel,
        max_running_requests=most,
        context_length=context,
        max_total_tokens=cache_tokens,
        chunked_prefill_size=chunk,
        disable_radix_cache=not radix,
        skip_tokenizer_init=True,
        log_level="info",
        **(CPU if cpu else {}),
        **speculation(drafts, nodes),
    )
    ids = json.loads(prompts.read_text())
    wanted = {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
    begun = time.perf_counter()
    found = engine.generate(input_ids=ids, sampling_params=wanted)
    seconds = time.perf_counter() - begun
    lengths = [each["meta_info"].get("spec_accept_length") for each in found]
    answers = [list(each["output_ids"]) for each in found]
    known = [(len(a) - 1, n) for a, n in zip(answers, lengths, strict=True) if n]
    result = {
        "drafts": drafts,
        "nodes": nodes,
        "answers": answers,
        "seconds": round(seconds, 2),
        "tokens_a_step": round(sum(n for n, _ in known) / sum(n / each for n, each in known), 3)
        if known
        else None,
        "retracted": sum(int(each["meta_info"].get("num_retractions") or 0) for each in found),
        "cached": sum(int(each["meta_info"].get("cached_tokens") or 0) for each in found),
    }
    # The engine ends its process group, this process included.
    click.echo(json.dumps(result))
    sys.stdout.flush()
    engine.shutdown()


if __name__ == "__main__":
    main()

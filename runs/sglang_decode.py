"""Decodes prompts with SGLang, with its own n-gram drafter or with Draftwood's plugin.

Runs in an environment that has SGLang and Draftwood (``make test-sglang`` makes one for CPUs).
Writes one JSON object: the token ids of every answer, seconds, and tokens a step of each file.

    python runs/sglang_decode.py model-directory prompts.json --drafts DRAFTWOOD --out result.json
"""

from __future__ import annotations

import json
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


def pace(answers: list[dict[str, Any]]) -> float | None:
    """Tokens a step of the steps that verified a tree; the first token comes of the prompt's."""
    about = [each["meta_info"] for each in answers]
    steps = sum(each.get("spec_verify_ct") or 0 for each in about)
    tokens = sum(each["completion_tokens"] - 1 for each in about)
    return round(tokens / steps, 3) if steps else None


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("prompts", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
@click.option("--drafts", type=click.Choice(["none", "NGRAM", "DRAFTWOOD"]), default="none")
@click.option("--nodes", default=8, help="nodes of a tree, the root included")
@click.option("--tokens", default=64, help="new tokens of each answer")
@click.option("--dtype", default="float32")
@click.option("--most", default=8, help="most requests at once")
@click.option("--tensor-parallel", default=1)
@click.option("--context", default=2048)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="of the result")
@click.option("--cache-tokens", default=16384, help="tokens that the cache holds")
@click.option("--chunk", default=-1, help="prompt tokens of a forward; -1: no limit")
@click.option("--radix/--no-radix", default=True, help="keep prefixes for later prompts")
@click.option("--cpu/--gpu", default=True)
def main(
    model: Path,
    prompts: tuple[Path, ...],
    drafts: str,
    nodes: int,
    tokens: int,
    dtype: str,
    most: int,
    tensor_parallel: int,
    context: int,
    out: Path,
    cache_tokens: int,
    chunk: int,
    radix: bool,
    cpu: bool,
) -> None:
    """Decode the PROMPTS, files of lists of token ids, with the MODEL in a directory."""
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
    wanted = {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
    result: dict[str, Any] = {
        "drafts": drafts,
        "nodes": nodes,
        "answers": [],
        "seconds": 0.0,
        "tokens_a_step": {},
        "retracted": 0,
        "cached": 0,
    }
    for path in prompts:
        begun = time.perf_counter()
        found = engine.generate(input_ids=json.loads(path.read_text()), sampling_params=wanted)
        result["seconds"] = round(result["seconds"] + time.perf_counter() - begun, 2)
        result["answers"] += [list(each["output_ids"]) for each in found]
        result["tokens_a_step"][path.stem] = pace(found)
        for key, name in (("retracted", "num_retractions"), ("cached", "cached_tokens")):
            result[key] += sum(int(each["meta_info"].get(name) or 0) for each in found)
    # The engine ends its process group, this process included.
    out.write_text(json.dumps(result))
    engine.shutdown()


if __name__ == "__main__":
    main()

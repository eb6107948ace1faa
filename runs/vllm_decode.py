"""Decodes prompts with vLLM, with one of its own drafters or with Draftwood's proposer.

Runs in an environment that has vLLM and Draftwood (``make test-vllm`` makes one). Writes one JSON
object: the token ids of every answer, seconds, and tokens a step of each file.

    python runs/vllm_decode.py model-directory prompts.json --drafts draftwood --out result.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

PROPOSER = "draftwood.integrations.engines.vllm.Proposer"


def speculation(drafts: str, tokens: int) -> dict[str, Any] | None:
    """vLLM's ``speculative_config``."""
    found: dict[str, dict[str, Any] | None] = {
        "none": None,
        "ngram": {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 1},
        "suffix": {"method": "suffix"},
        "draftwood": {"method": "custom_class", "model": PROPOSER},
    }
    chosen = found[drafts]
    return None if chosen is None else {**chosen, "num_speculative_tokens": tokens}


def stepped(engine: Any, prompts: Sequence[Any], wanted: Any) -> tuple[list[Any], int]:
    """vLLM's results in the order of the prompts, and steps without the prompts' own forwards.

    vLLM's counter of accepted tokens has those behind the end of an answer too, so that steps are
    counted as they come: one result of a request for each.
    """
    done: dict[int, Any] = {}
    steps = -len(prompts)
    for place, prompt in enumerate(prompts):
        engine.add_request(str(place), prompt, wanted)
    while engine.has_unfinished_requests():
        for each in engine.step():
            steps += 1
            if each.finished:
                done[int(each.request_id)] = each
    return [done[place] for place in range(len(prompts))], steps


def counted(metrics: Any) -> dict[str, int]:
    """vLLM's counters of drafts: those behind the end of an answer count."""
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    values = {each.name: getattr(each, "value", None) for each in metrics}
    return {name: int(values.get(f"vllm:spec_decode_{name}") or 0) for name in names}


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("prompts", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
@click.option("--drafts", type=click.Choice(["none", "ngram", "suffix", "draftwood"]))
@click.option("--draft-tokens", default=7, help="most drafted tokens of a step")
@click.option("--tokens", default=64, help="new tokens of each answer")
@click.option("--temperature", default=0.0)
@click.option("--dtype", default="float32")
@click.option("--most", default=8, help="most requests at once")
@click.option("--tensor-parallel", default=1)
@click.option("--context", default=2048)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="of the result")
def main(
    model: Path,
    prompts: tuple[Path, ...],
    drafts: str,
    draft_tokens: int,
    tokens: int,
    temperature: float,
    dtype: str,
    most: int,
    tensor_parallel: int,
    context: int,
    out: Path,
) -> None:
    """Decode the PROMPTS, files of lists of token ids, with the MODEL in a directory."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(model),
        dtype=dtype,
        max_model_len=context,
        max_num_seqs=most,
        enforce_eager=True,
        tensor_parallel_size=tensor_parallel,
        speculative_config=speculation(drafts, draft_tokens),
        disable_log_stats=False,
    )
    wanted = SamplingParams(
        temperature=temperature, max_tokens=tokens, ignore_eos=True, seed=7, detokenize=False
    )
    result: dict[str, Any] = {
        "drafts": drafts,
        "draft_tokens": draft_tokens,
        "answers": [],
        "seconds": 0.0,
        "tokens_a_step": {},
    }
    for path in prompts:
        given: Any = [{"prompt_token_ids": each} for each in json.loads(path.read_text())]
        begun = time.perf_counter()
        found, steps = stepped(engine.llm_engine, given, wanted)
        result["seconds"] = round(result["seconds"] + time.perf_counter() - begun, 2)
        answers = [list(each.outputs[0].token_ids) for each in found]
        # The first token comes of the prompt's forward.
        committed = sum(map(len, answers)) - len(answers)
        result["answers"] += answers
        result["tokens_a_step"][path.stem] = round(committed / steps, 3) if steps else None
    result |= counted(engine.get_metrics())
    out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()

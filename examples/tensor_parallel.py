"""A model divided among processes by transformers' tensor parallelism.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py [MODEL]

It needs the package ``accelerate``. Each process is started with this script, gets a part of every
layer, and decodes the same requests. Without a GPU the processes talk by gloo.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.distributed import DistributedConfig  # type: ignore[attr-defined]

import draftwood
from draftwood import Engine, Request, SamplingParams

SHIPPED = Path(draftwood.__file__).parent / "assets" / "target"
PROMPT = "The ship left the harbour. The ship"
REQUESTS = [
    Request(PROMPT, 32),
    Request(PROMPT, 32, SamplingParams(temperature=0.8, seed=1)),
]


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else str(SHIPPED)
    # Without a GPU in float32, where sums of another order round to the same tokens.
    dtype: Any = "auto" if torch.cuda.is_available() else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, distributed_config=DistributedConfig(tp_plan="auto")
    )
    tokenizer = AutoTokenizer.from_pretrained(name)

    done = {
        method: Engine(model, method, tokenizer).generate(REQUESTS)
        for method in ("ar", "goose:budget=16", "auto")
    }

    # All processes have all results; one prints them.
    if os.environ["RANK"] == "0":
        for method, found in done.items():
            lengths = [each.checked().tally.mean_acceptance_length for each in found]
            print(f"{method}: {lengths[0]:.2f} and {lengths[1]:.2f} tokens a step")
        print(f"greedy: {done['auto'][0].text!r}")
        tokens = [[each.tokens for each in found] for found in done.values()]
        print(f"same tokens: {tokens[0] == tokens[1] == tokens[2]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

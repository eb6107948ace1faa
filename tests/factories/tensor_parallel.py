"""Processes that decode with one model, divided among them or whole, and write what they got.

    python -m tests.factories.tensor_parallel FOLDER RESULT [flawed]

is one of them. torchrun's variables tell it which.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.distributed.configuration_utils import DistributedConfig

import draftwood
from draftwood import DraftwoodError, Engine, Request, SamplingParams, models
from draftwood.costs import measure
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.methods import method
from draftwood.policies.auto import policy
from draftwood.protocols import Built, Host, Policy
from draftwood.runner.runner import Runner
from tests.factories.tiny_llama import tiny_llama

ROOT = Path(__file__).parents[2]
_SECONDS = 400
_CLOCK = 40.0
"""How much faster the clocks of all processes but the first run."""
_ODD = 259
"""Tokens of a model whose output matrix is divided into parts of two sizes."""

_PROMPTS = ("The ship left the harbour. The ship left", "def mean(values):\n    return ")
_SAMPLED = SamplingParams(temperature=0.8, top_p=0.95)
REQUESTS = [Request(text, 24, eos=()) for text in _PROMPTS] + [
    Request(text, 24, replace(_SAMPLED, seed=seed), eos=()) for seed, text in enumerate(_PROMPTS)
]
METHODS: dict[str, dict[str, Any]] = {
    "ar": {},
    "goose:budget=12": {},
    "auto": {},
    "auto:also=memory": {"draft": "embedded-draft"},
    "talon:budget=12": {"draft": "embedded-draft"},
    "traversal": {"draft": "embedded-draft"},
    "eagle3": {"head": "embedded-eagle3"},
}


PAYS = {"auto:also=memory"}
"""Methods that start from costs at which drafting pays; what is measured may say otherwise."""


def decoded(folder: Path, ranks: int, *flawed: str) -> list[dict[str, Any]]:
    """What each process gets; ``flawed``: of those that come apart. ``folder``: for their files."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    started, results = [], list[Path]()
    for rank in range(ranks):
        place = folder / f"{'flawed' if flawed else 'result'}-{rank}-of-{ranks}.json"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        if ranks > 1:  # as torchrun sets them
            environment |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{ranks}"}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
        command = [sys.executable, "-m", "tests.factories.tensor_parallel"]
        command += [str(folder), str(place), *flawed]
        with place.with_suffix(".log").open("wb") as log:
            started.append(
                subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
            )
        results.append(place)
    try:
        for process, place in zip(started, results, strict=True):
            code = process.wait(_SECONDS)
            assert code == 0, place.with_suffix(".log").read_text(encoding="utf-8")
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [json.loads(place.read_text(encoding="utf-8")) for place in results]


def main(folder: str, place: str, *flawed: str) -> None:
    """Decode with every method; ``flawed``: as processes that come apart would."""
    torch.set_num_threads(1)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    patch = pytest.MonkeyPatch()
    patch.setattr(measure, "USUAL", replace(measure.USUAL, seconds=0.3))
    if rank:
        for clock in ("draftwood.engine.batch.perf_counter", "draftwood.costs.recall.perf_counter"):
            patch.setattr(clock, lambda: _CLOCK * perf_counter())
    embedded = models.location("embedded")
    model, tokenizer = _loaded(embedded, ranks), AutoTokenizer.from_pretrained(embedded)
    if flawed:
        result = _flawed(model, tokenizer, rank)
    else:
        result = _every_method(model, tokenizer)
        result["odd"] = _odd(_loaded(folder, ranks))
    Path(place).write_text(json.dumps(result), encoding="utf-8")
    if dist.is_initialized():
        dist.destroy_process_group()


def save_odd(folder: Path) -> None:
    """Write a model with an odd number of tokens."""
    tiny_llama(vocab_size=_ODD).save_pretrained(folder)


def _loaded(checkpoint: str, ranks: int) -> Any:
    loading: dict[str, Any] = {"dtype": torch.float32}
    if ranks > 1:
        loading["distributed_config"] = DistributedConfig(tp_plan="auto")
    return AutoModelForCausalLM.from_pretrained(checkpoint, **loading)


def _every_method(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Tokens and mean acceptance lengths of every request, by method."""
    ids = tokenizer(_PROMPTS[0], return_tensors="pt")["input_ids"]
    found: dict[str, Any] = {"generate": _generated(model, ids)}
    for name, options in METHODS.items():
        with pytest.MonkeyPatch.context() as patch:
            if name in PAYS:
                patch.setattr(policy, "recall_or_measure", _cheap)
            found[name] = _completed(Engine(model, method(name, **options), tokenizer))
    kept = Engine(model, "goose:budget=12", tokenizer, prefix_cache="1MB")
    found["before a prefix is kept"], found["after it"] = _completed(kept), _completed(kept)
    torch.manual_seed(3)
    settings: dict[str, Any] = {"max_new_tokens": 16, "do_sample": True, "pad_token_id": 0}
    sampled: Any = draftwood.generate(model, ids, "goose", **settings)
    found["sampled"] = sampled.tolist()
    draftwood.detach(model)
    found["detached"] = _generated(model, ids)
    return found


def _cheap(_: Host, drafters: Mapping[str, Built], __: Policy) -> LiveCosts:
    """Costs of a step at which drafting pays; they follow the times of its steps."""
    level = Curve((1, 8), (2e-4, 2.1e-4))
    return LiveCosts(StepCosts(Curve((1, 64), (0.01, 0.011)), dict.fromkeys(drafters, level)))


def _generated(model: Any, ids: torch.Tensor) -> list[list[int]]:
    """The tokens of transformers' own decoding."""
    tokens: list[list[int]] = model.generate(ids, max_new_tokens=24, pad_token_id=0).tolist()
    return tokens


def _completed(engine: Engine) -> list[Any]:
    done = [each.checked() for each in engine.generate(REQUESTS)]
    return [[each.tokens, each.tally.mean_acceptance_length] for each in done]


def _odd(model: Any) -> list[list[int]]:
    requests = [Request((5, 7, 258, 5), 16, SamplingParams(seed=2, temperature=1.0), eos=())]
    return [[*each.checked().tokens] for each in Engine(model, "tr").generate(requests)]


def _flawed(model: Any, tokenizer: Any, rank: int) -> dict[str, Any]:
    """What comes of seeds and of times that differ, and of a sum that is wrong."""
    own = [replace(REQUESTS[2], sampling=replace(_SAMPLED, seed=rank))]
    plain = Engine(model, "ar", tokenizer)
    found: dict[str, Any] = {"seeds": _refusal(lambda: plain.generate(own))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "of_first", lambda _, numbers: list(numbers))
        found["times"] = _refusal(lambda: Engine(model, "auto", tokenizer).generate(REQUESTS))
    draftwood.detach(model)
    model.model.layers[0].mlp.down_proj.register_forward_hook(lambda _, __, output: 1.5 * output)
    found["ar"] = _completed(Engine(model, "ar", tokenizer))
    return found


def _refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except DraftwoodError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])

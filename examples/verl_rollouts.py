"""verl's rollouts by Draftwood, while the weights change; no trainer, and so no GPU, is needed.

    pip install --no-deps verl==0.9.1  # docs/rl.md says why, and what else it needs
    VERL_USE_EXTERNAL_MODULES=verl_backend python examples/verl_rollouts.py [MODEL]

verl's own manager starts the server of verl_backend.py, its client asks for answers and its adapter
sends weights, as its trainer has them do. The answers are compared with plain decoding.
"""

import asyncio
import sys
from collections.abc import Collection
from typing import Any

import ray
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.llm_server import LLMServerManager
from verl_backend import NAME, requested, seed_of

import draftwood
from draftwood import Engine, models

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}
"""The sampling parameters of verl's agent loops."""


class _Worker:
    """Stands for a process of the trainer."""


class _Workers:
    """Stands for verl's group of them."""

    world_size = 1

    def __init__(self) -> None:
        self.workers = [ray.remote(_Worker).remote()]


def names(epoch: int, prompts: int) -> list[tuple[int, str]]:
    """Two answers to each prompt: the prompt's place and the request's name."""
    return [(place, f"{epoch}-{place}-{each}") for place in range(prompts) for each in range(2)]


async def train(
    model: Any, eos: Collection[int], prompts: list[list[int]], config: DictConfig
) -> None:
    """Roll out and change the weights through verl's own manager, client and registries."""
    own, checkpoint = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    manager = await LLMServerManager.create(config, worker_group=_Workers())
    client = manager.get_client()
    adapter = get_rollout_class(own.name, own.mode)(own, checkpoint, None, replica_rank=0)
    for epoch in range(3):
        asked = names(epoch, len(prompts))
        answers = await asyncio.gather(
            *(client.generate(n, prompt_ids=prompts[i], sampling_params=SAMPLING) for i, n in asked)
        )
        lengths = own.prompt_length, own.response_length
        expected = [
            requested(prompts[i], SAMPLING, seed_of(n, epoch or None), lengths, eos)
            for i, n in asked
        ]
        plain = [list(done.checked().tokens) for done in Engine(model, "ar").generate(expected)]
        same = [answer.token_ids for answer in answers] == plain
        print(f"epoch {epoch}: {sum(map(len, plain))} tokens, same tokens: {same}")
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1 + 0.02 * torch.randn_like(weight))
        await adapter.update_weights(model.named_parameters(), global_steps=epoch + 1)


def main() -> None:
    name = sys.argv[1] if sys.argv[1:] else "embedded"
    loaded = draftwood.load(name, dtype="float32")
    rollout = "actor_rollout_ref.rollout"
    overrides = [
        f"actor_rollout_ref.model.path={models.location(name)}",
        f"{rollout}.name={NAME}",
        f"{rollout}.dtype=float32",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.prompt_length=64",
        f"{rollout}.response_length=24",
        # Weights of the embedded model in several parts.
        f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes=4",
        f"+{rollout}.engine_kwargs.draftwood.memory=1GB",
        # A request keeps its name, which its seed is made of.
        f"{rollout}.full_determinism=true",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides)
    texts = ["Once upon a time", "The ship left the harbour."]
    prompts = [loaded.tokenizer.encode(text) for text in texts]
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        asyncio.run(train(loaded.model, loaded.eos, prompts, config))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()

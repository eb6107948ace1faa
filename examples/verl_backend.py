"""A rollout backend for verl 0.9: each replica is a Draftwood engine in a Ray actor.

    export VERL_USE_EXTERNAL_MODULES=verl_backend PYTHONPATH=examples
    python -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=draftwood \\
        actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
        +actor_rollout_ref.rollout.engine_kwargs.draftwood.memory=8GB ...

``engine_kwargs.draftwood`` are arguments of ``Engine``. verl imports this module, which enters
its two registries: the replica starts the actor that answers, and the adapter, in a process of the
trainer, sends it the weights. verl_rollouts.py runs both; docs/rl.md has more.
"""

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

import draftwood
from draftwood import Completion, Engine, Finished, Request, SamplingParams
from draftwood.engine.thread import EngineThread, Failed, Report

NAME = "draftwood"


def seed_of(request_id: str, steps: int | None, before: int = 0) -> int:
    """The seed of a request: answers to one prompt differ by it alone.

    Args:
        request_id: verl's. With ``full_determinism`` the answers of a group may have the same one.
        steps: which version of the weights answers.
        before: requests of this name and prompt that this version has had.
    """
    digest = hashlib.sha256(f"{request_id} {steps} {before}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def requested(
    ids: list[int],
    sampling_params: Mapping[str, Any],
    seed: int,
    lengths: tuple[int, int],
    eos: Collection[int],
) -> Request:
    """The request that verl means.

    Args:
        ids: of the prompt.
        sampling_params: verl's, which are vLLM's.
        seed: unless they have one.
        lengths: most tokens of a prompt and of an answer.
        eos: tokens that end an answer, beside those of ``stop_token_ids``.
    """
    given = dict(sampling_params)
    ends = {*eos, *(given.pop("stop_token_ids", None) or ())}
    most_prompt, most_answer = lengths
    limit = given.pop("max_tokens", given.pop("max_new_tokens", None))
    if limit is None:
        limit = min(most_answer, most_prompt + most_answer - len(ids))
    wanted = given.pop("logprobs", False)
    top_k = max(0, given.pop("top_k", 0))  # verl's -1 is all
    sampling = SamplingParams(top_k=top_k, **{"seed": seed, **given})
    own = sampling.temperature in (0, 1) and sampling.top_p == 1 and not top_k
    if wanted and not own:
        raise ValueError(
            "log probabilities are the model's own: with calculate_log_probs, sample at "
            "temperature 1, top_p 1 and top_k -1"
        )
    return Request(tuple(ids), max(1, limit), sampling, eos=ends, logprobs=0 if wanted else None)


class Server:
    """An engine on its thread, and what verl asks of a server that answers."""

    def __init__(
        self,
        model: str,
        loading: dict[str, Any],
        engine: dict[str, Any],
        lengths: tuple[int, int],
        *,
        ignore_eos: bool,
    ) -> None:
        """``loading``, ``engine``: arguments of both; ``lengths``: see :func:`requested`."""
        loaded = draftwood.load(model, **loading)
        self.model = loaded.model
        given = {"method": "auto:also=memory", **engine}
        self.thread = EngineThread(Engine(loaded.model, tokenizer=loaded.tokenizer, **given))
        self.lengths = lengths
        self.eos = () if ignore_eos else tuple(loaded.eos)
        self.steps: int | None = None
        self.seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self.running: set[int] = set()
        self.open, self.whole = asyncio.Event(), asyncio.Event()
        self.open.set()
        self.whole.set()  # no update has begun and not ended
        self.rejecting = False
        self.arrived: set[str] = set()

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **media: Any
    ) -> TokenOutput:
        """The answer to a prompt, of token ids to token ids."""
        if any(each is not None for each in media.values()):
            raise ValueError("Draftwood decodes text: this request has other inputs")
        while not (self.open.is_set() and self.whole.is_set()):
            if self.rejecting:
                return self._output((), None, "aborted")
            await self.open.wait()
            await self.whole.wait()
        key = request_id, tuple(prompt_ids)
        seed = seed_of(request_id, self.steps, self.seen[key])
        self.seen[key] += 1
        request = requested(prompt_ids, sampling_params, seed, self.lengths, self.eos)
        done = await self._decoded(request)
        reason = "aborted" if done.reason == "cancelled" else "completed"
        logprobs = [each.logprob for each in done.logprobs] if done.logprobs else None
        return self._output(done.tokens, logprobs, reason)

    async def _decoded(self, request: Request) -> Completion:
        loop = asyncio.get_running_loop()
        last: asyncio.Future[Finished | Failed] = loop.create_future()

        def told(_: int, report: Report) -> None:
            if isinstance(report, (Finished, Failed)):
                loop.call_soon_threadsafe(ended, report)

        def ended(report: Finished | Failed) -> None:
            self.running.discard(ticket)
            if not last.done():
                last.set_result(report)

        (ticket,) = self.thread.submit([request], told)
        self.running.add(ticket)
        try:
            found = await last
        except asyncio.CancelledError:
            self.thread.cancel(ticket)
            raise
        if isinstance(found, Failed):
            raise found.error
        return found.completion.checked()

    def _output(
        self, tokens: tuple[int, ...], logprobs: list[float] | None, reason: str
    ) -> TokenOutput:
        return TokenOutput(
            token_ids=list(tokens),
            log_probs=logprobs,
            stop_reason=reason,
            extra_fields={"global_steps": self.steps},
        )

    async def update_weights(self, part: Mapping[str, torch.Tensor], *, last: bool) -> None:
        """Write weights into the model; the engine notices it before its next request.

        Requests wait from the first part to the last.
        """
        self.whole.clear()
        await self.sleep()
        found = self.model.load_state_dict(dict(part), strict=False)
        if found.unexpected_keys:
            raise ValueError(f"the model has no weights {', '.join(found.unexpected_keys)}")
        self.arrived.update(part)
        if last:
            self._check_arrived()
            self.arrived.clear()
            self.whole.set()

    def _check_arrived(self) -> None:
        names = dict(self.model.named_parameters(remove_duplicate=False))
        written = {id(names[name]) for name in self.arrived & names.keys()}  # tied ones as well
        missing = [name for name, weight in names.items() if id(weight) not in written]
        if missing:
            raise ValueError(f"no weights came for {', '.join(missing)}")

    async def set_global_steps(self, steps: int) -> None:
        """Note which version of the weights answers from now on."""
        self.steps = steps
        self.seen.clear()

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """End all requests and hold new ones back, or reject them."""
        self.open.clear()
        self.rejecting = reject_request
        for ticket in self.running:
            self.thread.cancel(ticket)
        await self.sleep()

    async def sleep(self) -> None:
        """Wait until no request runs; weights and caches stay on the device."""
        while self.running:
            await asyncio.sleep(0.01)

    async def resume_generation(self) -> None:
        """Take requests again."""
        self.rejecting = False
        self.open.set()

    async def nothing(self, **_: Any) -> None:
        """Nothing was released, and a cached prefix ends with its weights."""

    wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
    start_profile = stop_profile = nothing


class Replica(RolloutReplica):  # type: ignore[misc]
    """A replica of one engine, beside the worker whose device it shares."""

    async def launch_servers(self) -> None:
        """Start the actor."""
        if self.world_size != 1:
            raise ValueError("a Draftwood replica is one process: set tensor parallelism to 1")
        if self.is_reward_model or self.is_teacher_model:
            raise ValueError(
                "a Draftwood replica is the policy's: serve a reward model or a teacher by "
                "'draftwood serve' or by another rollout engine"
            )
        node, device = await self.workers[0].__ray_call__.remote(_place)
        environment = {
            "CUDA_VISIBLE_DEVICES": device,
            "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        }
        server: Any = ray.remote(Server).options(
            name=f"{NAME}_server_{self.replica_rank}{self.name_suffix}",
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
            runtime_env={"env_vars": environment},
            max_concurrency=self.max_concurrency,
        )
        handle = server.remote(
            self.model_config.path,
            {
                "dtype": self.config.dtype,
                "trust_remote_code": self.model_config.trust_remote_code,
            },
            dict((self.config.engine_kwargs or {}).get(NAME, {})),
            (self.config.prompt_length, self.config.response_length),
            ignore_eos=self.config.ignore_eos,
        )
        await handle.__ray_ready__.remote()  # its model is loaded
        self.servers = [handle]
        self._server_handle = handle
        # It names the actor: there is no HTTP server behind it.
        self._server_address = f"{NAME}-{self.replica_rank}{self.name_suffix}"


def _place(_: object) -> tuple[str, str]:
    """The node and the CUDA device of a Ray actor."""
    context = ray.get_runtime_context()
    devices = context.get_accelerator_ids().get("GPU", [])
    return context.get_node_id(), ",".join(devices)


class Adapter(BaseRollout):  # type: ignore[misc]
    """What a process of the trainer has of its replica: it sends weights."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        """Send all weights, in parts of at most ``update_weights_bucket_megabytes``."""
        if wire_format != "named_tensors":
            raise ValueError(f"weights come as named tensors, not as {wire_format}")
        server: Any = ray.get_actor(f"{NAME}_server_{self.replica_rank}")
        most = self.config.checkpoint_engine.update_weights_bucket_megabytes << 20
        part: dict[str, torch.Tensor] = {}
        size = 0
        async for name, tensor in ensure_async_iterator(weights):
            if part and size + tensor.nbytes > most:
                await server.update_weights.remote(part, last=False)
                part, size = {}, 0
            part[name] = tensor.detach().cpu()
            size += tensor.nbytes
        await server.update_weights.remote(part, last=True)
        if global_steps is not None:
            await server.set_global_steps.remote(global_steps)

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Weights and caches stay on the device."""


_ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.Adapter"
RolloutReplicaRegistry.register(NAME, lambda: Replica)

"""The training loop, with checkpoints."""

import json
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from draftwood.errors import DraftwoodError
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from draftwood.lab.train.muon import Muon
from draftwood.lab.train.recipe import TrainingRecipe

logger = logging.getLogger(__name__)

_LOG_EVERY = 10
_CLIP = 1.0
# Matrices whose rows are tokens; AdamW updates them, and norms and biases.
_OUTER = ("embed_tokens.weight", "lm_head.weight")
# Settings that may change when a run is resumed: its length, and shares of it.
_MAY_CHANGE = ("tokens", "decay_share", "short_share", "teacher_share", "teacher_from")


class RunEnd(Enum):
    """Reason why `Trainer.run` returned."""

    FINISHED = "all updates of the recipe"
    PAUSED = "the requested number of updates"
    INTERRUPTED = "a signal"


class Loss(Protocol):
    """A loss; called from several threads at once."""

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:
        """Mean loss over rows of text, a scalar with gradients to the trained parameters.

        Args:
            given: tokens, int64 [rows, length].
            wanted: next tokens, int64 [rows, length].
            step: updates so far.
        """
        ...


class Trainer:
    """Training of one model, resumable at any update.

    Args:
        directory: directory of checkpoint.pt and log.jsonl; an existing checkpoint is resumed, one
            of another run or of more updates than the recipe has raises DraftwoodError.
        model: the model in float32; its parameters that require gradients are trained.
        recipe: training settings.
        batches: rows of ``recipe.length + 1`` tokens, from the beginning.
        identity: further facts that must be equal when resuming (shape, data, ...).
        loss: loss of ``model``.
        micro_tokens: tokens per forward; affects memory, speed and rounding.
        workers: parts of a batch processed in parallel, each on one CPU thread. They wait for each
            other once per update, not in each operation, which is twice as fast on a busy machine.
        muon_dtype: see :class:`draftwood.lab.train.muon.Muon`.

    Attributes:
        step: updates so far.
        stopped_by: number of the signal that interrupted the last run; None if none did.
        wall_seconds, cpu_seconds: time of the updates.
    """

    def __init__(
        self,
        directory: Path,
        model: nn.Module,
        recipe: TrainingRecipe,
        batches: Batches,
        identity: dict[str, Any],
        loss: Loss,
        micro_tokens: int = 1024,
        workers: int = 1,
        muon_dtype: torch.dtype | None = None,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.batches = batches
        self._directory = directory
        self._loss = loss
        self._micro_tokens = micro_tokens
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        fixed = {name: v for name, v in asdict(recipe).items() if name not in _MAY_CHANGE}
        self._identity = json.loads(json.dumps(fixed | identity))
        hidden = [
            parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.ndim == 2 and not name.endswith(_OUTER)
        ]
        chosen = {id(parameter) for parameter in hidden}
        others = [p for p in self._parameters if id(p) not in chosen]
        self._optimisers: list[tuple[torch.optim.Optimizer, float]] = [
            (Muon(hidden, dtype=muon_dtype, spread=self._pool.map), recipe.muon_rate),
            (
                torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0),
                recipe.adam_rate,
            ),
        ]
        self.step = 0
        self.stopped_by: int | None = None
        self.wall_seconds = 0.0
        self.cpu_seconds = 0.0
        self._resume()

    def run(
        self,
        checkpoint_every: int = 100,
        stop_after: int | None = None,
        on_step: Callable[[int, float], None] | None = None,
    ) -> RunEnd:
        """Train to the recipe's end, for ``stop_after`` updates, or until SIGTERM or SIGINT.

        A checkpoint is written every ``checkpoint_every`` updates and when it returns.

        Args:
            on_step: called with the updates made and the last loss in nats per token.

        Raises:
            DraftwoodError: the loss or the gradients of an update are not finite. Nothing is saved
                then: the last checkpoint stays.
        """
        end = self.recipe.steps
        if stop_after is not None:
            end = min(end, self.step + stop_after)
        losses: list[float] = []
        with _stop_signal() as stopping, (self._directory / "log.jsonl").open("a") as log:
            while self.step < end and stopping() is None:
                wall, cpu = time.perf_counter(), time.process_time()
                losses.append(self._update())
                self.step += 1
                self.wall_seconds += time.perf_counter() - wall
                self.cpu_seconds += time.process_time() - cpu
                if on_step is not None:
                    on_step(self.step, losses[-1])
                if self.step % _LOG_EVERY == 0:
                    self._log(log, losses)
                    losses.clear()
                if self.step % checkpoint_every == 0 and self.step < end:
                    self._save()
        self._save()
        self.stopped_by = stopping()
        if self.step >= self.recipe.steps:
            return RunEnd.FINISHED
        return RunEnd.PAUSED if self.step >= end else RunEnd.INTERRUPTED

    @property
    def count(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self._parameters)

    @property
    def tokens(self) -> int:
        """Number of training tokens so far."""
        return self.step * self.recipe.rows * self.recipe.length

    def _update(self) -> float:
        recipe = self.recipe
        device = self._parameters[0].device
        rows = torch.from_numpy(self.batches.take(recipe.rows)).to(device)
        given, wanted = rows[:, :-1], rows[:, 1:]
        length = recipe.length // 2 if recipe.halves(self.step) else recipe.length
        given, wanted = given.reshape(-1, length), wanted.reshape(-1, length)
        micro = max(1, self._micro_tokens // length)
        parts = [slice(start, start + micro) for start in range(0, len(given), micro)]
        total = 0.0
        # Summed in the order of the parts, so that the result does not depend on timing.
        for part, (loss, gradients) in zip(
            parts,
            self._pool.map(lambda p: self._gradients(given[p], wanted[p]), parts),
            strict=True,
        ):
            share = len(given[part]) / len(given)
            total += loss * share
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                if parameter.grad is None:
                    parameter.grad = gradient * share
                else:
                    parameter.grad.add_(gradient, alpha=share)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, _CLIP).item()
        if not (math.isfinite(total) and math.isfinite(norm)):
            raise DraftwoodError(
                f"training diverged at update {self.step + 1}: its loss is {total:g}, its gradient "
                f"norm {norm:g}. {self._directory} keeps its last checkpoint, if it has one; name "
                "another --out and give lower --muon-rate and --adam-rate, or a longer --warmup."
            )
        factor = recipe.rate(self.step)
        for optimiser, peak in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = peak * factor
            optimiser.step()
            optimiser.zero_grad()
        return total

    def _gradients(self, given: Tensor, wanted: Tensor) -> tuple[float, tuple[Tensor, ...]]:
        loss = self._loss(given, wanted, self.step)
        return loss.item(), torch.autograd.grad(loss, self._parameters)

    def _resume(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        found = load_checkpoint(self._directory, self._identity)
        if found is None:
            return
        recipe = self.recipe
        if found.step > recipe.steps:
            done = found.step * recipe.rows * recipe.length
            raise DraftwoodError(
                f"{self._directory} has {found.step} updates, and --tokens {recipe.tokens} are "
                f"{recipe.steps}: give --tokens {done} or more, or another --out."
            )
        self.model.load_state_dict(found.model)
        for (optimiser, _), state in zip(self._optimisers, found.optimisers, strict=True):
            optimiser.load_state_dict(state)
        self.step = found.step
        self.wall_seconds = found.wall_seconds
        self.cpu_seconds = found.cpu_seconds
        self.batches.skip(found.step * self.recipe.rows)
        logger.info("resuming at update %d", self.step)
        before = found.decay_from
        if before is not None and before < min(self.step, recipe.decay_from):
            logger.warning(
                "the rates of %s had begun to fall at update %d; with more --tokens they rise "
                "again, to %.2f of their peaks, which undoes some of what was learnt",
                *(self._directory, before, recipe.rate(self.step)),
            )

    def _save(self) -> None:
        checkpoint = Checkpoint(
            step=self.step,
            wall_seconds=self.wall_seconds,
            cpu_seconds=self.cpu_seconds,
            identity=self._identity,
            model=self.model.state_dict(),
            optimisers=[optimiser.state_dict() for optimiser, _ in self._optimisers],
            decay_from=self.recipe.decay_from,
        )
        save_checkpoint(self._directory, checkpoint)

    def _log(self, log: Any, losses: list[float]) -> None:
        line = {
            "step": self.step,
            "tokens": self.tokens,
            "loss": round(sum(losses) / len(losses), 4),
            "rate": round(self.recipe.rate(self.step - 1), 4),
            "wall_s": round(self.wall_seconds, 1),
            "cpu_s": round(self.cpu_seconds, 1),
        }
        log.write(json.dumps(line, allow_nan=False) + "\n")
        log.flush()


@contextmanager
def _stop_signal() -> Iterator[Callable[[], int | None]]:
    """Within the block, a signal is only kept: its number, or None, is what the value returns."""
    stopped: int | None = None

    def stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal stopped
        stopped = signum

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield lambda: stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

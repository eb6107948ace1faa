"""A run directory: trains the tokenizer, the target and the draft model, and writes records."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.provenance import hardware, versions
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import Domain, find_sources, load_domain, sample_texts
from draftwood.lab.train.evaluate import agreement, greedy_loops, held_out_loss
from draftwood.lab.train.export import export_model, is_finished, load_exported
from draftwood.lab.train.recipe import ModelShape, TrainingRecipe
from draftwood.lab.train.text_model import TextLoss, new_model
from draftwood.lab.train.tokenizer import fingerprint, load_tokenizer, train_tokenizer
from draftwood.lab.train.trainer import RunEnd, Trainer

logger = logging.getLogger(__name__)

_SAMPLE_CHARACTERS = 30_000_000
_SAMPLE_SEED = 1


@dataclass(frozen=True)
class RunOptions:
    """Execution settings; they change the result by rounding only.

    Attributes:
        micro_tokens: tokens per forward.
        workers: parts of a batch processed in parallel, each on one CPU thread.
        mixed: whether matrix products run in bfloat16.
        checkpoint_every: updates per checkpoint.
        stop_after: updates after which to stop; None: train to the end.
        export: further directory for the model.
        command: command line, for the record.
    """

    micro_tokens: int = 1024
    workers: int = 1
    mixed: bool = False
    checkpoint_every: int = 100
    stop_after: int | None = None
    export: Path | None = None
    command: str = ""


class TrainingRun:
    """A training run: texts from ``data``, results in ``out``.

    Args:
        data: directory of ``*.txt.gz`` files.
        out: directory with ``tokenizer/``, ``cache/``, ``target/``, ``draft/`` and ``eagle3/``;
            each model has its checkpoint, its log and ``model/`` in Hugging Face form.
        mixture: share of each domain; shares sum to one.
        device: device to train on.
        sources: JSON about the texts' origin, for the provenance.
    """

    def __init__(
        self,
        data: Path,
        out: Path,
        mixture: Mapping[str, float],
        device: torch.device,
        sources: Path | None = None,
    ) -> None:
        self._files = find_sources(data)
        missing = sorted(set(mixture) - {file.domain for file in self._files})
        if missing:
            raise DraftwoodError(
                f"The mixture names {', '.join(missing)}, but {data} has "
                f"{', '.join(file.domain for file in self._files)}; set --mixture."
            )
        if sources is not None and not sources.is_file():
            raise DraftwoodError(f"The file {sources} given as --sources does not exist.")
        self._data = data
        self.out = out
        self.mixture = dict(mixture)
        self.device = device
        self._sources = sources

    def train_tokenizer(self, vocab_size: int) -> PreTrainedTokenizerFast:
        """Train the tokenizer on a sample of the mixture and save it to ``out/tokenizer``."""
        texts = sample_texts(self._files, self.mixture, _SAMPLE_CHARACTERS, _SAMPLE_SEED)
        tokenizer = train_tokenizer(texts, vocab_size)
        tokenizer.save_pretrained(self.out / "tokenizer")
        logger.info("tokenizer of %d tokens in %s", len(tokenizer), self.out / "tokenizer")
        return load_tokenizer(self.out / "tokenizer")

    def train_model(
        self,
        name: str,
        shape: ModelShape,
        recipe: TrainingRecipe,
        job: RunOptions,
        vocab_size: int = 4096,
    ) -> bool:
        """Train the model ``name`` in ``out/name``, or resume it; returns whether it is finished.

        A finished model is evaluated and written to ``out/name/model`` and ``job.export``. So is an
        unfinished one after ``job.stop_after`` updates, but not after a signal.
        """
        teacher = self._teacher() if recipe.teacher_share > 0.0 else None
        tokenizer = self._tokenizer(vocab_size)
        domains = self.domains(tokenizer)
        model = new_model(shape, len(tokenizer), recipe.seed)
        torch.nn.Module.to(model, self.device)
        trainer = Trainer(
            self.out / name,
            model,
            recipe,
            Batches(domains, self.mixture, recipe.length, recipe.seed),
            {"shape": asdict(shape)} | self.identity(tokenizer),
            TextLoss(model, recipe, teacher, job.mixed),
            job.micro_tokens,
            job.workers,
        )
        outcome = self.execute(name, trainer, job)
        if outcome is RunEnd.INTERRUPTED:
            return False
        facts = {
            "shape": asdict(shape),
            "tokenizer_sha256": fingerprint(tokenizer),
            "held_out": self._evaluate(model.train(False), tokenizer, domains),
            **({"teacher": self._compare(model, teacher, domains)} if teacher else {}),
        }
        record = self.record(name, trainer, outcome, job, facts)
        for directory in self.places(name, job):
            export_model(model, tokenizer, record, directory)
            logger.info("%s written to %s", name, directory)
        return outcome is RunEnd.FINISHED

    def domains(self, tokenizer: PreTrainedTokenizerFast) -> tuple[Domain, ...]:
        """Tokens of the domains of the mixture."""
        return tuple(
            load_domain(file, tokenizer, self.out / "cache")
            for file in self._files
            if file.domain in self.mixture
        )

    def identity(self, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
        """Texts and tokenizer, which must be equal when a run is resumed."""
        return {
            "mixture": self.mixture,
            "data": {file.domain: file.sha256 for file in self._files},
            "tokenizer": fingerprint(tokenizer),
        }

    def execute(self, name: str, trainer: Trainer, job: RunOptions) -> RunEnd:
        """Run ``trainer`` with a progress bar."""
        logger.info("%s: %d parameters, %d updates", name, trainer.count, trainer.recipe.steps)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns) as progress:
            task = progress.add_task(name, total=trainer.recipe.steps, completed=trainer.step)

            def show(step: int, loss: float) -> None:
                progress.update(task, completed=step, description=f"{name} loss {loss:.3f}")

            outcome = trainer.run(job.checkpoint_every, job.stop_after, show)
        if outcome is RunEnd.INTERRUPTED:
            logger.info("stopped at update %d; run the command again to resume", trainer.step)
        else:
            logger.info("evaluating %s", name)
        return outcome

    def record(
        self,
        name: str,
        trainer: Trainer,
        outcome: RunEnd,
        job: RunOptions,
        facts: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Provenance of a trained model: data, settings, hardware, and ``facts``."""
        return {
            "model": name,
            "finished": outcome is RunEnd.FINISHED,
            "parameters": trainer.count,
            "recipe": asdict(trainer.recipe),
            "trained": {
                "updates": trainer.step,
                "tokens": trainer.tokens,
                "epochs": trainer.batches.epochs(),
                "wall_seconds": round(trainer.wall_seconds),
                "cpu_seconds": round(trainer.cpu_seconds),
                "precision": "mixed bfloat16" if job.mixed else "float32",
            },
            "data": self._record_data(),
            **facts,
            "command": job.command,
            "hardware": hardware(),
            "versions": versions(),
        }

    def places(self, name: str, job: RunOptions) -> list[Path]:
        """Directories to write the model to."""
        own = self.out / name / "model"
        return [own] if job.export is None else [own, job.export]

    def _evaluate(
        self,
        model: LlamaForCausalLM,
        tokenizer: PreTrainedTokenizerFast,
        domains: tuple[Domain, ...],
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for domain in domains:
            loss = held_out_loss(model, tokenizer, domain)
            found[domain.name] = asdict(loss) | asdict(greedy_loops(model, domain))
            logger.info("%s: %s", domain.name, found[domain.name])
        return found

    def _compare(
        self, model: LlamaForCausalLM, teacher: LlamaForCausalLM, domains: tuple[Domain, ...]
    ) -> dict[str, Any]:
        compared = {domain.name: asdict(agreement(model, teacher, domain)) for domain in domains}
        logger.info("agreement with the target: %s", compared)
        return compared

    def _record_data(self) -> dict[str, Any]:
        path = self._sources or self._data / "manifest.json"
        origin = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        files = {
            file.domain: {
                "share": round(self.mixture[file.domain], 6),
                "bytes": file.size,
                "sha256": file.sha256,
            }
            for file in self._files
            if file.domain in self.mixture
        }
        return {"files": files, "origin": origin}

    def _tokenizer(self, vocab_size: int) -> PreTrainedTokenizerFast:
        if (self.out / "tokenizer" / "tokenizer.json").is_file():
            return load_tokenizer(self.out / "tokenizer")
        return self.train_tokenizer(vocab_size)

    def _teacher(self) -> LlamaForCausalLM:
        directory = self.out / "target" / "model"
        if not is_finished(directory):
            raise DraftwoodError(
                f"There is no finished target in {directory} for the draft to learn from; "
                "train the target first or pass --teacher-share 0."
            )
        return load_exported(directory, self.device)

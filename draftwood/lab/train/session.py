"""One run directory: tokenizer, tokens, then target, then draft, each checked before it starts.

What a run of any kind needs of the texts, and leaves as a record, is here as well.
"""

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
from draftwood.lab.train.recipe import Recipe, Shape
from draftwood.lab.train.text_model import TextLoss, new_model
from draftwood.lab.train.tokenizer import fingerprint, load_tokenizer, train_tokenizer
from draftwood.lab.train.trainer import Outcome, Trainer

logger = logging.getLogger(__name__)

_SAMPLE_CHARACTERS = 30_000_000
_SAMPLE_SEED = 1


@dataclass(frozen=True)
class Job:
    """How a run is carried out; nothing that changes what is learnt beyond rounding.

    Attributes:
        micro_tokens: tokens run through the model at once.
        workers: parts of a batch in flight at a time, each on one CPU thread.
        mixed: whether matrix products run in bfloat16.
        checkpoint_every: updates.
        stop_after: updates after which to stop, to be resumed; None: train to the end.
        export: where the model goes as well in the end.
        command: how the run was asked for, for the record.
    """

    micro_tokens: int = 1024
    workers: int = 1
    mixed: bool = False
    checkpoint_every: int = 100
    stop_after: int | None = None
    export: Path | None = None
    command: str = ""


class Session:
    """Trains into ``out`` from the corpus in ``data``.

    Args:
        data: directory of ``*.txt.gz`` files.
        out: holds ``tokenizer/``, ``cache/``, ``target/``, ``draft/`` and
            ``eagle3/``, each model with its checkpoint, log and ``model/`` in
            Hugging Face form.
        mixture: share of each domain, summing to one.
        device: where to train.
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
                f"The mixture names {', '.join(missing)}, but {data} holds "
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
        """Learn the tokenizer from a sample of the mixture and save it to ``out/tokenizer``."""
        texts = sample_texts(self._files, self.mixture, _SAMPLE_CHARACTERS, _SAMPLE_SEED)
        tokenizer = train_tokenizer(texts, vocab_size)
        tokenizer.save_pretrained(self.out / "tokenizer")
        logger.info("tokenizer of %d tokens in %s", len(tokenizer), self.out / "tokenizer")
        return load_tokenizer(self.out / "tokenizer")

    def train_model(
        self, what: str, shape: Shape, recipe: Recipe, job: Job, vocab_size: int = 4096
    ) -> bool:
        """Train ``what``, or go on training it, in ``out/what``; True where that is now finished.

        A finished model is judged and written to ``out/what/model`` and ``job.export``;
        so is an unfinished one after ``job.stop_after`` updates, marked as unfinished,
        but not one that a signal stopped.
        """
        teacher = self._teacher() if recipe.teacher_share > 0.0 else None
        tokenizer = self._tokenizer(vocab_size)
        domains = self.domains(tokenizer)
        model = new_model(shape, len(tokenizer), recipe.seed)
        torch.nn.Module.to(model, self.device)
        trainer = Trainer(
            self.out / what,
            model,
            recipe,
            Batches(domains, self.mixture, recipe.length, recipe.seed),
            {"shape": asdict(shape)} | self.identity(tokenizer),
            TextLoss(model, recipe, teacher, job.mixed),
            job.micro_tokens,
            job.workers,
        )
        outcome = self.carry_out(what, trainer, job)
        if outcome is Outcome.INTERRUPTED:
            return False
        facts = {
            "shape": asdict(shape),
            "tokenizer_sha256": fingerprint(tokenizer),
            "held_out": self._judge(model.train(False), tokenizer, domains),
            **({"teacher": self._compare(model, teacher, domains)} if teacher else {}),
        }
        record = self.record(what, trainer, outcome, job, facts)
        for directory in self.places(what, job):
            export_model(model, tokenizer, record, directory)
            logger.info("%s written to %s", what, directory)
        return outcome is Outcome.FINISHED

    def domains(self, tokenizer: PreTrainedTokenizerFast) -> tuple[Domain, ...]:
        """Tokens of the domains that the mixture names."""
        return tuple(
            load_domain(file, tokenizer, self.out / "cache")
            for file in self._files
            if file.domain in self.mixture
        )

    def identity(self, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
        """What of texts and tokenizer must agree for a run to go on."""
        return {
            "mixture": self.mixture,
            "data": {file.domain: file.sha256 for file in self._files},
            "tokenizer": fingerprint(tokenizer),
        }

    def carry_out(self, what: str, trainer: Trainer, job: Job) -> Outcome:
        """Run ``trainer`` with a progress bar."""
        logger.info("%s: %d parameters, %d updates", what, trainer.count, trainer.recipe.steps)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns) as progress:
            task = progress.add_task(what, total=trainer.recipe.steps, completed=trainer.step)

            def show(step: int, loss: float) -> None:
                progress.update(task, completed=step, description=f"{what} loss {loss:.3f}")

            outcome = trainer.run(job.checkpoint_every, job.stop_after, show)
        if outcome is Outcome.INTERRUPTED:
            logger.info("stopped at update %d; run again to go on", trainer.step)
        else:
            logger.info("judging %s", what)
        return outcome

    def record(
        self, what: str, trainer: Trainer, outcome: Outcome, job: Job, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Where a trained model comes from: what all kinds have in common, and ``facts``."""
        return {
            "model": what,
            "finished": outcome is Outcome.FINISHED,
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

    def places(self, what: str, job: Job) -> list[Path]:
        """Directories that the model is written to."""
        kept = self.out / what / "model"
        return [kept] if job.export is None else [kept, job.export]

    def _judge(
        self,
        model: LlamaForCausalLM,
        tokenizer: PreTrainedTokenizerFast,
        domains: tuple[Domain, ...],
    ) -> dict[str, Any]:
        judged: dict[str, Any] = {}
        for domain in domains:
            loss = held_out_loss(model, tokenizer, domain)
            judged[domain.name] = asdict(loss) | asdict(greedy_loops(model, domain))
            logger.info("%s: %s", domain.name, judged[domain.name])
        return judged

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

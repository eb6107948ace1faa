"""One run directory: tokenizer, tokens, then target, then draft, each checked before it starts."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.train.batches import Batches
from draftwood.train.corpus import Domain, find_sources, load_domain, sample_texts
from draftwood.train.evaluate import agreement, held_out_loss, loop_share
from draftwood.train.export import export_model, is_finished, load_exported, surroundings
from draftwood.train.recipe import Recipe, Shape
from draftwood.train.tokenizer import load_tokenizer, train_tokenizer
from draftwood.train.trainer import Outcome, Trainer, new_model

logger = logging.getLogger(__name__)

_SAMPLE_CHARACTERS = 30_000_000
_SAMPLE_SEED = 1


class Session:
    """Trains into ``out`` from the corpus in ``data``.

    Args:
        data: directory of ``*.txt.gz`` files.
        out: holds ``tokenizer/``, ``cache/``, ``target/`` and ``draft/``, each
            model with its checkpoint, log and ``model/`` in Hugging Face form.
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
        self._out = out
        self._mixture = dict(mixture)
        self.device = device
        self._sources = sources

    def train_tokenizer(self, vocab_size: int) -> PreTrainedTokenizerFast:
        """Learn the tokenizer from a sample of the mixture and save it to ``out/tokenizer``."""
        texts = sample_texts(self._files, self._mixture, _SAMPLE_CHARACTERS, _SAMPLE_SEED)
        tokenizer = train_tokenizer(texts, vocab_size)
        tokenizer.save_pretrained(self._out / "tokenizer")
        logger.info("tokenizer of %d tokens in %s", len(tokenizer), self._out / "tokenizer")
        return load_tokenizer(self._out / "tokenizer")

    def train_model(
        self,
        what: str,
        shape: Shape,
        recipe: Recipe,
        *,
        vocab_size: int = 4096,
        micro_tokens: int = 1024,
        workers: int = 1,
        mixed: bool = False,
        checkpoint_every: int = 100,
        stop_after: int | None = None,
        export: Path | None = None,
        command: str = "",
    ) -> bool:
        """Train ``what``, or go on training it, in ``out/what``; True where that is now finished.

        A finished model is judged and written to ``out/what/model`` and ``export``;
        so is an unfinished one after ``stop_after`` updates, marked as unfinished,
        but not one that a signal stopped.
        """
        teacher = self._teacher() if recipe.teacher_share > 0.0 else None
        tokenizer = self._tokenizer(vocab_size)
        domains = self._domains(tokenizer)
        batches = Batches(domains, self._mixture, recipe.length, recipe.seed)
        model = new_model(shape, len(tokenizer), recipe.seed)
        torch.nn.Module.to(model, self.device)
        identity = {
            "shape": asdict(shape),
            "mixture": self._mixture,
            "data": {file.domain: file.sha256 for file in self._files},
            "tokenizer": hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        }
        trainer = Trainer(
            self._out / what,
            model,
            recipe,
            batches,
            identity,
            teacher,
            micro_tokens,
            workers,
            mixed,
        )
        count = model.num_parameters()
        logger.info("%s: %d parameters, %d updates", what, count, recipe.steps)
        outcome = self._train(what, trainer, checkpoint_every, stop_after)
        if outcome is Outcome.INTERRUPTED:
            logger.info("stopped at update %d; run again to go on", trainer.step)
            return False
        logger.info("judging %s", what)
        record = {
            "model": what,
            "finished": outcome is Outcome.FINISHED,
            "parameters": count,
            "shape": asdict(shape),
            "recipe": asdict(recipe),
            "trained": {
                "updates": trainer.step,
                "tokens": trainer.tokens,
                "epochs": batches.epochs(),
                "wall_seconds": round(trainer.wall_seconds),
                "cpu_seconds": round(trainer.cpu_seconds),
                "precision": "mixed bfloat16" if mixed else "float32",
            },
            "data": self._record_data(),
            "tokenizer_sha256": identity["tokenizer"],
            "held_out": self._judge(model.train(False), tokenizer, domains),
            **({"teacher": self._compare(model, teacher, domains)} if teacher else {}),
            "command": command,
            **surroundings(),
        }
        for directory in (self._out / what / "model", export):
            if directory is not None:
                export_model(model, tokenizer, record, directory)
                logger.info("%s written to %s", what, directory)
        return outcome is Outcome.FINISHED

    def _train(
        self, what: str, trainer: Trainer, checkpoint_every: int, stop_after: int | None
    ) -> Outcome:
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

            return trainer.run(checkpoint_every, stop_after, show)

    def _judge(
        self,
        model: LlamaForCausalLM,
        tokenizer: PreTrainedTokenizerFast,
        domains: tuple[Domain, ...],
    ) -> dict[str, Any]:
        judged: dict[str, Any] = {}
        for domain in domains:
            loss = held_out_loss(model, tokenizer, domain)
            loops = loop_share(model, domain)
            judged[domain.name] = asdict(loss) | {"greedy_loops": loops}
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
                "share": round(self._mixture[file.domain], 6),
                "bytes": file.size,
                "sha256": file.sha256,
            }
            for file in self._files
            if file.domain in self._mixture
        }
        return {"files": files, "origin": origin}

    def _tokenizer(self, vocab_size: int) -> PreTrainedTokenizerFast:
        if (self._out / "tokenizer" / "tokenizer.json").is_file():
            return load_tokenizer(self._out / "tokenizer")
        return self.train_tokenizer(vocab_size)

    def _domains(self, tokenizer: PreTrainedTokenizerFast) -> tuple[Domain, ...]:
        return tuple(
            load_domain(file, tokenizer, self._out / "cache")
            for file in self._files
            if file.domain in self._mixture
        )

    def _teacher(self) -> LlamaForCausalLM:
        directory = self._out / "target" / "model"
        if not is_finished(directory):
            raise DraftwoodError(
                f"There is no finished target in {directory} for the draft to learn from; "
                "train the target first or pass --teacher-share 0."
            )
        return load_exported(directory, self.device)

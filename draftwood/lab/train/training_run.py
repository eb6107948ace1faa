"""A run directory: the tokenizer, the cached tokens, and the training of each model."""

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn
from transformers import PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.files import read_json
from draftwood.lab.alone import alone
from draftwood.lab.bench.provenance import hardware, versions
from draftwood.lab.bench.stopping import CODE
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import (
    Domain,
    DomainFile,
    find_sources,
    load_domain,
    read_documents,
    sample_texts,
)
from draftwood.lab.train.export import check_export
from draftwood.lab.train.recipe import VOCABULARY, TrainingRecipe
from draftwood.lab.train.run_options import RunOptions
from draftwood.lab.train.tokenizer import fingerprint, load_tokenizer, train_tokenizer
from draftwood.lab.train.trainer import Loss, RunEnd, Trainer

logger = logging.getLogger(__name__)

_SAMPLE_CHARACTERS = 30_000_000
_SAMPLE_SEED = 1

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class TrainingRun:
    """A training run: texts from ``data``, results in ``out``.

    Attributes:
        data: directory of ``*.txt.gz`` files.
        out: directory with ``tokenizer/``, ``cache/``, ``target/``, ``draft/`` and ``eagle3/``;
            each model has its checkpoint, its log and ``model/`` in Hugging Face form.
        mixture: share of each domain; shares sum to one.
        device: device to train on.
        sources: JSON about the texts' origin, for the provenance.
        command: command line, for the provenance.
    """

    data: Path
    out: Path
    mixture: Mapping[str, float]
    device: torch.device
    sources: Path | None
    command: str

    def __post_init__(self) -> None:
        missing = sorted(set(self.mixture) - {file.domain for file in self._files})
        if missing:
            raise DraftwoodError(
                f"The mixture names {', '.join(missing)}, but {self.data} has "
                f"{', '.join(file.domain for file in self._files)}; set --mixture."
            )
        _ = self._origin

    @cached_property
    def _files(self) -> tuple[DomainFile, ...]:
        return find_sources(self.data)

    @cached_property
    def _origin(self) -> Any:
        path = self.sources or self.data / "manifest.json"
        return read_json(path) if self.sources or path.is_file() else {}

    def train_tokenizer(self, vocab_size: int) -> PreTrainedTokenizerFast:
        """Train the tokenizer on a sample of the mixture and save it to ``out/tokenizer``.

        Raises:
            DraftwoodError: ``out`` has another one, and a model that was trained with it.
        """
        directory = self.out / "tokenizer"
        texts = sample_texts(self._files, self.mixture, _SAMPLE_CHARACTERS, _SAMPLE_SEED)
        made = train_tokenizer(texts, vocab_size)
        if (directory / "tokenizer.json").is_file() and any(self.out.glob("*/checkpoint.pt")):
            with TemporaryDirectory() as place:
                made.save_pretrained(place)
                new = fingerprint(load_tokenizer(Path(place)))
            if new != fingerprint(load_tokenizer(directory)):
                raise DraftwoodError(
                    f"{directory} is another tokenizer, and {self.out} has a model that was "
                    "trained with it: name another --out"
                )
        made.save_pretrained(directory)
        tokenizer = load_tokenizer(directory)
        logger.info("tokenizer of %d tokens in %s", len(tokenizer), directory)
        return tokenizer

    def tokenizer(self, vocab_size: int | None) -> PreTrainedTokenizerFast:
        """The tokenizer in ``out``, trained if there is none; another size than asked is told."""
        directory = self.out / "tokenizer"
        if not (directory / "tokenizer.json").is_file():
            return self.train_tokenizer(vocab_size or VOCABULARY)
        found = load_tokenizer(directory)
        if vocab_size not in (None, len(found)):  # little text has fewer
            logger.warning(
                "the tokenizer in %s has %d tokens, not %s", directory, len(found), vocab_size
            )
        return found

    def documents(self) -> Iterator[tuple[str, str]]:
        """Name and text of every document of the mixture's domains."""
        for file in self._files:
            if file.domain in self.mixture:
                for number, text in enumerate(read_documents(file), start=1):
                    yield f"{file.path.name}, document {number},", text

    def domains(self, tokenizer: PreTrainedTokenizerFast) -> tuple[Domain, ...]:
        """Tokens of the domains of the mixture."""
        return tuple(
            load_domain(file, tokenizer, self.out / "cache")
            for file in self._files
            if file.domain in self.mixture
        )

    def train(
        self,
        name: str,
        model: M,
        tokenizer: PreTrainedTokenizerFast,
        recipe: TrainingRecipe,
        options: RunOptions,
        identity: Mapping[str, Any],
        loss: Loss,
        evaluate: Callable[[], Mapping[str, Any]],
        export: Callable[[M, dict[str, Any], Path], None],
    ) -> None:
        """Train a model in ``out/name``, or resume it.

        A finished model is evaluated and written to ``out/name/model`` and ``options.export``. An
        unfinished one is evaluated and written to the former after ``options.stop_after`` updates,
        but not after a signal, whose usual exception is raised after the checkpoint.

        Args:
            name: directory of the model.
            model: the model, on the run's device.
            tokenizer: the tokenizer of its texts.
            recipe: training settings.
            options: execution settings.
            identity: facts beside the texts that must be equal when the run is resumed.
            loss: loss of ``model``.
            evaluate: returns facts for the provenance, of the trained model.
            export: writes the model and its provenance to a directory.

        Raises:
            DraftwoodError: the directory has another run, another process trains there, or
                ``options.export`` cannot be written.
            KeyboardInterrupt: SIGINT interrupted the run.
            SystemExit: SIGTERM did, with the exit code 143.
        """
        if options.export is not None:
            check_export(options.export, name)
        facts = {
            "mixture": self.mixture,
            "data": {
                file.domain: file.sha256 for file in self._files if file.domain in self.mixture
            },
            "tokenizer": fingerprint(tokenizer),
        }
        (self.out / name).mkdir(parents=True, exist_ok=True)
        with alone(self.out / name, "--out"):
            trainer = Trainer(
                self.out / name,
                model,
                recipe,
                Batches(self.domains(tokenizer), self.mixture, recipe.length, recipe.seed),
                {**identity, **facts},
                loss,
                options.micro_tokens,
                workers=torch.get_num_threads() if self.device.type == "cpu" else 1,
                muon_dtype=torch.bfloat16 if options.mixed(self.device) else None,
            )
            end = self._execute(name, trainer, options)
            if end is RunEnd.INTERRUPTED:
                logger.info("stopped at update %d; run the command again to resume", trainer.step)
                if trainer.stopped_by == signal.SIGTERM:
                    raise SystemExit(CODE)
                raise KeyboardInterrupt
            logger.info("evaluating %s", name)
            model.train(mode=False)
            record = self._record(name, trainer, end, options) | {
                "tokenizer_sha256": facts["tokenizer"],
                **evaluate(),
            }
            places = [self.out / name / "model"]
            if options.export is not None and end is RunEnd.FINISHED:
                places.append(options.export)
            for directory in places:
                export(model, record, directory)
                logger.info("%s written to %s", name, directory)

    def _execute(self, name: str, trainer: Trainer, options: RunOptions) -> RunEnd:
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

            return trainer.run(options.checkpoint_every, options.stop_after, show)

    def _record(
        self, name: str, trainer: Trainer, end: RunEnd, options: RunOptions
    ) -> dict[str, Any]:
        """Provenance of a trained model: settings, data and hardware."""
        files = {
            file.domain: {
                "share": round(self.mixture[file.domain], 6),
                "bytes": file.size,
                "sha256": file.sha256,
            }
            for file in self._files
            if file.domain in self.mixture
        }
        return {
            "model": name,
            "finished": end is RunEnd.FINISHED,
            "parameters": trainer.count,
            "recipe": asdict(trainer.recipe),
            "trained": {
                "updates": trainer.step,
                "tokens": trainer.tokens,
                "epochs": trainer.batches.epochs(),
                "wall_seconds": round(trainer.wall_seconds),
                "cpu_seconds": round(trainer.cpu_seconds),
                "precision": "mixed bfloat16" if options.mixed(self.device) else "float32",
            },
            "data": {"files": files, "origin": self._origin},
            "command": self.command,
            "hardware": hardware(),
            "versions": versions(),
        }

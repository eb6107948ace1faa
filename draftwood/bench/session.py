"""A whole run: from checked settings to the document.

The order of checks is the order of cost: settings and prompts before the model, lengths before the
first timed run. Knows nothing of flags and of the terminal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

import torch

from draftwood import models
from draftwood.bench.contenders import (
    REFERENCE,
    Choice,
    Stage,
    choose,
    default_peer,
    plain,
    unnamed_peers,
)
from draftwood.bench.contexts import Contexts
from draftwood.bench.divergence import Divergence, divergence, explain, top_two_gap
from draftwood.bench.document import document, method_entry
from draftwood.bench.measure import Decoding, Item
from draftwood.bench.prompts import Prompt, read
from draftwood.bench.provenance import provenance
from draftwood.bench.rows import Row, Run, row_of
from draftwood.bench.runs import Job, Where, execute, grouped, items, plan
from draftwood.errors import DraftwoodError
from draftwood.sampling import SamplingParams
from draftwood.stats import StepStats


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run; recorded in its provenance.

    Attributes:
        prompts: the sets.
        methods: contenders as the user spelt them.
        peers: add every peer that ``methods`` does not name, where it is available.
        limit: most prompts of each set.
        model: what :func:`draftwood.models.load` takes.
        dtype: likewise.
        device: likewise.
        trust_remote_code: likewise.
        threads: of torch; None leaves them as they are.
        max_new_tokens: longest answer.
        sampling: of all prompts, with the seed of the first, which also shuffles the methods.
        budget: for methods that do not set their own.
        batch: prompts decoded together.
        repeats: timed runs of each (method, prompt).
        chat: see :class:`draftwood.bench.contexts.Contexts`.
        truncate: likewise.
    """

    prompts: tuple[Path, ...]
    methods: tuple[str, ...]
    peers: bool = False
    limit: int | None = None
    model: str = "embedded"
    dtype: str = "auto"
    device: str = "auto"
    trust_remote_code: bool = False
    threads: int | None = None
    max_new_tokens: int = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    budget: int | None = None
    batch: int = 1
    repeats: int = 1
    chat: bool | None = None
    truncate: int | None = None

    def __post_init__(self) -> None:
        for name in ("limit", "threads", "max_new_tokens", "batch", "repeats", "truncate"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DraftwoodError(f"{name} is {value}: it must be at least 1")


class Session:
    """Loads what a run needs and keeps what it has come to, whole or interrupted.

    Attributes:
        missing: peers that were to be added and are not available, with the reasons.

    Raises:
        DraftwoodError: a setting, a prompt or the model cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.choices: list[Choice] = choose(settings.methods, settings.budget)
        self.prompts: list[Prompt] = read(settings.prompts, settings.limit)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self._stage = Stage(
            lambda: models.load(
                settings.model,
                dtype=settings.dtype,
                device=settings.device,
                trust_remote_code=settings.trust_remote_code,
            )
        )
        self._contexts = Contexts(
            self._stage.loaded.tokenizer,
            self._stage.target.info.context_limit,
            settings.max_new_tokens,
            chat=settings.chat,
            truncate=settings.truncate,
        )
        self._contexts.check(self.prompts)
        self._contenders = {choice.name: choice.enter(self._stage) for choice in self.choices}
        self.missing: dict[str, str] = {}
        if settings.peers:
            self._add_peers()
        groups = grouped(items(self.prompts, settings.sampling), settings.batch)
        self._warm_up = max(groups, key=self._tokens)
        names = list(self._contenders)
        self.jobs = plan(groups, names, settings.repeats, settings.sampling.seed)
        self._provenance = provenance(
            model=self._stage.facts(),
            settings={f.name: plain(getattr(settings, f.name)) for f in fields(settings)},
            sets=settings.prompts,
        )
        self._runs: list[Run] = []

    def execute(
        self,
        starting: Callable[[Job, bool], None],
        watch: Callable[[Where, Sequence[StepStats]], None] | None = None,
    ) -> None:
        """Run all jobs; what has ended is kept if this is interrupted."""
        settings = self.settings
        decoding = Decoding(settings.max_new_tokens, self._stage.loaded.eos)
        for ended in execute(
            self.jobs,
            self._contenders,
            self._contexts,
            decoding,
            warm_up=self._warm_up,
            starting=starting,
            watch=watch,
        ):
            self._runs += ended

    def document(self, *, complete: bool) -> dict[str, object]:
        """The output so far; gaps of divergences are looked up only for a complete run."""
        references = {
            run.prompt.id: run for run in self._runs if run.method == REFERENCE and not run.repeat
        }
        rows: dict[str, list[Row]] = {}
        found: dict[str, list[Divergence]] = {}
        for choice in self.choices:
            rows[choice.name], found[choice.name] = [], []
            for run in self._runs:
                if run.method != choice.name:
                    continue
                reference = references.get(run.prompt.id)
                identical = None
                if reference is not None and reference is not run and self._comparable(choice):
                    wrong = divergence(run, reference)
                    identical = wrong is None
                    if wrong is not None:
                        found[choice.name].append(
                            explain(wrong, reference, partial(self._gap, run.seed))
                            if complete
                            else wrong
                        )
                rows[choice.name].append(row_of(run, identical))
        entries = {
            c.name: method_entry(
                rows[c.name],
                rows[REFERENCE],
                found[c.name],
                {key: plain(value) for key, value in c.settings.items()},
            )
            for c in self.choices
        }
        return document(self._provenance, entries, self.missing, complete=complete)

    def _add_peers(self) -> None:
        for name in unnamed_peers(self.choices):
            try:
                choice = default_peer(name)
                contender = choice.enter(self._stage)
            except DraftwoodError as error:
                self.missing[name] = str(error)
            else:
                self.choices.append(choice)
                self._contenders[name] = contender

    def _tokens(self, group: Sequence[Item]) -> int:
        return sum(self._contexts.most_tokens(item.prompt) for item in group)

    def _comparable(self, choice: Choice) -> bool:
        return choice.samples_alike or self.settings.sampling.temperature == 0

    def _gap(self, seed: int, tokens: Sequence[int]) -> float:
        return top_two_gap(self._stage.stock, tokens, replace(self.settings.sampling, seed=seed))

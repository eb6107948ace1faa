"""A whole run: from checked settings to the document.

The order of checks is the order of cost: settings and prompts before the model, lengths before the
first timed run. Knows nothing of flags and of the terminal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from draftwood.costs import busy
from draftwood.costs.busy import total_usage, usage_between
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError, need
from draftwood.lab.bench.aggregate import Baselines, method_entry
from draftwood.lab.bench.contenders import (
    Choice,
    OwnChoice,
    Stage,
    WarmContender,
    choose,
    chosen,
    unnamed_peers,
)
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.divergence import compare, references
from draftwood.lab.bench.document import PEER, REFERENCE, SCHEMA, Document, Excerpt
from draftwood.lab.bench.excerpts import excerpt, first_of_each_task
from draftwood.lab.bench.journal import Journal
from draftwood.lab.bench.margins import Margin, margin
from draftwood.lab.bench.measure import Contender, Decoding
from draftwood.lab.bench.prompts import Prompt, check_count, read
from draftwood.lab.bench.provenance import decisive, part_of, provenance
from draftwood.lab.bench.quiet import recorded
from draftwood.lab.bench.rows import Run
from draftwood.lab.bench.runs import (
    WARM_UP_TOKENS,
    Job,
    Watch,
    execute,
    grouped,
    items,
    plan,
    warm_up,
)
from draftwood.lab.bench.settings import Settings


class Session:
    """A run: loads models and contenders, runs the jobs and holds their results.

    Args:
        settings: what decides the run.
        journal: keeps every job as it ends, and has those that another process ended.
        stage: the model that ``settings`` name, for several runs in one process; None: it is
            loaded, after methods that have nothing to draft with are refused.

    Attributes:
        missing: peers that were to be added and are not available, with the reasons.
        notes: lines about the shipped parts that methods use.
        jobs: what is left to do.
        ended: number of jobs that the journal had.

    Raises:
        DraftwoodError: a setting, a prompt or the model cannot be used, or the journal is of
            another run.
    """

    def __init__(self, settings: Settings, journal: Journal, stage: Stage | None = None) -> None:
        need("scipy", "lab")
        self._began = busy.counters()
        self.settings = settings
        self._journal = journal
        self.choices: list[Choice] = choose(settings.contenders, settings.defaults)
        joining = unnamed_peers(c.name for c in self.choices) if settings.peers else []
        settings.defaults.check([*(c.name for c in self.choices), *joining])
        self.prompts: list[Prompt] = read(settings.prompts, settings.limit)
        check_count("--batch", settings.batch, len(self.prompts))
        if settings.best is not None:
            settings.best.refuse(self.prompts, settings.recorded())
        own = {c.name: c.method for c in self.choices if isinstance(c, OwnChoice)}
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        found = provenance(model={}, settings=settings.recorded(), sets=settings.prompts)
        known = decisive(found)
        journal.check({key: known[key] for key in known if key != "model"})
        self._stage = stage or Stage(partial(settings.load, own))
        self.choices = [
            each.equipped(self._stage) if isinstance(each, OwnChoice) else each
            for each in self.choices
        ]
        self.notes = [c.note for c in self.choices if isinstance(c, OwnChoice) and c.note]
        self._provenance = {**found, "model": self._stage.facts()}
        tokenizer = self._stage.loaded.tokenizer
        self._contexts = Contexts(
            tokenizer,
            self._stage.target.info.context_limit,
            settings.max_new_tokens,
            chat=settings.chat,
            truncate=settings.truncate,
        )
        self._contexts.check(self.prompts)
        self._excerpted = first_of_each_task(self.prompts)
        self._contenders = {choice.name: choice.enter(self._stage) for choice in self.choices}
        self.missing: dict[str, str] = {}
        self._add_peers(joining)
        groups = {
            seed: grouped(
                items(self.prompts, replace(settings.sampling, seed=seed)), settings.batch
            )
            for seed in settings.seeds
        }
        self._longest = max(
            groups[settings.seeds[0]],
            key=lambda group: sum(self._contexts.most_tokens(item.prompt) for item in group),
        )
        self._journal.check(self._facts())
        self._runs: list[Run] = list(self._journal.runs)
        self.ended = len(self._journal.done)
        jobs = plan(groups, list(self._contenders), settings.repeats)
        self.jobs = [job for job in jobs if job.key not in self._journal.done]

    def execute(
        self,
        starting: Callable[[Job, bool], None],
        watch: Watch | None = None,
        warm_up_tokens: int = WARM_UP_TOKENS,
    ) -> None:
        """Run all jobs that are left; finished jobs stay if this is interrupted.

        Args:
            starting: called before each job, with False for the untimed ones of the warm-up.
            watch: called with the steps of every answer.
            warm_up_tokens: most new tokens of a warm-up's answers.
        """
        settings = self.settings
        decoding = Decoding(settings.max_new_tokens, self._stage.loaded.eos)
        left = {job.method for job in self.jobs}
        contenders = {name: found for name, found in self._contenders.items() if name in left}
        # A contender that keeps what it learns begins after this: it has not seen any answer.
        warm_up(contenders, self._longest, self._contexts, decoding, starting, warm_up_tokens)
        running = execute(
            self.jobs,
            self._timed(contenders),
            self._contexts,
            decoding,
            device=self._stage.target.info.device,
            starting=starting,
            watch=watch,
            quote=self._quote,
            ended=self._runs,
        )
        for job, runs in zip(self.jobs, running, strict=True):
            self._journal.add(job, runs, self._facts(), part_of(self._provenance))
            self._runs += runs

    def document(self, *, complete: bool) -> Document:
        """The output so far; gaps of divergences are looked up only for a complete run."""
        against = references(self._runs, REFERENCE)
        found = {}
        for choice in self.choices:
            runs = [run for run in self._runs if run.method == choice.name]
            comparable = choice.same_tokens(self.settings.sampling.temperature)
            found[choice.name] = compare(
                runs, against if comparable else {}, self._margin if complete else None
            )
        hf = found[PEER].rows if PEER in found else ()
        baselines = Baselines(ar=found[REFERENCE].rows, hf=hf)
        entries = {
            choice.name: method_entry(
                choice.name,
                found[choice.name].rows,
                baselines,
                found[choice.name].divergences,
                choice.settings,
            )
            for choice in self.choices
        }
        order = {choice.name: number for number, choice in enumerate(self.choices)}
        runs = sorted(self._runs, key=lambda run: (run.group, order[run.method]))
        quoted = (run.turns[0].excerpt for run in runs)
        parts = [*self._journal.parts, part_of(self._provenance)] if self.ended else []
        best = self.settings.best
        return Document(
            schema=SCHEMA,
            complete=complete,
            provenance={**self._provenance, "resumed": parts, "other_processes": self._others()},
            methods=entries,
            missing=self.missing,
            excerpts=tuple(excerpt for excerpt in quoted if excerpt is not None),
            best=None if best is None else best.recorded(self.settings.methods),
        )

    def _others(self) -> dict[str, object]:
        jobs = {(r.method, r.run_seed, r.repeat, r.group): r.others for r in self._runs}
        return recorded(total_usage(jobs.values()), usage_between(self._began, busy.counters()))

    def _add_peers(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                choice = chosen(name, self.settings.defaults)
                contender = choice.enter(self._stage)
            except DraftwoodError as error:
                self.missing[name] = str(error)
            else:
                self.choices.append(choice)
                self._contenders[name] = contender

    def _facts(self) -> dict[str, object]:
        """The facts that decide the run."""
        entered = {choice.name: choice.settings for choice in self.choices}
        return {**decisive(self._provenance), "contenders": entered}

    def _timed(self, contenders: Mapping[str, Contender]) -> Mapping[str, Contender]:
        if not self.settings.warm:
            return contenders
        return {name: WarmContender(each, self.settings.batch) for name, each in contenders.items()}

    def _quote(
        self,
        job: Job,
        prompt: Prompt,
        context: Sequence[int],
        answer: Sequence[int],
        steps: Sequence[StepStats],
    ) -> Excerpt | None:
        """The excerpt of a task's first answer by a method that has steps; None for others."""
        first = job.run_seed == self.settings.seeds[0] and not job.repeat
        if not (first and steps and prompt.id in self._excerpted):
            return None
        tokenizer = self._stage.loaded.tokenizer
        return excerpt(tokenizer, job.method, prompt, context, answer, steps)

    def _margin(self, tokens: Sequence[int], between: Sequence[int], seed: int) -> Margin:
        sampling = replace(self.settings.sampling, seed=seed)
        return margin(self._stage.stock, tokens, between, sampling)

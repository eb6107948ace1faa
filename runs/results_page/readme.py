"""The README's table of speeds: SmolLM2 on all sets, `auto` beside transformers and llama.cpp."""

from statistics import fmean

from .markdown import number, table
from .speed import GROUPS, MANY, PLAIN, cold, fastest, loops, mean, of_sets, speedup, timed
from .stored import Run, Runs, commit, date, leading, link, mode

BEGIN = "<!-- This table is written by python runs/results.py. -->\n"
END = "<!-- The end of the speeds. -->\n"

COLD = "cold"

COLUMNS = {
    "auto": "Draftwood's `auto`",
    COLD: "`auto`, nothing shipped",
    "goose": "Draftwood's `goose`",
    "llamacpp": "llama.cpp",
    "llamacpp-lookup": "llama.cpp's prompt lookup",
    PLAIN: "Draftwood, plain",
    "hf-lookup": "transformers' prompt lookup",
    "hf": "transformers' `generate`",
    "hf-assistant": "transformers' assisted generation",
}
"""Heads by methods, and of the `auto` that uses nothing prepared for the model.

Of several settings of one method the fastest on the mean is shown.
"""


def speeds(runs: Runs) -> str:
    """The table, with what it measures; a sentence without a run on all sets."""
    found = {
        name: run
        for name, run in timed(leading(runs)).items()
        if len(run["methods"][PLAIN]["by_set"]) >= MANY
    }
    if not found:
        return "SmolLM2-135M-Instruct is not measured yet: `runs/smollm2/grid.sh`.\n"
    last = list(found.values())[-1]
    cores = last["provenance"]["hardware"]["cores_usable"]
    header = ["decoding", *COLUMNS.values(), "repeated 8-grams", "`auto` without loops", "run"]
    rows = [
        [mode(run)[1], *_means(run), *_loops(run), link(name, commit(run))]
        for name, run in found.items()
    ]
    whole = table(header, rows).replace("](../runs/", "](runs/")
    model, _, batch = mode(last)
    sets = len(last["methods"][PLAIN]["by_set"])
    dates = " and ".join(sorted({date(run) for run in found.values()}))
    return (
        "How many times as fast as plain decoding through Draftwood's own engine: "
        f"{model}, {batch}, {cores} CPU cores,\n{dates}. A figure is the mean over {sets} sets of "
        "prompts of the median in each set. *Repeated 8-grams*\nis the share of runs of eight "
        "tokens that the same answer already had: such answers are easy to copy, so\nevery method "
        "that copies looks better on them, and shares of 20 % or more are bold. *`auto` without\n"
        "loops* leaves out the prompts whose answers reach 20 %; it is a median over the others.\n"
        f"{_unequal(found)}\n{whole}\n"
    )


def _unequal(found: Runs) -> str:
    """What `auto` has and its rivals have not, and how it compares without; empty if unknown."""
    over = {}
    for run in found.values():
        bare = cold(run["methods"])
        cuts = of_sets(run["methods"]).values()
        goose = [name for name in run["methods"] if name.partition(":")[0] == "goose"]
        if bare is not None and goose:
            best = max(fmean(speedup(cut[name]) for cut in cuts) for name in goose)
            over[mode(run)[1]] = fmean(speedup(cut[bare]) for cut in cuts) / best
    if not over:
        return ""
    compared = " and ".join(f"{number(ratio)} ({name})" for name, ratio in over.items())
    return (
        "*`auto`* drafts with what ships for this one model and was made from its own answers: an "
        "EAGLE-3 head, a\nharvested table and a calibration. All other methods begin with nothing, "
        "and so will `auto` with a model\n"
        f"of yours. Without these parts it is {compared} times as fast "
        "as `goose`.\n"
    )


def _means(run: Run) -> list[str]:
    cuts = of_sets(run["methods"]).values()
    found = []
    for method in COLUMNS:
        settings = [name for name in run["methods"] if name.partition(":")[0] == method]
        if method == "auto":  # as it is by default, not with a part left out
            settings = settings[:1]
        elif method == COLD:
            settings = [bare] if (bare := cold(run["methods"])) else []
        means = [mean(speedup(cut[name]) for cut in cuts) for name in settings]
        found.append(max(means, default="-", key=lambda shown: 0 if shown == "-" else float(shown)))
    return found


def _loops(run: Run) -> tuple[str, str]:
    """The share of repeated 8-grams, and the speed-up of `auto` on answers that do not loop."""
    methods = run["methods"]
    without = methods[str(fastest(methods, GROUPS[0]))]["without_looping"]
    return loops(methods[PLAIN]), number(without["speedup_vs_ar"]["median"])


def with_speeds(readme: str, runs: Runs) -> str:
    """The README with this table between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README has no two lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{speeds(runs)}\n{END}{after}"

# %% [markdown]
# # Which draft? `auto`, explained
#
# `auto` takes candidate tokens from every available source, predicts how likely the model is to
# accept each, and verifies as many as give the most tokens per second on this machine, model and
# text (`docs/auto.md`). This notebook watches it: the sources of each step, a picture of a tree,
# and what a draft model adds.

# %%
import importlib.util
import subprocess
import sys

PACKAGE = "git+https://github.com/draftwood/draftwood"
if importlib.util.find_spec("draftwood") is None:  # such as on Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", PACKAGE], check=True)

# %%
from collections import Counter

from IPython.display import SVG, display
from transformers.utils.logging import disable_progress_bar

import draftwood
from draftwood import Delta, Engine, Request, SamplingParams, Stepped
from draftwood.lab.picture import svg

disable_progress_bar()
MODEL = "embedded"
loaded = draftwood.load(MODEL)
model, tokenizer = loaded.model, loaded.tokenizer

# %% [markdown]
# ## Step by step
#
# A `Stepped` event holds a step's tree, the accepted path and, for methods that predict, the
# number of tokens that were expected. Each step also has one token of the model's own, so
# `committed` is at least 1. A step without candidates worth their time drafts nothing. The
# command line prints the same with `draftwood generate PROMPT --explain`.


# %%
def steps_of(method, request):
    """The steps of a request, each with the tokens that it committed."""
    found, tokens = [], ()
    for event in Engine(model, method, tokenizer).stream([request]):
        if isinstance(event, Delta):
            tokens = event.tokens
        elif isinstance(event, Stepped):
            found.append((event.stats, tokens))
    return found


def explain(steps, most=12):
    print("step  nodes  depth  expected  committed  accepted/drafted by source")
    for number, (stats, _) in enumerate(steps[:most]):
        drafted = Counter(stats.tree.sources[1:])
        accepted = Counter(stats.tree.sources[node] for node in stats.path)
        sources = ", ".join(f"{name} {accepted[name]}/{count}" for name, count in drafted.items())
        expected = "-" if stats.expected is None else f"{stats.expected:.2f}"
        print(
            f"{number:4}  {stats.tree.drafted:5}  {stats.tree.depth:5}  {expected:>8}  "
            f"{stats.committed:9}  {sources or '-'}"
        )


PROMPT = "def mean(values):\n    total = 0\n    for value in values:\n        total"
steps = steps_of("auto", Request(PROMPT, 48))
explain(steps)

# %% [markdown]
# ## A tree
#
# The step with the most drafted nodes. The root is the last token so far. The accepted path is
# green and thick, the filled box is the model's own token after it. Colours are sources:
# `context` copies what followed the last tokens earlier in the text, `adjacency` remembers which
# successors the model ranked highest after each token.


# %%
def picture(steps, title):
    stats, committed = max(steps, key=lambda step: step[0].tree.drafted)
    texts = [tokenizer.decode([token]) for token in stats.tree.tokens.tolist()]
    bonus = [tokenizer.decode([token]) for token in committed[len(stats.path) :]]
    display(SVG(svg(stats.tree, stats.path, texts, bonus[0] if bonus else None, title=title)))


picture(steps, "auto")

# %% [markdown]
# How large a tree pays depends on what a node costs, which `auto` measures: on a GPU dozens are
# nearly free, on a CPU a few. A method with a fixed budget does not ask. GOOSE's tree of 16 nodes
# on the same text:

# %%
goose = steps_of("goose:budget=16", Request(PROMPT, 48))
explain(goose, 6)
picture(goose, "goose, budget 16")

# %% [markdown]
# ## A draft model or a head?
#
# Neither is needed. Where one fits your model, `auto` drafts with it in the steps in which that
# pays. It is one more source; it does not replace the others. Here the small model and the
# EAGLE-3 head that ship beside the embedded model. *Forwards* are those of the draft model or
# head per step: less than one where `auto` left it out.

# %%
choices = {
    "auto": draftwood.auto(),
    "auto with a draft model": draftwood.auto(draft="embedded-draft"),
    "auto with a head": draftwood.auto(head="embedded-eagle3"),
    "talon, always the draft model": draftwood.talon(draft="embedded-draft", budget=16),
}
STORY = "One day a small dog went to the market with his friend."
for temperature in (0.0, 0.8):
    print(f"temperature {temperature}")
    answers = []
    for name, method in choices.items():
        request = Request(STORY, 64, SamplingParams(temperature=temperature, seed=5))
        [done] = Engine(model, method, tokenizer).generate([request])
        tally = done.tally
        answers.append(done.tokens)
        print(
            f"  {name:30} {tally.mean_acceptance_length:.2f} tokens a step, "
            f"{tally.draft_efficiency:.2f} forwards"
        )
    print("  same tokens:", all(tokens == answers[0] for tokens in answers))

# %% [markdown]
# Tokens per step are no speed: a forward of the draft model takes time as well. `draftwood bench
# --methods ar,auto,auto:draft=SMALL` measures speed, interleaved, on your prompts; `draftwood
# drafters --fit --model MODEL --draft SMALL` says whether a draft model's tokenizer fits.

# %% [markdown]
# # A policy of your own, checked and measured
#
# A *policy* decides which candidate tokens a step verifies, and how they form a tree. It decides
# about speed alone: the accept rule keeps the model's tokens whatever the policy drafts. This
# notebook writes one, proves on small cases that it is lossless, and measures it
# (`docs/add-a-part.md`).

# %%
import importlib.util
import subprocess
import sys

PACKAGE = "git+https://github.com/draftwood/draftwood"
if importlib.util.find_spec("draftwood") is None:  # such as on Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", PACKAGE], check=True)

# %%
from dataclasses import dataclass
from statistics import median

from IPython.display import SVG, display
from transformers.utils.logging import disable_progress_bar

import draftwood
from draftwood import Delta, Engine, Method, Request, Stepped
from draftwood.lab.loops import repeats
from draftwood.lab.lossless.exact import check_exact
from draftwood.lab.picture import svg
from draftwood.protocols import Expand, Policy, setting
from draftwood.tree import ROOT, TreeBuilder

disable_progress_bar()
loaded = draftwood.load("embedded")
model, tokenizer = loaded.model, loaded.tokenizer

# %% [markdown]
# ## The policy
#
# *Fan*: the `width` likeliest successors of the root, and below the first of them a chain of
# likeliest successors, `depth` tokens deep. `grow` is a generator: it yields queries to drafters
# and is sent their answers. Its fields are its settings.


# %%
@dataclass(frozen=True)
class Fan(Policy):
    """A fan of successors, the first of which goes on as a chain."""

    budget: int = setting(8, "most nodes drafted in a step", least=0)
    width: int = setting(3, "successors of the root", least=1)
    depth: int = setting(4, "depth of the chain", least=1)
    source: str = setting("adjacency", "drafter that is asked", source="successors")

    def grow(self, growth, state):
        tree = TreeBuilder(growth.anchor)
        left = min(self.budget, growth.budget)
        node = ROOT
        for level in range(min(self.depth, growth.room)):
            wanted = min(self.width if level == 0 else 1, left)
            if not wanted:
                break
            found = yield Expand(self.source, tree, [node], wanted)
            offered = [token for token in found.tokens[0].tolist() if token >= 0]
            if not offered:
                break
            nodes = [tree.add(node, token, self.source) for token in offered]
            node, left = nodes[0], left - len(nodes)
        return tree.build("fan")


# %% [markdown]
# A method is a policy, its drafters and an accept rule. The adjacency table and the rule come
# from `goose` here. With the entry points of a package (see `examples/add_policy.py`), the policy
# has a name on the command line.

# %%
goose = draftwood.method("goose")


def fan(**settings):
    drafters = {"adjacency": goose.drafters["adjacency"]}
    return Method("fan", Fan(**settings), drafters, goose.verifier)


# %% [markdown]
# ## Is it lossless?
#
# `check_exact` enumerates every outcome of a step over three tokens, and compares the
# distribution of what is committed with the model's. A policy that samples its nodes needs an
# accept rule for sampled ones. A pair that is not lossless is refused when the method is made:

# %%
method = fan()
print(check_exact("fan", method.policy, method.verifier))
try:
    draftwood.method("traversal:verifier=walk")
except draftwood.DraftwoodError as error:
    print(error)

# %% [markdown]
# ## A tree of it

# %%
PROMPTS = [
    "def mean(values):\n    total = 0\n    for value in values:\n        total",
    "The ship left the harbour at dawn. The ship",
    "Question: What is the capital of France?\nAnswer:",
]
found, committed = [], ()
for event in Engine(model, method, tokenizer).stream([Request(PROMPTS[0], 48)]):
    if isinstance(event, Delta):
        committed = event.tokens
    elif isinstance(event, Stepped):
        found.append((event.stats, committed))
stats, committed = max(found, key=lambda step: len(step[0].path))
texts = [tokenizer.decode([token]) for token in stats.tree.tokens.tolist()]
bonus = tokenizer.decode([committed[len(stats.path)]]) if committed[len(stats.path) :] else None
display(SVG(svg(stats.tree, stats.path, texts, bonus, title="fan")))

# %% [markdown]
# ## Measured
#
# Rounds take turns between the methods, a first round is left out, and every run has a new
# engine, which has learnt nothing from the runs before. The times are of whichever busy machine
# ran this notebook, with a model of 6 million weights, for which a step costs little and a node
# costs much of it. `draftwood bench` does this properly, with intervals.

# %%
methods = {
    "ar": draftwood.method("ar"),
    "fan:width=1": fan(width=1),
    "fan": fan(),
    "fan:width=6": fan(width=6, budget=12),
    "goose:budget=8": draftwood.method("goose:budget=8"),
}
rounds = {name: [] for name in methods}
for counted in range(-1, 3):
    for name, each in methods.items():
        engines = [Engine(model, each, tokenizer) for _ in PROMPTS]
        done = [e.generate([Request(text, 64)])[0] for e, text in zip(engines, PROMPTS)]
        if counted >= 0:
            rounds[name].append(done)

plain = [done.tokens for done in rounds["ar"][0]]
print(f"{'':16}tokens a step  tokens/s  same tokens")
for name, runs in rounds.items():
    steps = sum(done.tally.steps for done in runs[0])
    count = sum(len(done.tokens) for done in runs[0])
    rate = count / median(sum(done.seconds for done in run) for run in runs)
    same = [done.tokens for done in runs[0]] == plain
    print(f"{name:16}{count / steps:13.2f}{rate:10.0f}  {same}")
print("repeated 8-grams of the answers:", [f"{repeats(tokens).share:.0%}" for tokens in plain])

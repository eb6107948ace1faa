# %% [markdown]
# # Draftwood: quick start
#
# Draftwood makes a causal language model of Hugging Face transformers decode faster, with the
# output that it would have had. Each step drafts a tree of likely continuations, scores the whole
# tree in one forward of the model, and keeps the longest path that the model agrees with.
#
# This notebook uses the small model that ships with the package (6 million weights, which know
# little), so that it needs no download. Change `MODEL` to a hub id or a directory.

# %%
import importlib.util
import subprocess
import sys

PACKAGE = "git+https://github.com/draftwood/draftwood"
if importlib.util.find_spec("draftwood") is None:  # such as on Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", PACKAGE], check=True)

# %%
from statistics import median
from time import perf_counter

import torch
from transformers.utils.logging import disable_progress_bar

import draftwood
from draftwood import Delta, Engine, Request, SamplingParams

disable_progress_bar()
MODEL = "embedded"
PROMPT = "The ship left the harbour at dawn. The ship"

loaded = draftwood.load(MODEL)
model, tokenizer = loaded.model, loaded.tokenizer
print(f"{sum(each.numel() for each in model.parameters()):,} weights, {model.dtype}")

# %% [markdown]
# ## One more argument of `generate`
#
# `custom_generate=draftwood.auto()` is all. The first call attaches the model: its weights are
# packed for the CPU, and a self-test compares a tree with plain decoding.

# %%
inputs = tokenizer(PROMPT, return_tensors="pt").to(model.device)
expected = model.generate(**inputs, max_new_tokens=48, do_sample=False)


def report(completions):
    tally = completions[0].tally
    print(f"{tally.committed} tokens in {tally.steps} calls of the model")


found = model.generate(
    **inputs,
    max_new_tokens=48,
    do_sample=False,
    custom_generate=draftwood.auto(),
    on_finish=report,
)
print(tokenizer.decode(found[0], skip_special_tokens=True))
print("same tokens:", torch.equal(found, expected))

# %% [markdown]
# ## The engine
#
# An engine takes requests, each with its own sampling and seed, and streams events. Tokens in
# brackets were drafted and accepted; the others are the model's own.

# %%
engine = Engine(model, "auto", tokenizer)
for event in engine.stream([Request(PROMPT, 40)]):
    if isinstance(event, Delta):
        for piece, accepted in zip(event.pieces, event.accepted):
            print(f"[{piece}]" if accepted else piece, end="")
print()

# %% [markdown]
# Sampled tokens follow from the seed and the position. So plain decoding (`ar`) with the same
# seed has the same ones, and several requests do not change one another.

# %%
sampled = SamplingParams(temperature=0.8, top_p=0.95, seed=3)
requests = [
    Request("Once upon a time", 32),
    Request(PROMPT, 32, sampled),
    Request("def mean(values):", 32),
]
plain = Engine(model, "ar", tokenizer)
together = engine.generate(requests)
alone = [plain.generate([request])[0] for request in requests]
print("same tokens:", [a.tokens == b.tokens for a, b in zip(together, alone)])
for done in together:
    print(f"{done.tally.mean_acceptance_length:.2f} tokens a step: {done.text!r}")

# %% [markdown]
# ## What it gains
#
# A fair comparison takes turns, so that all contenders see the same machine; leaves out a first
# round, in which things are compiled and measured; and says how much the answers repeat
# themselves, because text that repeats itself is easily copied. *Repeated 8-grams* is the share
# of an answer's runs of eight tokens that occurred in it before.
#
# - `generate` is transformers' own,
# - `ar` is plain decoding through Draftwood's engine: drafting is to be compared with this one,
# - `auto` drafts where it pays.
#
# The times below are of whichever machine ran this notebook (the stored ones: a busy one), with
# the embedded model. They say nothing about your model: run `draftwood bench` on your own
# prompts.

# %%
from draftwood.lab.loops import repeats

PROMPTS = {
    "story": PROMPT,
    "code": "def mean(values):",
    "question": "Question: What is the capital of France?\nAnswer:",
}
ROUNDS = 3
NEW = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}


def by_generate(text):
    ids = tokenizer(text, return_tensors="pt").to(model.device)
    return model.generate(**ids, **NEW)[0, ids["input_ids"].shape[1] :].tolist()


def by(engine):
    return lambda text: list(engine.generate([Request(text, 64)])[0].tokens)


contenders = {"generate": by_generate, "ar": by(plain), "auto": by(engine)}
seconds, answers = {}, {}
for counted in range(-1, ROUNDS):
    for kind, text in PROMPTS.items():
        for name, run in contenders.items():
            start = perf_counter()
            tokens = run(text)
            if counted >= 0:
                seconds.setdefault((kind, name), []).append(perf_counter() - start)
                answers[kind, name] = tokens
print(f"{'':10}{'generate':>10}{'ar':>10}{'auto':>10}{'auto / ar':>11}{'repeated 8-grams':>18}")
for kind in PROMPTS:
    rates = {n: len(answers[kind, n]) / median(seconds[kind, n]) for n in contenders}
    cells = "".join(f"{rates[name]:10.0f}" for name in contenders)
    share = repeats(answers[kind, "ar"]).share
    print(f"{kind:10}{cells}{rates['auto'] / rates['ar']:11.2f}{share:18.0%}")
print(
    "tokens per second; same tokens:", all(answers[k, "ar"] == t for (k, _), t in answers.items())
)

# %% [markdown]
# ## Further
#
# - the other notebooks here: how `auto` decides, and a policy of your own,
# - the scripts in `examples/`: chats, logits processors, structured output, draft models, heads,
#   rollouts, a client of the server,
# - `docs/python.md` and `docs/transformers.md`.

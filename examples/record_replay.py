"""Records a model's answers once, and runs methods over the recording without the model.

    python examples/record_replay.py [MODEL]

A replay grows the trees and accepts the paths of a live run, in a small part of the time
(docs/replay.md). The same from the command line:

    draftwood record --prompts prompts.jsonl --max-new-tokens 64 --out run.safetensors
    draftwood replay run.safetensors --methods pld,sam,goose:adjacency.harvest=accepted
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import draftwood
from draftwood import Engine, Request
from draftwood.engine.stats import Tally
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.file import digest, read, write
from draftwood.lab.replay.recorder import Recorder, model_facts
from draftwood.lab.replay.recording import Recording, RecordingSettings
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.substitute import replay_method
from draftwood.models import Loaded
from draftwood.runner.attach import attach

PROMPTS = ["The ship left the harbour. The ship", "def mean(values):", "Once upon a time"]
METHODS = ["pld", "sam", "goose:adjacency.harvest=accepted"]
TOKENS = 64


def record(loaded: Loaded) -> Recording:
    """Plain decoding of the prompts, with the model's likeliest tokens at every place."""
    weights = digest(loaded.model)  # before attaching, which may change the layout of weights
    target = attach(loaded.model)
    settings = RecordingSettings(
        max_new_tokens=TOKENS,
        eos=tuple(sorted(loaded.eos)),
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        seed=0,
        width=16,
        chat=False,
    )
    recorder = Recorder(target, loaded.tokenizer, settings)
    prompts = [Prompt(f"prompt/{i}", "text", "example", (text,)) for i, text in enumerate(PROMPTS)]
    found = [recorder.record(i, prompt) for i, prompt in enumerate(prompts)]
    return Recording(model_facts(loaded, weights, target.info), recorder.settings, found)


def replayed(recording: Recording, name: str) -> Tally:
    """The sums over all steps of a method, without the model."""
    tally = Tally()
    method = replay_method(draftwood.method(name), recording.model.info())
    for prompt in recording.prompts:
        tally.merge(Replayer(recording).replay(method, prompt).tally)
    return tally


def live(loaded: Loaded, name: str) -> Tally:
    """The same with the model."""
    tally = Tally()
    for text in PROMPTS:
        engine = Engine(loaded.model, name, loaded.tokenizer)
        [done] = engine.generate([Request(text, TOKENS)])
        tally.merge(done.checked().tally)
    return tally


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.safetensors"
        write(file, record(loaded))
        recording = read(file)
    for name in METHODS:
        offline, online = replayed(recording, name), live(loaded, name)
        same = (offline.steps, offline.accepted) == (online.steps, online.accepted)
        print(
            f"{name}: {offline.mean_acceptance_length:.2f} tokens a step, "
            f"{offline.acceptance_rate:.0%} of the drafted tokens accepted; as live: {same}"
        )


if __name__ == "__main__":
    main()

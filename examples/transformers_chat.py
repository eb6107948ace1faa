"""A chat of two turns through ``model.generate``.

    python examples/transformers_chat.py [MODEL]

MODEL needs a chat template. ``prefix_cache`` keeps the keys and values of a finished turn, so that
the next one computes only what is new. (``draftwood.Session`` does all this with an engine.)
"""

import sys
from typing import Any

import torch

import draftwood
from draftwood import Completion

QUESTIONS = ["Write a function that reverses a list.", "Now write one that sorts it."]


def report(completions: list[Completion]) -> None:
    tally = completions[0].tally
    print(f"({tally.mean_acceptance_length:.2f} tokens a call)")


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    messages: list[dict[str, str]] = []
    same = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        inputs: Any = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        inputs = inputs.to(model.device)
        settings = {**inputs, "max_new_tokens": 48, "do_sample": False}
        ids = model.generate(
            **settings, custom_generate=draftwood.auto(), prefix_cache="256MB", on_finish=report
        )
        same.append(torch.equal(ids, model.generate(**settings)))
        new = ids[0, inputs["input_ids"].shape[1] :]
        answer = str(tokenizer.decode(new, skip_special_tokens=True))
        messages.append({"role": "assistant", "content": answer})
        print(f"User: {question}\nAssistant:{answer}\n")
    print(f"same tokens: {all(same)}")
    draftwood.detach(model)


if __name__ == "__main__":
    main()

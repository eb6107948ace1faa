"""Streaming from ``model.generate``, which runs on a thread of its own.

    python examples/transformers_streaming.py [MODEL]

The streamer is transformers' own and receives token after token. It is ended even if decoding
fails, so that the loop ends.
"""

import sys
from threading import Thread
from typing import Any

from transformers import TextIteratorStreamer

import draftwood

PROMPT = "The ship left the harbour at dawn. The ship"


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    inputs = tokenizer(PROMPT, return_tensors="pt").to(model.device)
    settings = {**inputs, "max_new_tokens": 64, "do_sample": False}

    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    arguments = {**settings, "streamer": streamer, "custom_generate": draftwood.auto()}
    thread = Thread(target=model.generate, kwargs=arguments)
    thread.start()
    pieces: list[str] = []
    for piece in streamer:
        print(piece, end="", flush=True)
        pieces.append(piece)
    thread.join()

    expected = model.generate(**settings)[0, inputs["input_ids"].shape[1] :]
    text = tokenizer.decode(expected, skip_special_tokens=True)
    print(f"\n{len(pieces)} pieces; same text: {''.join(pieces) == text}")
    draftwood.detach(model)


if __name__ == "__main__":
    main()

"""A client of ``draftwood serve``: OpenAI's own, with a stream.

    pip install 'draftwood[serve] @ git+https://github.com/draftwood/draftwood' openai
    draftwood serve embedded &
    python examples/serving_client.py [URL]

URL is http://127.0.0.1:8000/v1 unless you name another. The fields that OpenAI's API lacks go into
``extra_body`` (docs/serving.md): here ``top_k``, and ``speculate``, which turns drafting off.
"""

import sys

from openai import OpenAI

URL = "http://127.0.0.1:8000/v1"
MESSAGE = "Write a function that reverses a list."


def main() -> None:
    client = OpenAI(base_url=sys.argv[1] if len(sys.argv) > 1 else URL, api_key="none")
    model = next(iter(client.models.list())).id
    texts = []
    for speculate in (True, False):
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": MESSAGE}],
            max_tokens=48,
            temperature=0.7,
            seed=1,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"top_k": 40, "speculate": speculate},
        )
        pieces, tokens = [], 0
        for chunk in stream:
            for choice in chunk.choices:
                pieces.append(choice.delta.content or "")
                print(pieces[-1], end="", flush=True)
            if chunk.usage is not None:
                tokens = chunk.usage.completion_tokens
        texts.append("".join(pieces))
        chunks = sum(map(bool, pieces))
        drafted = "with drafts" if speculate else "plainly"
        print(f"\n[{drafted}: {tokens} tokens in {chunks} chunks]\n")
    print(f"same text: {texts[0] == texts[1]}")


if __name__ == "__main__":
    main()

"""Text of a given form: JSON of a schema, in the engine and in ``generate``.

    pip install 'draftwood[grammar] @ git+https://github.com/draftwood/draftwood'
    python examples/structured_output.py [MODEL]

Nodes that the grammar forbids are not drafted, and what it forces is drafted for free. The tokens
are those of plain decoding with the same grammar.
"""

import json
import sys
from typing import Any

import draftwood
from draftwood import Engine, Grammar, Request

PROMPT = "A record as JSON: "
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    model: Any = loaded.model
    tokenizer = loaded.tokenizer
    grammar = Grammar.json_schema(SCHEMA, fixed_spaces=True)
    request = Request(PROMPT, 64, grammar=grammar)

    [done] = Engine(model, "auto", tokenizer).generate([request])
    print(f"{done.checked().text}\n{done.tally.mean_acceptance_length:.2f} tokens a step")
    print(f"its fields: {', '.join(json.loads(done.text))}")

    [plain] = Engine(model, "ar", tokenizer).generate([request])
    ids: Any = draftwood.generate(
        model, PROMPT, tokenizer=tokenizer, max_new_tokens=64, do_sample=False, grammar=grammar
    )
    from_generate = tuple(ids[0, -len(plain.tokens) :].tolist())
    print(f"same tokens: {done.tokens == plain.tokens == from_generate}")


if __name__ == "__main__":
    main()

"""xgrammar's own processor for transformers, which counts on one call per token, under drafts."""

import json

import pytest
import torch

import draftwood
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "story": {"type": "string", "maxLength": 6},
            "n": {"type": "integer", "maximum": 99, "minimum": 0},
        },
        "required": ["story", "n"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize("name", ["traversal", "block", "mixed", "auto:drafter=model", "goose"])
def test_it_goes_with_every_way_to_verify(name: str) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    model, tokenizer = tiny_llama(), tiny_tokenizer()
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)
    compiled = xgrammar.GrammarCompiler(info).compile_json_schema(SCHEMA, any_whitespace=False)
    method = name
    if name != "goose":
        method = draftwood.custom_generate(name, draft=tiny_llama(seed=1, layers=1))  # type: ignore[assignment]
    for seed in range(3):
        torch.manual_seed(seed)
        ids = draftwood.generate(
            model,
            "A story as JSON: ",
            method,
            tokenizer=tokenizer,
            max_new_tokens=70,
            do_sample=seed > 0,
            logits_processor=[xgrammar.contrib.hf.LogitsProcessor(compiled)],
        )
        assert isinstance(ids, torch.Tensor)
        text = str(tokenizer.decode(ids[0], skip_special_tokens=True))
        found = json.loads(text.removeprefix("A story as JSON: "), strict=False)
        assert [*found] == ["story", "n"]

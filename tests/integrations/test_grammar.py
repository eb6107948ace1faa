"""``grammar`` as an argument of ``generate``, and the command line's options for it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import draftwood
from draftwood import Grammar
from draftwood.errors import DraftwoodError
from tests.factories.command_line import output_of, refused
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "c": {"enum": ["a", "b"]},
    },
    "required": ["n", "c"],
    "additionalProperties": False,
}
GRAMMAR = Grammar.json_schema(SCHEMA, fixed_spaces=True)


@pytest.mark.parametrize("samples", [False, True])
def test_every_row_has_the_grammar(samples: bool) -> None:
    model, tokenizer = tiny_llama(), tiny_tokenizer()
    prompts = ["The record: ", "One more"]
    found = {}
    for name in ("ar", "auto", "goose"):
        torch.manual_seed(3)
        ids = draftwood.generate(
            model,
            prompts,
            name,
            tokenizer=tokenizer,
            max_new_tokens=40,
            do_sample=samples,
            grammar=GRAMMAR,
        )
        assert isinstance(ids, torch.Tensor)
        found[name] = [str(tokenizer.decode(row, skip_special_tokens=True)) for row in ids]
        for prompt, text in zip(prompts, found[name], strict=True):
            assert [*json.loads(text.removeprefix(prompt))] == ["n", "c"]
    assert found["ar"] == found["auto"] == found["goose"]


def test_model_generate_takes_it_and_reports_masked_scores() -> None:
    model: Any = tiny_llama()
    tokenizer = tiny_tokenizer()
    inputs = tokenizer("The record: ", return_tensors="pt")
    found = model.generate(
        **inputs,
        max_new_tokens=40,
        do_sample=False,
        custom_generate=draftwood.goose(),
        tokenizer=tokenizer,
        grammar=GRAMMAR,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    new = found.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    assert [int(scores.argmax()) for scores in found.scores] == new
    legal = [int(scores.isfinite().sum()) for scores in found.scores]
    assert legal[0] == 1
    assert max(legal) < 15
    assert all(logits.isfinite().all() for logits in found.logits)


def test_without_a_tokenizer_it_is_refused() -> None:
    model = tiny_llama()
    with pytest.raises(DraftwoodError, match="a grammar needs the model's tokenizer"):
        draftwood.generate(model, [1, 2], max_new_tokens=4, grammar=GRAMMAR)


def test_the_command_line_has_an_option_for_each_kind(checkpoint: str, tmp_path: Path) -> None:
    schema, ebnf = tmp_path / "schema.json", tmp_path / "words.gbnf"
    schema.write_text(json.dumps(SCHEMA))
    ebnf.write_text('root ::= "yes" | "no"')
    lark = tmp_path / "words.lark"
    lark.write_text('start: "yes" | "no"')
    argv = ["generate", "abab", "--model", checkpoint, "--max-new-tokens", "40", "--json"]

    def text(*options: str) -> str:
        return str(json.loads(output_of(*argv, *options))["text"])

    assert [
        *json.loads(text("--json-schema", str(schema), "--fixed-spaces", "--temperature", "1"))
    ] == ["n", "c"]
    assert text("--regex", "[0-9]{3}x").endswith("x")
    assert text("--choice", "red", "--choice", "green") in {"red", "green"}
    assert text("--grammar", str(ebnf)) in {"yes", "no"}
    assert text("--grammar", str(lark)) in {"yes", "no"}
    assert text("--json-object").startswith("{")


def test_wrong_options_are_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    argv = ["generate", "abab", "--model", "no/such-model"]
    assert "--json-object and --regex were given" in refused(*argv, "--json-object", "--regex", "a")
    assert "the grammar (regex) is wrong" in refused(*argv, "--regex", "(a")
    assert "the grammar (regex) is '': give some text" in refused(*argv, "--regex", "")
    assert "--fixed-spaces is for --json-" in refused(*argv, "--fixed-spaces")
    assert "cannot read the grammar" in refused(*argv, "--grammar", str(tmp_path / "none"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert "is not valid UTF-8, at byte 0" in refused(*argv, "--grammar", str(tmp_path / "bytes"))
    (tmp_path / "list.json").write_text("[1]")
    assert "no JSON schema" in refused(*argv, "--json-schema", str(tmp_path / "list.json"))

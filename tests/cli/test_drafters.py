"""The list of drafters says what each proposes and needs, and which fit a model."""

import re
from pathlib import Path

from draftwood.methods import registry
from tests.factories.command_line import output_of, refused
from tests.factories.small_tokenizers import byte_level
from tests.factories.tiny_llama import tiny_llama


def rows(text: str) -> dict[str, str]:
    """The lines of the table by drafter, with single spaces."""
    # Those that begin a row: a long cell goes on in lines that are indented.
    lines = [line for line in text.splitlines() if line[:1].strip()]
    return {line.split()[0]: re.sub(r"\s+", " ", line).strip() for line in lines}


def test_every_drafter_is_listed_with_what_it_proposes_and_needs() -> None:
    found = rows(output_of("drafters"))
    assert set(registry.names("drafters")) < set(found)
    for name in registry.names("drafters"):
        spec = registry.load("drafters", name)
        assert spec.summary, f"{name} has no summary"  # type: ignore[attr-defined]
    assert "match_length, count, agreeing, preferred, first" in found["memory"]
    assert found["adjacency"].endswith("rank, score")
    assert "--draft" in found["model"]
    assert "--draft" in found["pard"]
    assert "--head" in found["eagle3"]
    assert "--head" in found["peagle"]
    assert "--head" in found["gemma4"]
    assert "--" not in found["context"]


def test_which_fit_a_model(checkpoint: str) -> None:
    """A checkpoint that nothing is shipped for, and then with a draft model of its vocabulary."""
    found = rows(output_of("drafters", "--fit", "--model", checkpoint))
    assert found["context"].endswith("yes")
    assert found["model"].endswith("with --draft")
    assert found["eagle3"].endswith("with --head")
    assert "no: there are no MTP" in found["mtp"], "it needs no --head"
    found = rows(output_of("drafters", "--fit", "--model", checkpoint, "--draft", checkpoint))
    assert found["model"].endswith("yes")
    assert found["pard"].endswith("with --draft"), "it is no model of masks"
    text = output_of("drafters", "--fit", "--model", checkpoint, "--draft", "embedded-draft")
    assert "no: " in text
    assert "vocabulary" in text


def test_the_share_of_another_vocabulary_is_told(checkpoint: str, tmp_path: Path) -> None:
    tokenizer = byte_level(shift=3)
    tiny_llama(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    text = output_of("drafters", "--fit", "--model", checkpoint, "--draft", str(tmp_path))
    words = re.sub(r"\s+", " ", text)
    assert "yes; proposes 256" in words


def test_what_is_shipped_for_the_model_is_used() -> None:
    found = rows(output_of("drafters", "--fit", "--model", "embedded"))
    assert "yes" in found["memory"]
    assert "with --head" in found["eagle3"] or "which is shipped" in found["eagle3"]


def test_an_option_of_a_model_asks_what_fits() -> None:
    text = output_of("drafters", "--model", "embedded")
    assert text == output_of("drafters", "--fit", "--model", "embedded")
    assert "fits" not in output_of("drafters").splitlines()[0]
    assert "none/of/it" in refused("drafters", "--model", "none/of/it")

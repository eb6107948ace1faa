"""Vocabularies are equal, padded, or refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from draftwood.engine.vocabulary import (
    Vocabulary,
    ids_agree,
    padding_explains,
    translation_of,
)
from draftwood.errors import DraftwoodError
from draftwood.protocols import Origin
from tests.factories.tiny_llama import tiny_tokenizer


def changed(old: str, new: str) -> PreTrainedTokenizerFast:
    """The tiny tokenizer with one token renamed."""
    inner = tiny_tokenizer().backend_tokenizer.to_str().replace(f'"{old}":', f'"{new}":')
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=type(tiny_tokenizer().backend_tokenizer).from_str(inner)
    )
    return made


def translated(target: Vocabulary, draft: Vocabulary, name: str = "draft") -> bool:
    return translation_of(target, draft, name) is not None


def extended(*tokens: str) -> PreTrainedTokenizerFast:
    """The tiny tokenizer with tokens behind its own."""
    made = changed("none", "none")
    made.add_tokens(["<eos>", *tokens])
    return made


def test_equal_vocabularies() -> None:
    assert ids_agree(tiny_tokenizer(), tiny_tokenizer(chat=False))


def test_tokens_at_the_end_may_be_missing_on_either_side() -> None:
    longer = extended("<a>", "<b>")
    assert len(longer) == len(tiny_tokenizer()) + 2
    assert ids_agree(tiny_tokenizer(), longer)
    assert ids_agree(longer, tiny_tokenizer())


def test_one_other_token_is_a_difference() -> None:
    assert not ids_agree(tiny_tokenizer(), changed("A", "AA"))
    assert not ids_agree(extended("<a>"), extended("<b>"))


QWEN = Origin("", "qwen2", 151643, (151645,))
SIZES = {
    "Qwen2.5-7B and 0.5B": (152064, 151936),
    "Pythia-12B and 70M": (50688, 50304),
    "Pythia-6.9B and 70M": (50432, 50304),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_lengths_of_one_family_that_padding_explains(sizes: tuple[int, int]) -> None:
    first, second = sizes
    assert padding_explains(first, second)
    assert padding_explains(second, first)
    assert not translated(Vocabulary(first, QWEN), Vocabulary(second, QWEN))
    assert not translated(Vocabulary(second, QWEN), Vocabulary(first, QWEN))


def test_the_bounds_of_padding() -> None:
    assert padding_explains(1024, 1000)
    assert not padding_explains(1024, 512), "512 rows cannot be the 513 to 1024 of the other"
    assert padding_explains(1024, 513)
    assert not padding_explains(32000, 32768), "Mistral 0.1 and 0.3"
    assert not padding_explains(128256, 128257), "a table of one more is none that was padded"
    assert not padding_explains(1 << 20, (1 << 20) - 700), "no padding is that large"


@pytest.mark.parametrize(
    "other",
    [
        None,
        replace(QWEN, family="llama"),
        replace(QWEN, begins=1, ends=(2,)),
        replace(QWEN, begins=None, ends=()),
    ],
)
def test_padding_alone_is_not_enough(other: Origin | None) -> None:
    ours, theirs = Vocabulary(152064, QWEN), Vocabulary(151936, other)
    said = (
        "'small' has 151936 tokens and the target 152064: their configurations do not show.*"
        r"the target's and the draft model's tokenizer is not known.*tokenizer=\.\.\."
    )
    with pytest.raises(DraftwoodError, match=said):
        translated(ours, theirs, "small")
    assert not translated(replace(ours, size=151936), theirs, "small")  # equal lengths need none


def test_a_base_model_drafts_for_its_instructed_sibling() -> None:
    base = replace(QWEN, ends=(151643,))
    assert not translated(Vocabulary(152064, QWEN), Vocabulary(151936, base))


def test_lengths_that_padding_does_not_explain_are_refused_without_tokenizers() -> None:
    with pytest.raises(DraftwoodError, match="padding does not explain the difference"):
        translated(Vocabulary(32768, QWEN), Vocabulary(32000, QWEN))


def test_tokenizers_stored_with_the_weights_decide(tmp_path: Path) -> None:
    places = {}
    for name, made in (("plain", tiny_tokenizer()), ("other", changed("A", "AA"))):
        places[name] = Origin(str(tmp_path / name), "llama", None, ())
        made.save_pretrained(tmp_path / name)
    plain, other = places["plain"], places["other"]
    assert not translated(Vocabulary(320, plain), Vocabulary(257, plain))
    assert not translated(Vocabulary(320, None, tiny_tokenizer()), Vocabulary(257, plain))
    assert translated(Vocabulary(320, plain), Vocabulary(257, other))
    nowhere = replace(plain, name=str(tmp_path / "nowhere"))
    with pytest.raises(DraftwoodError, match="and the draft model's tokenizer is not known"):
        translated(Vocabulary(320, plain), Vocabulary(257, nowhere))

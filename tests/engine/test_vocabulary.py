"""Vocabularies are equal, padded, or refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from draftwood.engine.vocabulary import (
    Vocabulary,
    check_vocabularies,
    check_vocabulary,
    padding_explains,
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


def extended(*tokens: str) -> PreTrainedTokenizerFast:
    """The tiny tokenizer with tokens behind its own."""
    made = changed("none", "none")
    made.add_tokens(["<eos>", *tokens])
    return made


def test_equal_vocabularies() -> None:
    check_vocabulary(tiny_tokenizer(), tiny_tokenizer(chat=False), "draft")


def test_tokens_at_the_end_may_be_missing_on_either_side() -> None:
    longer = extended("<a>", "<b>")
    assert len(longer) == len(tiny_tokenizer()) + 2
    check_vocabulary(tiny_tokenizer(), longer, "draft")
    check_vocabulary(longer, tiny_tokenizer(), "draft")


def test_a_differing_token_is_refused_by_name() -> None:
    with pytest.raises(DraftwoodError, match=r"'small/model'.*1 of 257 ids differ.*'A'.*'AA'"):
        check_vocabulary(tiny_tokenizer(), changed("A", "AA"), "small/model")


def test_extensions_that_differ_are_refused() -> None:
    with pytest.raises(DraftwoodError, match=r"257: '<a>' and '<b>'"):
        check_vocabulary(extended("<a>"), extended("<b>"), "draft")


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
    check_vocabularies(Vocabulary(first, QWEN), Vocabulary(second, QWEN), "draft")
    check_vocabularies(Vocabulary(second, QWEN), Vocabulary(first, QWEN), "draft")


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
        check_vocabularies(ours, theirs, "small")
    check_vocabularies(replace(ours, size=151936), theirs, "small")  # equal lengths need none


def test_a_base_model_drafts_for_its_instructed_sibling() -> None:
    base = replace(QWEN, ends=(151643,))
    check_vocabularies(Vocabulary(152064, QWEN), Vocabulary(151936, base), "draft")


def test_lengths_that_padding_does_not_explain_are_refused_without_tokenizers() -> None:
    with pytest.raises(DraftwoodError, match="padding does not explain the difference"):
        check_vocabularies(Vocabulary(32768, QWEN), Vocabulary(32000, QWEN), "draft")


def test_tokenizers_stored_with_the_weights_decide(tmp_path: Path) -> None:
    places = {}
    for name, made in (("plain", tiny_tokenizer()), ("other", changed("A", "AA"))):
        places[name] = Origin(str(tmp_path / name), "llama", None, ())
        made.save_pretrained(tmp_path / name)
    plain, other = places["plain"], places["other"]
    check_vocabularies(Vocabulary(320, plain), Vocabulary(257, plain), "draft")
    check_vocabularies(Vocabulary(320, None, tiny_tokenizer()), Vocabulary(257, plain), "draft")
    with pytest.raises(DraftwoodError, match="1 of 257 ids differ"):
        check_vocabularies(Vocabulary(320, plain), Vocabulary(257, other), "draft")
    nowhere = replace(plain, name=str(tmp_path / "nowhere"))
    with pytest.raises(DraftwoodError, match="and the draft model's tokenizer is not known"):
        check_vocabularies(Vocabulary(320, plain), Vocabulary(257, nowhere), "draft")

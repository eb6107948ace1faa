"""Vocabularies are equal, padded, or refused."""

import pytest
from transformers import PreTrainedTokenizerFast

from draftwood.errors import DraftwoodError
from draftwood.vocabulary import check_vocabulary
from tests.tiny import tiny_tokenizer


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


def test_a_token_with_another_meaning_is_refused_by_name() -> None:
    with pytest.raises(DraftwoodError, match=r"'small/model'.*1 of 257 ids differ.*'A'.*'AA'"):
        check_vocabulary(tiny_tokenizer(), changed("A", "AA"), "small/model")


def test_extensions_that_differ_are_refused() -> None:
    with pytest.raises(DraftwoodError, match=r"257: '<a>' and '<b>'"):
        check_vocabulary(extended("<a>"), extended("<b>"), "draft")

"""What a draft model with another tokenizer reads: the target's text, in its own tokens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase

from draftwood.engine.intersection import intersect
from draftwood.engine.token_bytes import encoded, tokens_of
from draftwood.engine.translation import TokenTranslation
from draftwood.tree import ROOT, TreeBuilder
from tests.factories.small_tokenizers import byte_level, metaspace, named_ids

BYTES = byte_level()
PIECES = metaspace()
BARE = metaspace(byte_tokens=False)
TEXT = "the thing ab"


def translation(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, rows: int = 0
) -> TokenTranslation:
    ours, theirs = tokens_of(target, len(target)), tokens_of(draft, len(draft))
    return TokenTranslation(ours, theirs, intersect(ours, theirs, rows or len(draft)))


def names(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    found = tokenizer.convert_ids_to_tokens(ids)
    assert isinstance(found, list)
    return found


def test_a_token_of_both_is_one_token() -> None:
    read = translation(BYTES, PIECES).read
    found, held = read(named_ids(BYTES, "Ġthe", "ing", "Ã¶", "A", "Ã", "<eos>"))
    assert names(PIECES, found) == ["▁the", "ing", "ö", "A", "<0xC3>", "</s>"]
    assert held == b""


def test_another_token_is_read_by_its_text_without_an_added_space() -> None:
    read = translation(BYTES, PIECES).read
    assert names(PIECES, read(named_ids(BYTES, "ab"))[0]) == ["<0x61>", "<0x62>"]
    read = translation(PIECES, BYTES).read
    assert names(BYTES, read(named_ids(PIECES, "the"))[0]) == ["t", "he"]
    assert names(BYTES, read(named_ids(PIECES, "한"))[0]) == ["í", "ķ", "ľ"]
    # One that the draft's tokenizer would begin with a space at the beginning of a text.
    read = translation(byte_level((("t", "h"), ("th", "e"), ("the", "n"))), PIECES).read
    made = byte_level((("t", "h"), ("th", "e"), ("the", "n")))
    assert names(PIECES, read(named_ids(made, "then"))[0]) == ["the", "n"]


def test_tokens_without_a_text_are_left_out() -> None:
    read = translation(PIECES, BYTES).read
    assert read(named_ids(PIECES, "<unk>", "<s>")) == ([], b"")
    assert read([len(PIECES) + 3]) == ([], b"")
    assert names(BYTES, read(named_ids(PIECES, "<s>", "he", "</s>"))[0]) == ["he", "<eos>"]


def test_a_prompt_is_encoded_anew() -> None:
    found, held = translation(BYTES, PIECES).begin(encoded(BYTES, TEXT))
    assert found == encoded(PIECES, TEXT)
    assert names(PIECES, found)[:2] == ["▁the", "▁t"], "as at the beginning of a text"
    back, _ = translation(PIECES, BYTES).begin(encoded(PIECES, TEXT))
    assert back == encoded(BYTES, TEXT)
    # Token by token it would be another reading of the text.
    assert translation(PIECES, BYTES).read(encoded(PIECES, TEXT))[0] != back
    assert held == b""


def test_special_tokens_divide_a_prompt() -> None:
    prompt = [*encoded(BYTES, "the the"), *named_ids(BYTES, "<eos>"), *encoded(BYTES, "the")]
    found, _ = translation(BYTES, PIECES).begin(prompt)
    assert names(PIECES, found) == ["▁the", "▁the", "</s>", "the"]


def test_a_text_that_is_spelt_like_a_special_token_is_none() -> None:
    text = "the</s>"
    found, _ = translation(BYTES, PIECES).begin(encoded(BYTES, text))
    assert PIECES.eos_token_id not in found
    assert tokens_of(PIECES, len(PIECES)).joined(found) == f"{text}".encode()


def test_a_prompt_begins_as_the_draft_models_texts_do() -> None:
    draft: Any = metaspace()
    begins = draft.convert_tokens_to_ids("<s>")
    draft.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", begins)]
    )
    found, _ = translation(BYTES, draft).begin(encoded(BYTES, "the"))
    assert names(draft, found) == ["<s>", "▁the"]
    # Once, if the target's prompt begins so as well.
    found, _ = translation(PIECES, draft).begin(named_ids(PIECES, "<s>", "▁the"))
    assert names(draft, found) == ["<s>", "▁the"]


def test_a_prompt_without_a_text_is_one_token() -> None:
    found, _ = translation(PIECES, BYTES).begin(named_ids(PIECES, "<unk>"))
    assert names(BYTES, found) == ["<eos>"]
    bare = byte_level()
    assert translation(PIECES, bare).begin([])[0] == named_ids(bare, "<eos>")


def test_parts_of_a_character_are_read_as_bytes_where_there_are_tokens_for_them() -> None:
    read = translation(BYTES, PIECES).read
    found, held = read(named_ids(BYTES, "í"))
    assert (names(PIECES, found), held) == (["<0xED>"], b"")
    merged = byte_level((("í", "ķ"),))
    found, held = translation(merged, PIECES).read(named_ids(merged, "íķ", "ľ"))
    assert names(PIECES, found) == ["<0xED>", "<0x95>", "<0x9C>"]


def test_parts_of_a_character_are_held_where_there_are_none() -> None:
    read = translation(BYTES, BARE).read
    assert read(named_ids(BYTES, "í")) == ([], b"\xed")
    assert read(named_ids(BYTES, "ķ"), b"\xed") == ([], b"\xed\x95")
    found, held = read(named_ids(BYTES, "ľ"), b"\xed\x95")
    assert (names(BARE, found), held) == (["한"], b"")
    together, held = read(named_ids(BYTES, "he", "í", "ķ", "ľ", "í"))
    assert (names(BARE, together), held) == (["he", "한"], b"\xed")
    prompt, held = translation(BYTES, BARE).begin(named_ids(BYTES, "he", "í"))
    assert (names(BARE, prompt), held) == (["he"], b"\xed")


def test_a_character_that_is_never_complete_is_dropped() -> None:
    read = translation(BYTES, BARE).read
    assert (names(BARE, read(named_ids(BYTES, "he"), b"\xed")[0])) == ["he"]
    assert read(named_ids(BYTES, "he"), b"\xed")[1] == b""
    assert read(named_ids(BYTES, "<eos>"), b"\xed")[1] == b""
    assert read(named_ids(BYTES, "í"), b"\xed") == ([], b"\xed"), "the second one may be completed"
    assert read(named_ids(BYTES, "b")) == ([], b""), "BARE has no b"


@given(st.lists(st.integers(0, len(BYTES) - 1), max_size=12))
def test_no_byte_is_lost_where_every_byte_has_a_token(tokens: list[int]) -> None:
    ours, theirs = tokens_of(BYTES, len(BYTES)), tokens_of(PIECES, len(PIECES))
    found, held = TokenTranslation(ours, theirs, intersect(ours, theirs, len(PIECES))).read(tokens)
    assert (theirs.joined(found), held) == (ours.joined(tokens), b"")


@pytest.mark.parametrize("tokens", [[5, 9, 300], list(range(40))])
def test_a_permuted_vocabulary_is_read_as_the_permutation(tokens: list[int]) -> None:
    tokens = [token % len(BYTES) for token in tokens]
    draft = byte_level(shift=5)
    found, held = translation(BYTES, draft).read(tokens)
    assert found == [(token + 5) % len(BYTES) for token in tokens]
    assert held == b""


def test_depths_are_in_tokens_of_the_draft_model() -> None:
    tree = TreeBuilder(0)
    the, he, unread = named_ids(PIECES, "the", "he", "<unk>")
    first = tree.add(ROOT, the, "given")
    tree.add(first, he, "given")
    tree.add(ROOT, unread, "given")
    assert translation(PIECES, BYTES).depths(tree) == [0, 2, 3, 0]


def test_users_are_told_the_share() -> None:
    assert translation(BYTES, PIECES).note == (
        "proposes 261 of the target's 263 tokens (99.2%), which are 98.5% of its own"
    )

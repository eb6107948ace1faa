"""Tokens of any kind of tokenizer are known by the bytes that they add to a text."""

from tokenizers import AddedToken

from draftwood.engine.token_bytes import Tokens, tokens_of
from tests.factories.small_tokenizers import byte_level, metaspace


def named(tokens: Tokens, *names: str) -> list[bytes | None]:
    vocab = tokens.tokenizer.get_vocab()
    return [tokens.bytes_of.get(vocab[name]) for name in names]


def test_bytes_of_a_byte_level_vocabulary() -> None:
    tokens = tokens_of(byte_level(), 1000)
    assert named(tokens, "Ġthe", "Ã¶", "Ã", "Ċ") == [b" the", "ö".encode(), b"\xc3", b"\n"]
    assert named(tokens, "<eos>") == [None]
    assert list(tokens.special.values()) == ["<eos>"]


def test_bytes_of_a_vocabulary_with_spaces_and_byte_tokens() -> None:
    tokens = tokens_of(metaspace(), 1000)
    assert named(tokens, "▁the", "the", "▁", "ö") == [b" the", b"the", b" ", "ö".encode()]
    assert named(tokens, "<0x0A>", "<0xC3>", "<0x41>") == [b"\n", b"\xc3", b"A"]
    assert named(tokens, "<unk>", "<s>", "</s>") == [None] * 3
    assert named(tokens, "<eos>") == [b"<eos>"], "an ordinary token here"


def test_of_equal_tokens_the_one_counts_that_the_tokenizer_produces() -> None:
    tokens = tokens_of(metaspace(), 1000)
    vocab = tokens.tokenizer.get_vocab()
    assert vocab["<0x41>"] < vocab["A"]
    assert tokens.id_of[b"A"] == vocab["A"]
    assert tokens.id_of[b"\xc3"] == vocab["<0xC3>"]


def test_an_added_token_comes_before_an_equal_one() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken(" the")])
    tokens = tokens_of(tokenizer, 1000)
    assert named(tokens, " the", "Ġthe") == [b" the", b" the"]
    assert tokens.id_of[b" the"] == len(tokenizer) - 1


def test_ids_beyond_the_models_rows_are_left_out() -> None:
    tokens = tokens_of(byte_level(), 200)
    assert set(tokens.bytes_of) == set(range(200))
    assert tokens.special == {}
    assert b" the" not in tokens.id_of


def test_every_token_adds_its_bytes_to_a_text() -> None:
    for tokenizer in (byte_level(), metaspace()):
        tokens = tokens_of(tokenizer, 1000)
        text = "the ab thing\n한 A tön"
        found = tokens.joined(tokens.encode(text))
        assert found.removeprefix(b" ") == text.encode()

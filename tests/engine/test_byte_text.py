"""The fast way to text says what the tokenizer itself would."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders
from transformers import PreTrainedTokenizerFast

from draftwood.engine.detokenize import (
    REPLACEMENT,
    ByteDetokenizer,
    Detokenizer,
    is_byte_level,
    text_stream,
)
from tests.engine.test_text import BYTE_LEVEL, PIECES, SAMPLE, byte_level, decode, ids_of, named

fast: Any = PreTrainedTokenizerFast  # its constructor has no annotations


@given(st.data())
def test_pieces_add_up_to_the_decoded_tokens(data: st.DataObject) -> None:
    ids = data.draw(ids_of(BYTE_LEVEL))
    cut = data.draw(st.integers(0, len(ids)))
    for pieces in ([[token] for token in ids], [ids[:cut], ids[cut:]]):
        stream = ByteDetokenizer(BYTE_LEVEL)
        text = "".join(stream.push(piece) for piece in pieces) + stream.flush()
        assert text == decode(BYTE_LEVEL, ids)
        assert stream.flush() == ""


@given(st.data())
def test_after_a_prompt_it_is_what_the_general_way_says(data: st.DataObject) -> None:
    prompt = data.draw(ids_of(BYTE_LEVEL))
    ids = data.draw(ids_of(BYTE_LEVEL))
    ours, twin = text_stream(BYTE_LEVEL, prompt), Detokenizer(BYTE_LEVEL, prompt)
    said = [[stream.push([token]) for token in ids] + [stream.flush()] for stream in (ours, twin)]
    assert "".join(said[0]) == "".join(said[1])


def test_text_is_out_as_soon_as_its_characters_are_whole() -> None:
    ids = BYTE_LEVEL.encode(SAMPLE.replace(REPLACEMENT, ""))
    stream = ByteDetokenizer(BYTE_LEVEL)
    out = ""
    for i, token in enumerate(ids):
        out += stream.push([token])
        assert out == decode(BYTE_LEVEL, ids[: i + 1]).rstrip(REPLACEMENT)


def test_a_prompt_that_ends_within_a_character_takes_the_general_way() -> None:
    byte = named(BYTE_LEVEL, "ð", "Ł", "ĺ", "Ģ")
    (special,) = named(BYTE_LEVEL, "</s>")
    hello = BYTE_LEVEL.encode("hello ")
    for cut in (1, 2, 3):
        for after in ([], [special] * 9):
            stream = text_stream(BYTE_LEVEL, [*hello, *byte[:cut], *after])
            assert isinstance(stream, Detokenizer)
    assert isinstance(text_stream(BYTE_LEVEL, [*hello, *byte]), ByteDetokenizer)
    assert isinstance(text_stream(BYTE_LEVEL, []), ByteDetokenizer)
    # Four bytes that continue nothing are no beginning of a character.
    assert isinstance(text_stream(BYTE_LEVEL, [byte[1]] * 4), ByteDetokenizer)


def test_tokens_without_bytes() -> None:
    stream = ByteDetokenizer(BYTE_LEVEL)
    bos, letter = named(BYTE_LEVEL, "<s>", "h")
    assert [stream.push([token]) for token in (bos, letter, 10**6, bos)] == ["", "h", "", ""]


def test_added_tokens_outside_the_alphabet_are_spelt_out() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("<a b>", special=False), AddedToken("你", special=False)])
    ids = named(tokenizer, "<a b>", "h", "你")
    assert decode(tokenizer, ids) == "<a b>h你"
    assert ByteDetokenizer(tokenizer).push(ids) == "<a b>h你"


def test_other_tokenizers_take_the_general_way() -> None:
    assert is_byte_level(BYTE_LEVEL)
    assert not is_byte_level(PIECES)
    assert isinstance(text_stream(PIECES, []), Detokenizer)

    class Odd(fast):  # type: ignore[misc]
        def _decode(self, *args: Any, **kwargs: Any) -> str:
            return "odd"

    backend = byte_level().backend_tokenizer
    assert not is_byte_level(Odd(tokenizer_object=backend))
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip("x", 1, 0)])
    assert not is_byte_level(fast(tokenizer_object=backend))


def test_the_alphabet_is_the_tokenizers_own() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    from draftwood.engine.detokenize import _BYTES

    assert set(_BYTES) == set(ByteLevel.alphabet())
    for char, byte in _BYTES.items():
        if byte < 128:
            assert decoders.ByteLevel().decode([char]) == chr(byte)


@pytest.mark.parametrize("bad", [b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3("])
def test_broken_text_is_replaced_as_the_tokenizer_replaces_it(bad: bytes) -> None:
    from draftwood.engine.detokenize import _BYTES

    spelt = {byte: char for char, byte in _BYTES.items()}
    ids = named(BYTE_LEVEL, *(spelt[b] for b in bad))
    stream = ByteDetokenizer(BYTE_LEVEL)
    text = "".join(stream.push([token]) for token in ids) + stream.flush()
    assert text == decode(BYTE_LEVEL, ids)

"""Text never changes once it is out, and its pieces add up to the tokenizer's own decoding."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from draftwood.engine.detokenize import (
    _BYTES,
    REPLACEMENT,
    ByteDetokenizer,
    Detokenizer,
    TextStream,
    is_byte_level,
    text_stream,
)

fast: Any = PreTrainedTokenizerFast  # its constructor has no annotations

SAMPLE = (
    "Hello world, hello wörld! 你好世界 👩‍👩‍👧 😀😃 e\u0301 naïve\n\tdef f(x): return x\n नमस्ते "
    "\ufffd flag 🇩🇪"
)


def byte_level() -> PreTrainedTokenizerBase:
    """A byte-level BPE whose merges cut through emoji and CJK characters."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    backend.train_from_iterator([SAMPLE] * 20, trainer)
    tokenizer: PreTrainedTokenizerBase = fast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    )
    return tokenizer


def sentencepiece_like() -> PreTrainedTokenizerBase:
    """Words that carry their leading space as ``▁``, and byte tokens for everything else."""
    words = ["▁", "▁▁", "▁hello", "▁world", "hello", "ing", "!", "▁a", "é", REPLACEMENT]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    vocab = {name: i for i, name in enumerate(names)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer: PreTrainedTokenizerBase = fast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    return tokenizer


BYTE_LEVEL = byte_level()
PIECES = sentencepiece_like()
EMOJI = ("ð", "Ł", "ĺ", "Ģ")
"""The four bytes of 😀."""


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], *, skip: bool = True) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


def named(tokenizer: PreTrainedTokenizerBase, *names: str) -> list[int]:
    ids = tokenizer.convert_tokens_to_ids(list(names))
    assert isinstance(ids, list)
    return ids


def ids_of(tokenizer: PreTrainedTokenizerBase) -> st.SearchStrategy[list[int]]:
    """Any tokens, and runs of tokens that are (parts of) characters."""
    anything = st.lists(st.integers(0, len(tokenizer) - 1), max_size=12)
    names = [f"<0x{b:02X}>" for b in "é你😀".encode()]
    if tokenizer is BYTE_LEVEL:
        written = st.text(max_size=6).map(tokenizer.encode)
    else:
        written = st.lists(
            st.sampled_from(named(tokenizer, *names, "▁", "▁hello", "<unk>")), max_size=8
        )
    parts = st.lists(st.one_of(anything, written), max_size=4)
    return parts.map(lambda lists: [token for part in lists for token in part])


def streamed(stream: TextStream, pieces: Iterable[Sequence[int]]) -> str:
    text = "".join(stream.push(piece) for piece in pieces) + stream.flush()
    assert stream.flush() == ""
    return text


@pytest.fixture(params=[Detokenizer, ByteDetokenizer])
def stream(request: pytest.FixtureRequest) -> TextStream:
    """Either stream of a byte-level tokenizer's text."""
    made: TextStream = request.param(BYTE_LEVEL)
    return made


@pytest.mark.parametrize(
    ("tokenizer", "make"),
    [(BYTE_LEVEL, Detokenizer), (BYTE_LEVEL, text_stream), (PIECES, text_stream)],
)
@given(st.data())
def test_pieces_add_up_to_what_the_tokens_add_to_the_prompt(
    tokenizer: PreTrainedTokenizerBase, make: Any, data: st.DataObject
) -> None:
    prompt = data.draw(st.one_of(st.just([]), ids_of(tokenizer)))
    ids = data.draw(ids_of(tokenizer))
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=5).map(sorted))
    chunks = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    whole, before = decode(tokenizer, prompt + ids), decode(tokenizer, prompt)
    same = [a == b for a, b in zip(whole, before, strict=False)]
    expected = whole[[*same, False].index(False) :]
    for pieces in ([[token] for token in ids], chunks):
        assert streamed(make(tokenizer, prompt), pieces) == expected


def test_text_is_out_as_soon_as_its_characters_are_whole(stream: TextStream) -> None:
    ids = BYTE_LEVEL.encode(SAMPLE.replace(REPLACEMENT, ""))
    assert len(set(ids)) > 20
    out = ""
    for i, token in enumerate(ids):
        out += stream.push([token])
        assert out == decode(BYTE_LEVEL, ids[: i + 1]).rstrip(REPLACEMENT)


def test_half_a_character_waits_and_is_flushed_as_a_replacement(stream: TextStream) -> None:
    byte = named(BYTE_LEVEL, *EMOJI)
    assert [stream.push([b]) for b in byte] == ["", "", "", "😀"]
    assert stream.push(byte[:2]) == ""
    assert stream.flush() == REPLACEMENT


def test_a_prompt_that_ends_within_a_character_takes_the_general_stream() -> None:
    byte = named(BYTE_LEVEL, *EMOJI)
    (special,) = named(BYTE_LEVEL, "</s>")
    hello = BYTE_LEVEL.encode("hello ")
    for cut in (1, 2, 3):
        for after in ([], [special] * 9):
            general = text_stream(BYTE_LEVEL, [*hello, *byte[:cut], *after])
            assert isinstance(general, Detokenizer)
            assert general.push(byte[cut:]) == "😀"
    # Four bytes that continue nothing are no beginning of a character.
    for prompt in ([*hello, *byte], [], [byte[1]] * 4):
        assert isinstance(text_stream(BYTE_LEVEL, prompt), ByteDetokenizer)


def test_tokens_without_bytes(stream: TextStream) -> None:
    bos, letter = named(BYTE_LEVEL, "<s>", "h")
    assert "".join(stream.push([token]) for token in (bos, letter, 10**6, bos)) == "h"


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, PIECES])
def test_some_special_tokens_may_be_shown(tokenizer: PreTrainedTokenizerBase) -> None:
    copied = deepcopy(tokenizer)
    copied.add_special_tokens({"additional_special_tokens": ["<call>", "<odd>"]})
    call, odd = named(copied, "<call>", "<odd>")
    words = copied.encode("one two", add_special_tokens=False)
    ids = [words[0], odd, call, *words[1:], odd]
    for stream in (Detokenizer(copied, shown={call}), text_stream(copied, [], shown={call})):
        text = "".join(stream.push([token]) for token in ids) + stream.flush()
        assert text == decode(copied, [words[0], call, *words[1:]], skip=False)
        assert "<call>" in text
        assert "<odd>" not in text


def test_added_tokens_outside_the_alphabet_are_spelt_out() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("<a b>", special=False), AddedToken("你", special=False)])
    ids = named(tokenizer, "<a b>", "h", "你")
    assert decode(tokenizer, ids) == "<a b>h你"
    assert ByteDetokenizer(tokenizer).push(ids) == "<a b>h你"


def test_other_tokenizers_take_the_general_stream() -> None:
    assert isinstance(text_stream(PIECES, []), Detokenizer)

    class Odd(fast):  # type: ignore[misc]
        def _decode(self, *args: Any, **kwargs: Any) -> str:
            return "odd"

    backend = byte_level().backend_tokenizer
    assert not is_byte_level(Odd(tokenizer_object=backend))
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip("x", 1, 0)])
    assert not is_byte_level(fast(tokenizer_object=backend))


def test_the_alphabet_is_the_tokenizers_own() -> None:
    assert set(_BYTES) == set(pre_tokenizers.ByteLevel.alphabet())
    for char, byte in _BYTES.items():
        if byte < 128:
            assert decoders.ByteLevel().decode([char]) == chr(byte)


@pytest.mark.parametrize("bad", [b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3("])
def test_broken_text_is_replaced_as_the_tokenizer_replaces_it(
    bad: bytes, stream: TextStream
) -> None:
    spelt = {byte: char for char, byte in _BYTES.items()}
    ids = named(BYTE_LEVEL, *(spelt[b] for b in bad))
    assert streamed(stream, [[token] for token in ids]) == decode(BYTE_LEVEL, ids)


def test_the_space_before_the_first_word_is_kept_after_a_prompt() -> None:
    hello, world, bos = named(PIECES, "▁hello", "▁world", "<s>")
    assert Detokenizer(PIECES, [bos, hello]).push([world]) == " world"
    assert Detokenizer(PIECES, [hello, *[bos] * 40]).push([world]) == " world"
    assert Detokenizer(PIECES, [bos]).push([world]) == "world"
    assert Detokenizer(PIECES).push([hello, bos, world]) == "hello world"


def test_byte_fallback_waits_for_the_end_of_a_run() -> None:
    # One more byte turns a whole run into replacement characters: nothing of it may be out.
    ids = named(PIECES, "<0xC3>", "<0xA9>", "<0xC3>", "▁a")
    assert [decode(PIECES, ids[:n]) for n in (2, 3)] == ["é", REPLACEMENT * 3]
    detokenizer = Detokenizer(PIECES)
    assert [detokenizer.push([t]) for t in ids] == ["", "", "", REPLACEMENT * 3 + " a"]


class Counting:
    """Counts the tokens that a tokenizer is asked to decode."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.added_tokens_decoder = tokenizer.added_tokens_decoder
        self.decoded: list[int] = []

    def decode(self, ids: list[int], **options: bool) -> str:
        self.decoded.append(len(ids))
        return str(self.tokenizer.decode(ids, **options))

    def convert_ids_to_tokens(self, token: int) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(token))


@pytest.mark.parametrize(
    "name", ["ð", "Ģ", "ÿ", "a", "Ġhello", "<s>"], ids=["lead", "tail", "never", "a", "word", "bos"]
)
def test_windows_stay_short_whatever_the_model_babbles(name: str) -> None:
    (token,) = named(BYTE_LEVEL, name)
    counting = Counting(BYTE_LEVEL)
    detokenizer = Detokenizer(counting, BYTE_LEVEL.encode("x " * 500))  # type: ignore[arg-type]
    out = streamed(detokenizer, [[token]] * 300)
    assert out == decode(BYTE_LEVEL, [token] * 300)
    if name == "<s>":  # what shows nothing costs nothing until the end
        assert len(counting.decoded) <= 4
    else:
        assert max(counting.decoded) <= 16

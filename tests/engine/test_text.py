"""Text never changes once it is out, and all of it adds up to what the tokenizer decodes."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from draftwood.engine.detokenize import REPLACEMENT, Detokenizer
from draftwood.engine.stop import StopMatcher
from draftwood.errors import DraftwoodError

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
TOKENIZERS = [
    pytest.param(BYTE_LEVEL, id="byte-level"),
    pytest.param(PIECES, id="sentencepiece-like"),
]


def decode(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], skip_special_tokens: bool = True
) -> str:
    text = tokenizer.decode(
        list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
    )
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


def streamed(detokenizer: Detokenizer, pieces: Iterable[Sequence[int]]) -> str:
    return "".join(detokenizer.push(piece) for piece in pieces) + detokenizer.flush()


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(st.data())
def test_pieces_add_up_to_the_decoded_tokens(
    tokenizer: PreTrainedTokenizerBase, data: st.DataObject
) -> None:
    ids = data.draw(ids_of(tokenizer))
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=5).map(sorted))
    skip = data.draw(st.booleans())
    chunks = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    for pieces in ([[token] for token in ids], chunks):
        detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
        assert streamed(detokenizer, pieces) == decode(tokenizer, ids, skip)
        assert detokenizer.flush() == ""


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(st.data())
def test_after_a_prompt_it_is_what_the_tokens_add(
    tokenizer: PreTrainedTokenizerBase, data: st.DataObject
) -> None:
    prompt = data.draw(ids_of(tokenizer))
    ids = data.draw(ids_of(tokenizer))
    whole, given_text = decode(tokenizer, prompt + ids), decode(tokenizer, prompt)
    common = 0
    while whole[common : common + 1] and whole.startswith(given_text[: common + 1]):
        if common == len(given_text):
            break
        common += 1
    assert streamed(Detokenizer(tokenizer, prompt), [[t] for t in ids]) == whole[common:]


def test_text_is_out_as_soon_as_its_characters_are_whole() -> None:
    ids = BYTE_LEVEL.encode(SAMPLE.replace(REPLACEMENT, ""))
    assert len(set(ids)) > 20
    detokenizer = Detokenizer(BYTE_LEVEL, [])
    out = ""
    for i, token in enumerate(ids):
        out += detokenizer.push([token])
        assert out == decode(BYTE_LEVEL, ids[: i + 1]).rstrip(REPLACEMENT)
    assert detokenizer.flush() == ""


def test_half_a_character_waits_and_is_flushed_as_a_replacement() -> None:
    first, *rest = "😀".encode()
    byte = named(BYTE_LEVEL, "ð", "Ł", "ĺ", "Ģ")
    assert decode(BYTE_LEVEL, byte) == bytes([first, *rest]).decode()
    detokenizer = Detokenizer(BYTE_LEVEL)
    assert [detokenizer.push([b]) for b in byte] == ["", "", "", "😀"]
    assert detokenizer.push(byte[:2]) == ""
    assert detokenizer.flush() == REPLACEMENT


def test_a_prompt_that_ends_within_a_character() -> None:
    byte = named(BYTE_LEVEL, "ð", "Ł", "ĺ", "Ģ")
    detokenizer = Detokenizer(BYTE_LEVEL, [*BYTE_LEVEL.encode("hello "), *byte[:2]])
    assert [detokenizer.push([b]) for b in byte[2:]] == ["", "😀"]


def test_the_space_before_the_first_word_is_kept_after_a_prompt() -> None:
    hello, world, bos = named(PIECES, "▁hello", "▁world", "<s>")
    assert Detokenizer(PIECES, [bos, hello]).push([world]) == " world"
    assert Detokenizer(PIECES, [hello, *[bos] * 40]).push([world]) == " world"
    assert Detokenizer(PIECES, [bos]).push([world]) == "world"
    assert Detokenizer(PIECES).push([hello, bos, world]) == "hello world"
    unskipped = Detokenizer(PIECES, [hello], skip_special_tokens=False)
    assert unskipped.push([bos]) == "<s>"


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


# --- stop strings ---------------------------------------------------------------------------------


def fed(matcher: StopMatcher, pieces: Iterable[str]) -> list[str]:
    return [matcher.feed(piece) for piece in pieces]


def test_a_stop_string_across_pieces() -> None:
    matcher = StopMatcher(["\n\nQ:"])
    assert fed(matcher, ["A: 4", ".\n", "\n", "Q", ": 5+5", "more"]) == [
        "A: 4",
        ".",
        "",
        "",
        "",
        "",
    ]
    assert matcher.matched == "\n\nQ:"
    assert matcher.flush() == ""


def test_a_false_beginning_is_let_go() -> None:
    matcher = StopMatcher(["aab"])
    assert fed(matcher, ["a", "a", "a", "c", "aa"]) == ["", "", "a", "aac", ""]
    assert matcher.matched is None
    assert matcher.flush() == "aa"
    assert matcher.flush() == ""


def test_the_first_to_be_completed_counts_and_then_the_longest() -> None:
    matcher = StopMatcher(["bcde", "c"])
    assert fed(matcher, ["abcde"]) == ["ab"]
    assert matcher.matched == "c"
    matcher = StopMatcher(["c", "abc", "bc"])
    assert fed(matcher, ["xabc"]) == ["x"]
    assert matcher.matched == "abc"


def test_without_stops_everything_passes() -> None:
    matcher = StopMatcher([])
    assert fed(matcher, ["a", "", "b"]) == ["a", "", "b"]
    assert matcher.matched is None


def test_bad_stops_are_refused() -> None:
    with pytest.raises(DraftwoodError, match="must not be empty"):
        StopMatcher(["a", ""])
    with pytest.raises(DraftwoodError, match="as a list"):
        StopMatcher("stop")


short = st.text("ab", min_size=1, max_size=5)


@given(st.lists(short, max_size=3), st.lists(st.text("abc", max_size=6), max_size=6))
def test_stops_do_not_depend_on_the_cuts(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    ends = [
        (end, -len(stop))
        for end in range(len(text) + 1)
        for stop in stops
        if text[:end].endswith(stop)
    ]
    end, length = min(ends, default=(len(text), 0))
    matcher = StopMatcher(stops)
    out = fed(matcher, pieces)
    shown = "".join(out) + matcher.flush()
    assert shown == text[: end + length]
    assert matcher.matched == (text[end + length : end] if ends else None)
    # What was out before never held a part of a stop string, nor was it kept longer than needed.
    for before, seen in zip(accumulate(out), accumulate(pieces), strict=True):
        assert text[: end + length].startswith(before)
        if matcher.matched is None:
            held = seen[len(before) :]
            assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)

"""Which tokens of two vocabularies are the same."""

import numpy as np

from draftwood.engine.intersection import Intersection, intersect
from draftwood.engine.token_bytes import tokens_of
from tests.factories.small_tokenizers import ALPHABET, MERGES, WORDS, byte_level, metaspace

BYTES = byte_level()
PIECES = metaspace()


def of(target: object, draft: object, size: int = 1000) -> Intersection:
    return intersect(tokens_of(target, 1000), tokens_of(draft, size), size)  # type: ignore[arg-type]


def test_words_and_bytes_are_equal_by_their_text() -> None:
    found = of(BYTES, PIECES)
    ours, theirs = BYTES.get_vocab(), PIECES.get_vocab()
    pairs = {"▁the": "Ġthe", "he": "he", "ing": "ing", "A": "A", "ö": "Ã¶", "▁t": "Ġt", "▁": "Ġ"}
    pairs |= {"<0x0A>": "Ċ", "<0xC3>": "Ã"}
    for draft, target in pairs.items():
        assert found.to_target[theirs[draft]] == ours[target], draft
        assert found.of_target[ours[target]] == theirs[draft]
    for draft in ("the", "<unk>", "<s>", "한", "▁Ö"):
        assert found.to_target[theirs[draft]] == -1, draft
    for target in ("ab", "in", "Ġt"):
        assert (ours[target] in found.of_target) == (target == "Ġt")


def test_a_token_is_mapped_once() -> None:
    found = of(BYTES, PIECES)
    theirs = PIECES.get_vocab()
    assert found.to_target[theirs["<0x41>"]] == -1, "the tokenizer produces the word A"
    mapped = found.to_target[found.to_target >= 0]
    assert len(set(mapped.tolist())) == len(mapped)
    # The other way round both are read, but one is proposed.
    found = of(PIECES, BYTES)
    assert found.of_target[theirs["<0x41>"]] == found.of_target[theirs["A"]]
    assert found.to_target[BYTES.get_vocab()["A"]] == theirs["A"]


def test_special_tokens_are_equal_by_their_role() -> None:
    found = of(BYTES, PIECES)
    ours, theirs = BYTES.get_vocab(), PIECES.get_vocab()
    assert found.to_target[theirs["</s>"]] == ours["<eos>"]
    assert found.to_target[theirs["<eos>"]] == -1, "an ordinary token that is spelt like it"
    assert found.of_target[ours["<eos>"]] == theirs["</s>"]


def test_special_tokens_without_a_role_are_equal_by_their_name() -> None:
    target, draft = byte_level(eos="<end>"), metaspace()
    for tokenizer in (target, draft):
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    draft.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|tool|>"]})
    target.add_tokens(["<|tool|>"])
    found = of(target, draft)
    ours, theirs = target.get_vocab(), draft.get_vocab()
    assert found.to_target[theirs["<|user|>"]] == ours["<|user|>"]
    assert found.to_target[theirs["<|tool|>"]] == -1, "ordinary in one of them"


def test_two_roles_of_one_token_are_read_but_proposed_once() -> None:
    one = metaspace()
    one.bos_token = one.eos_token
    found = of(PIECES, one)
    theirs = one.get_vocab()["</s>"]
    assert found.to_target[theirs] == PIECES.eos_token_id
    assert found.of_target[PIECES.bos_token_id] == found.of_target[PIECES.eos_token_id] == theirs


def test_counts_are_of_ordinary_tokens() -> None:
    found = of(BYTES, PIECES)
    assert found.target == len(ALPHABET) + len(MERGES)
    assert found.draft == 256 + len(WORDS) - len("▁Aosnw"), "six are bytes, too"
    # All bytes, and the words of the list above.
    assert found.shared == 256 + len(["▁the", "he", "ing", "ö", "▁t"])
    assert found.share == found.shared / found.target
    both = of(BYTES, byte_level(shift=5))
    assert both.shared == both.target == both.draft
    assert both.share == 1


def test_a_permuted_vocabulary_is_the_permutation() -> None:
    draft = byte_level(shift=5)
    count = len(BYTES)
    found = of(BYTES, draft, count)
    assert np.array_equal(found.to_target, (np.arange(count) - 5) % count)


def test_rows_without_a_token_map_to_nothing() -> None:
    found = of(BYTES, PIECES, len(PIECES) + 9)
    assert (found.to_target[len(PIECES) :] == -1).all()
    assert of(BYTES, PIECES, 100).to_target.shape == (100,)

"""The peer with a static cache has the tokens of plain generate, and is refused on a CPU."""

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.peers.hf_static import HuggingFaceStatic, static
from tests.lab.bench.peers.answers import answers, check_sampling, plain, stock, texts


def test_tokens_are_those_of_plain_generate() -> None:
    model = stock()
    wanted = plain(model)
    found = static(model, 64)
    assert texts(answers(found)) == wanted
    # A group is decoded in one call.
    assert len({answer.completion.seconds for answer in answers(found)}) == 1
    # Longer than the cache.
    long = [[1 + i % 90 for i in range(100)]]
    assert texts(answers(found, long)) == plain(model, long)


def test_a_length_beyond_the_context_is_cut() -> None:
    model = stock(context=64)
    wanted = plain(model)
    assert texts(answers(static(model, 4096))) == wanted


def test_sampling_follows_the_seed() -> None:
    model = stock()
    check_sampling(static(model, 64), model, groups=False)


def test_a_cpu_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="compare with the peer hf on a CPU"):
        HuggingFaceStatic().enter(stock())

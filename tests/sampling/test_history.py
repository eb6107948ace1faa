"""The history grows in place and shows paths without copying."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.sampling.history import History

ids = st.lists(st.integers(0, 2**40), max_size=400)


@given(ids, st.lists(ids, max_size=4), ids)
def test_it_is_the_concatenation(
    prompt: list[int], later: list[list[int]], path: list[int]
) -> None:
    history = History(prompt)
    known = list(prompt)
    for tokens in later:
        history.extend(tokens)
        known += tokens
        assert len(history) == len(known)
        assert history.view(path).tolist() == [known + path]
        assert history.view().tolist() == [known]


def test_views_share_memory() -> None:
    history = History(np.arange(5), capacity=100)
    history.append(7)
    first = history.view()
    assert first.dtype == torch.int64
    assert first.data_ptr() == history.view([1, 2]).data_ptr()
    assert history.view([1, 2]).tolist() == [[0, 1, 2, 3, 4, 7, 1, 2]]
    history.append(9)
    assert history.view().tolist() == [[0, 1, 2, 3, 4, 7, 9]]
    assert first.tolist() == [[0, 1, 2, 3, 4, 7]]

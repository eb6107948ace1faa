"""The trie: trees as SGLang arranges them, from the request's own text and from earlier ones."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftwood.drafters.trie.arrange import latest, most_frequent
from draftwood.drafters.trie.drafter import Trie, TrieDrafter
from draftwood.drafters.trie.index import Text, count, successors, used
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.protocols import Branches, Outcome, Prefill, TargetInfo, TargetOutput
from draftwood.tree import tree_of
from tests.factories.markov_target import FakeHost, MarkovTarget

HOST = FakeHost(TargetInfo(1000, 4096, 2, 8, torch.device("cpu"), torch.float32))
NO_ROWS = TargetOutput(
    torch.zeros(1, 1), np.zeros(1, np.int64), np.zeros((1, 0), np.int64), np.zeros((1, 0), "f4")
)
Path = tuple[int, ...]


def begin(drafter: TrieDrafter, text: Sequence[int], slot: int = 0, namespace: str = "") -> None:
    prompt = np.array(text[:-1], dtype=np.int64)
    drafter.begin(slot, Prefill(prompt, text[-1], NO_ROWS, namespace))


def commit(drafter: TrieDrafter, tokens: Sequence[int], slot: int = 0) -> None:
    drafter.observe(slot, Outcome(tree_of([0], [-1]), (), tuple(tokens), NO_ROWS))


def drafted(
    drafter: TrieDrafter, nodes: int = 99, depth: int = 99, slot: int = 0
) -> tuple[Path, ...]:
    [found] = drafter.branches([slot], [Branches("trie", nodes, depth)])
    return found


def made(text: Sequence[int], **settings: object) -> TrieDrafter:
    drafter = Trie(prompt=True, **settings).build(HOST)  # type: ignore[arg-type]
    begin(drafter, text)
    return drafter


def occurrences(text: Sequence[int], ngram: Path) -> list[int]:
    """The places of the n-gram's last token."""
    n = len(ngram)
    return [i + n - 1 for i in range(len(text) - n + 1) if tuple(text[i : i + n]) == ngram]


def searched(
    text: Sequence[int], order: str, depth: int, least: int, most: int, nodes: int, deepest: int
) -> list[Path]:
    """The rule, by a search through the text for every n-gram."""
    found: list[Path] = []

    def after(ngram: Path) -> list[tuple[int, int, int]]:
        """The tokens after an n-gram, with their counts and latest places."""
        if len(ngram) >= depth:
            return []
        tokens = {text[i + 1] for i in occurrences(text, ngram) if i + 1 < len(text)}
        places = {token: occurrences(text, (*ngram, token)) for token in tokens}
        return [(token, len(at), max(at)) for token, at in places.items()]

    for length in range(min(depth - 1, len(text)), 0, -1):
        end = tuple(text[-length:])
        if order == "recency":
            level: list[Path] = [()]
            while level:
                further: list[Path] = []
                for path in level:
                    slope = (most - least) / (depth - 1)
                    breadth = max(1, int((depth - 1 - length - len(path)) * slope + least))
                    best = sorted(after(end + path), key=lambda each: -each[2])[:breadth]
                    further += [(*path, token) for token, _, _ in best if len(path) < deepest]
                found += [path for path in further if path not in found]
                level = further
            continue
        waiting: list[tuple[float, Path]] = [(1.0, ())]
        while waiting:
            at = max(range(len(waiting)), key=lambda i: waiting[i][0])
            probability, path = waiting.pop(at)
            if path and path not in found:
                found.append(path)
            best = sorted(after(end + path), key=lambda each: (-each[1], each[0]))[:most]
            total = sum(count for _, count, _ in best)
            if len(path) < deepest:
                waiting += [(probability * c / total, (*path, token)) for token, c, _ in best]
    return found[:nodes]


@pytest.mark.parametrize("order", ["recency", "frequency"])
@given(
    text=st.integers(1, 4).flatmap(
        lambda size: st.lists(st.integers(0, size - 1), min_size=2, max_size=26)
    ),
    cut=st.integers(2, 26),
    depth=st.integers(2, 6),
    least=st.integers(1, 2),
    more=st.integers(0, 3),
    nodes=st.integers(1, 12),
    deepest=st.integers(1, 5),
)
def test_a_tree_equals_that_of_a_search(
    order: str,
    text: list[int],
    cut: int,
    depth: int,
    least: int,
    more: int,
    nodes: int,
    deepest: int,
) -> None:
    given_settings = {"depth": depth, "least_breadth": least, "breadth": least + more}
    drafter = made(text[:cut], order=order, **given_settings)
    commit(drafter, text[cut:])
    found = drafted(drafter, nodes, deepest)
    assert list(found) == searched(text, order, depth, least, least + more, nodes, deepest)


def test_by_hand_the_longest_end_comes_first() -> None:
    # After "1 2" came 3 and then 4; after "2" alone came 5 as well, and later than both.
    text = [1, 2, 3, 1, 2, 4, 9, 2, 5, 1, 2]
    assert drafted(made(text, depth=4), nodes=5) == ((4,), (3,), (4, 9), (3, 1), (5,))
    assert drafted(made(text, depth=4), nodes=2) == ((4,), (3,))
    # Where n-grams have three tokens at most, only one token follows an end of two.
    assert drafted(made(text, depth=3), nodes=3) == ((4,), (5,), (3,))


def test_by_hand_frequent_paths_come_first() -> None:
    # After 1: 2 three times, of which 3 followed twice, and 7 once.
    text = [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 7, 0, 1]
    found = drafted(made(text, depth=3, order="frequency"), nodes=5)
    # "0 1" was followed by 2 twice and by 7 once; "1" alone adds what follows these.
    assert found[:2] == ((2,), (7,))
    assert found[2:] == ((2, 3), (2, 4), (7, 0))
    assert drafted(made(text, depth=3), nodes=2) == ((7,), (2,))


def test_breadth_falls_with_the_tokens_before() -> None:
    shape = made([1, 2])._shape
    assert [shape.breadth(before) for before in (1, 2, 8, 16, 17)] == [9, 8, 5, 1, 1]


def test_the_prompt_is_drafted_from_only_on_request() -> None:
    prompt = [1, 2, 3, 4, *range(100, 130), 1, 2]
    own = Trie().build(HOST)
    begin(own, prompt)
    assert drafted(own) == ()
    assert drafted(made(prompt))[:2] == ((3,), (3, 4))
    # What was generated, and the end of the prompt, is.
    commit(own, [50, 129, 1, 2])
    assert drafted(own)[:2] == ((50,), (50, 129))


def test_later_requests_draft_from_finished_ones_of_their_namespace() -> None:
    drafter = Trie().build(HOST)
    begin(drafter, [1, 2, 3, 4, 5])
    begin(drafter, [2, 3], slot=1)
    begin(drafter, [2, 3], slot=2, namespace="other")
    assert drafted(drafter, slot=1) == ()
    drafter.release(0)
    assert drafted(drafter, slot=1) == ((4,), (4, 5))
    assert drafted(drafter, slot=2) == ()
    # Its own text is later than that of others.
    commit(drafter, [7, 2, 3], slot=1)
    assert drafted(drafter, slot=1)[:2] == ((7,), (4,))


def test_counts_of_own_and_earlier_text_add_up() -> None:
    drafter = Trie(order="frequency").build(HOST)
    begin(drafter, [1, 2, 9, 1, 2])
    drafter.release(0)
    begin(drafter, [1, 3, 9, 1, 3, 8, 1, 2, 7, 1], slot=1)
    # After 1: 2 twice there and once here, 3 twice here.
    assert drafted(drafter, depth=1, slot=1)[-2:] == ((2,), (3,))
    assert drafted(drafter, depth=1, slot=1)[0] == (2,)


@given(
    texts=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=12), min_size=1, max_size=6),
    size=st.integers(2, 30),
)
def test_the_oldest_text_is_forgotten(texts: list[list[int]], size: int) -> None:
    """What is left equals a trie that only saw the texts that fit."""
    drafter = Trie(size=size, depth=4).build(HOST)
    for text in texts:
        begin(drafter, text)
        drafter.release(0)
    fresh = Trie(depth=4).build(HOST)
    room, kept = size, list[list[int]]()
    for text in reversed(texts):
        own = text[-5:][-size:]  # as much of a prompt as is drafted from
        room -= len(own)
        if room < 0:
            break
        kept.insert(0, own)
    for text in kept:
        begin(fresh, text)
        fresh.release(0)
    for end in range(4):
        begin(drafter, [end, end], slot=1)
        begin(fresh, [end, end], slot=1)
        assert Counter(drafted(drafter, slot=1)) == Counter(drafted(fresh, slot=1))
        drafter._running.clear()
        fresh._running.clear()


def test_chains_for_other_policies() -> None:
    [found] = made([1, 2, 3, 1, 2, 4, 9, 2, 5, 1, 2], depth=4).continuations([0])
    assert [(each.tokens, each.match_length, each.count) for each in found] == [
        ((4, 9), 2, 1),
        ((3, 1), 2, 1),
        ((5, 1, 2), 1, 1),
    ]
    assert [each.agreeing for each in found] == [1, 0, 1]


def test_breadths_must_fit() -> None:
    with pytest.raises(DraftwoodError, match="least_breadth is 3 and breadth 2"):
        Trie(least_breadth=3, breadth=2)


def test_what_is_committed_behind_the_end_of_a_text_is_not_kept() -> None:
    drafter = made([1, 2, 3, 4])
    commit(drafter, [5, 6, 7, 8])
    drafter.cut(0, 3)
    drafter.release(0)
    begin(drafter, [9, 3, 4])
    assert drafted(drafter) == ((5,),)


@pytest.mark.parametrize("settings", ["", ":trie.order=frequency:trie.prompt=true:budget=31"])
def test_second_answers_take_fewer_steps_and_have_the_same_tokens(settings: str) -> None:
    target = MarkovTarget(vocab_size=40, seed=3)
    engine = Engine(target, method(f"ngram-trie{settings}"), host=FakeHost(target.info))
    asked = Request([1, 2, 3], max_new_tokens=60, eos=())
    first, second = (engine.generate([asked])[0] for _ in range(2))
    assert first.tokens == second.tokens == target.greedy([1, 2, 3], 60)
    assert second.tally.steps < first.tally.steps


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 9))
def test_some_successors_are_the_first_of_all(text: list[int], most: int) -> None:
    found = Text(4)
    for now, token in enumerate(text):
        found.extend((token,), now)
    place = (found.end(1),)
    assert place[0] is not None
    everyone = [*successors((place[0],)).items()]
    by_use = sorted(everyone, key=lambda each: -used(each[1]))
    by_count = sorted(everyone, key=lambda each: (-count(each[1]), each[0]))
    assert latest((place[0],), most) == by_use[:most]
    assert most_frequent((place[0],), most) == by_count[:most]

"""The datastore ranks what followed in its texts exactly as a search through them would."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from draftwood.drafters.datastore import drafter as drafter_module
from draftwood.drafters.datastore.drafter import DatastoreText
from draftwood.drafters.datastore.suffix_array import DEEPEST, LONGEST, Datastore
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.lockstep import draft
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.shipped import check_drafts
from draftwood.policies.opt_tree import OptTree
from draftwood.protocols import (
    Drafter,
    Expand,
    Growth,
    Outcome,
    Policy,
    Prefill,
    TargetInfo,
    TargetOutput,
)
from draftwood.tree import ROOT, Draw, TokenTree, TreeBuilder, tree_of
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.scripted_sources import paths
from tests.factories.tiny_llama import VOCAB, tiny_tokenizer

INFO = TargetInfo(300, 4096, 2, 8, torch.device("cpu"), torch.float32)
NO_ROWS = TargetOutput(
    torch.zeros(1, 1), np.zeros(1, np.int64), np.zeros((1, 0), np.int64), np.zeros((1, 0), "f4")
)
Tokens = tuple[int, ...]


def texts_of(seed: int, size: int) -> list[list[int]]:
    """Random texts with passages that come again, and short ones."""
    rng = np.random.default_rng(seed)
    passage = rng.integers(size, size=30).tolist()
    found: list[list[int]] = [[], [1], passage]
    for _ in range(4):
        noise = rng.integers(size, size=rng.integers(1, 60)).tolist()
        found.append([*noise, *passage[: rng.integers(5, 30)], *noise[:7], *passage])
    return found


def continued(texts: Sequence[Sequence[int]], passage: Sequence[int]) -> list[list[int]]:
    """What follows each occurrence of a passage, where anything does."""
    m = len(passage)
    return [
        list(text[i + m : i + m + DEEPEST])
        for text in texts
        for i in range(len(text) - m)
        if list(text[i : i + m]) == list(passage)
    ]


def longest(texts: Sequence[Sequence[int]], recent: Sequence[int], most: int) -> int:
    lengths = range(min(most, len(recent)), 0, -1)
    return next((n for n in lengths if continued(texts, recent[-n:])), 0)


@pytest.mark.parametrize("size", [2, 6, 250])
def test_every_path_is_counted_as_a_search_counts_it(size: int) -> None:
    texts = texts_of(size, size)
    store = Datastore(texts)
    assert store.tokens == sum(map(len, texts))
    rng = np.random.default_rng(1)
    matches = set()
    for _ in range(60):
        source = texts[rng.integers(2, len(texts))]
        end = int(rng.integers(1, len(source) + 1))
        recent = [*rng.integers(size, size=3).tolist(), *source[max(0, end - 20) : end]]
        most = int(rng.integers(1, LONGEST + 1))
        found = store.find(recent, most)
        assert found.match == longest(texts, recent, most)
        matches.add(found.match)
        if not found.match:
            assert len(found.places) == 0
            continue
        wanted = continued(texts, recent[-found.match :])
        # Follow a random path down, and compare all counts beside it.
        begin, end = 0, len(found.places)
        assert end == len(wanted)
        for depth in range(DEEPEST + 1):
            counts = Counter(each[depth] for each in wanted if len(each) > depth)
            tokens, shares = found.successors(begin, end, depth)
            assert dict(zip(tokens.tolist(), shares.tolist(), strict=True)) == counts
            assert shares.tolist() == sorted(shares.tolist(), reverse=True)
            if not counts:
                break
            token = int(rng.choice(sorted(counts)))
            begin, end = found.narrowed(begin, end, depth, token)
            wanted = [each for each in wanted if len(each) > depth and each[depth] == token]
            assert end - begin == len(wanted)
    assert {LONGEST, 1} <= matches


def test_places_are_sorted_by_all_that_is_looked_up() -> None:
    """Of equal beginnings, too, as in long loops."""
    texts = [[1, 2] * 50, [1] * 40, [1, 2] * 20 + [3]]
    store = Datastore(texts)
    found = store.find([1, 2] * 8, LONGEST)
    assert found.match == 16
    assert len(found.places) == len(continued(texts, [1, 2] * 8))
    followed = [found.text[place : place + DEEPEST].tolist() for place in found.places]
    assert followed == sorted(followed)


def test_of_many_occurrences_a_part_is_looked_at() -> None:
    rng = np.random.default_rng(0)
    store = Datastore([rng.choice(3, p=(0.5, 0.3, 0.2), size=50_000).tolist()])
    found = store.find([0], LONGEST)
    assert len(found.places) == 4096
    tokens, counts = found.successors(0, 4096, 0)
    assert tokens.tolist() == [0, 1, 2]
    assert counts / 4096 == pytest.approx((0.5, 0.3, 0.2), abs=0.02)


# --- the drafter ----------------------------------------------------------------------------------


def written(folder: Path, *texts: str) -> tuple[str, ...]:
    files = []
    for i, text in enumerate(texts):
        files.append(folder / f"{i}.txt")
        files[-1].write_text(text)
    return tuple(map(str, files))


def ids(text: str) -> list[int]:
    return [ord(each) % INFO.vocab_size for each in text]


def asked(tree: TreeBuilder, nodes: list[int], k: int = 5, **further: object) -> Expand:
    return Expand("datastore", tree, nodes, k, **further)  # type: ignore[arg-type]


def test_successors_and_their_shares(tmp_path: Path) -> None:
    text = written(tmp_path, "x the cat sat. the cat ran. the cot.", "my cat sat.")
    drafter = DatastoreText(text).build(FakeHost(INFO, reads=True))
    prompt = ids("see the c")
    drafter.begin(0, Prefill(np.array(prompt[:-1]), prompt[-1], NO_ROWS))
    tree = TreeBuilder(prompt[-1])
    a = tree.add(ROOT, ord("a"), "x")
    t = tree.add(a, ord("t"), "x")
    space = tree.add(t, ord(" "), "x")
    elsewhere = tree.add(t, ord("q"), "x")
    [found] = drafter.expand([0], [asked(tree, [ROOT, space, elsewhere])])
    # Three occurrences of " the c", two of which go on with an "a".
    assert found.tokens[0].tolist() == [*ids("ao"), -1, -1, -1]
    assert np.exp(found.logq[0, :2]) == pytest.approx((2 / 3, 1 / 3))
    assert sorted(found.tokens[1, :2].tolist()) == sorted(ids("sr"))
    assert np.exp(found.logq[1, :2]) == pytest.approx((0.5, 0.5))
    assert found.tokens[2].tolist() == [-1] * 5
    [found] = drafter.expand([0], [asked(tree, [ROOT], exclude=[frozenset(ids("a"))])])
    assert found.tokens[0].tolist() == [*ids("o"), -1, -1, -1, -1]
    with pytest.raises(DraftwoodError, match="one-hot children"):
        drafter.expand([0], [asked(tree, [ROOT], draw=Draw.IID)])
    first, second = drafter.continuations([0])[0]
    assert first.tokens == tuple(ids("at ran. the cot.")), "one of two that are as frequent"
    assert (first.match_length, first.count, first.agreeing) == (6, 2, 1)
    assert (second.tokens, second.count, second.agreeing) == (tuple(ids("ot.")), 1, 0)
    # A step later another suffix is looked up.
    drafter.observe(0, Outcome(tree_of([0], [-1]), (), tuple(ids("at s")), NO_ROWS))
    [again] = drafter.expand([0], [asked(TreeBuilder(ord("s")), [ROOT])])
    assert again.tokens[0].tolist() == [*ids("a"), -1, -1, -1, -1]


def test_rest_drafts_the_most_frequent_paths(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    content = "".join(rng.choice(list("abcd"), p=(0.4, 0.3, 0.2, 0.1), size=1500).tolist())
    text = written(tmp_path, content)
    drafter = DatastoreText(text).build(FakeHost(INFO, reads=True))
    prompt = ids(content[700:703])
    drafter.begin(0, Prefill(np.array(prompt[:-1]), prompt[-1], NO_ROWS))
    policy = method(f"rest:datastore.text={text[0]}").policy
    assert policy == OptTree(budget=64, delta=0.0, max_depth=10, source="datastore")
    tree = grown(policy, drafter, prompt[-1])
    followed = continued([ids(content)], prompt)
    counts: Counter[Tokens] = Counter(
        tuple(each[:n]) for each in followed for n in range(1, min(10, len(each)) + 1)
    )
    assert tree.drafted == 64
    least = sorted(counts.values(), reverse=True)[63]
    drafted = paths(tree)
    assert all(counts[path] >= least for path in drafted)
    assert {path for path, count in counts.items() if count > least} <= set(drafted)


def grown(policy: Policy, drafter: Drafter, anchor: int) -> TokenTree:
    [found] = draft(policy, {"datastore": drafter}, [0], [Growth(anchor, 100, 64)], [None])
    return found.tree


def test_text_that_a_file_has_is_drafted(tmp_path: Path) -> None:
    target = MarkovTarget(vocab_size=60, sharpness=3.0)
    prompt = tuple(range(8))
    answer = target.greedy(prompt, 60)
    # A character of FakeHost is a token, so that the file's text is the answer.
    text = written(tmp_path, "".join(chr(60 + token) for token in answer))
    for name in ("rest:datastore.text", "pld:context=datastore:context.text"):
        engine = Engine(target, method(f"{name}={text[0]}"), host=FakeHost(target.info, reads=True))
        [done] = engine.generate([Request(prompt, 60, eos=())])
        assert done.tokens == answer
        assert done.tally.mean_acceptance_length > 4


def test_files_are_indexed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Datastore] = []

    def counted(texts: Iterable[Sequence[int]]) -> Datastore:
        made.append(Datastore(texts))
        return made[-1]

    monkeypatch.setattr(drafter_module, "Datastore", counted)
    host = ModelHost(MarkovTarget(VOCAB), tiny_tokenizer())
    text = written(tmp_path, "abc abd")
    for longest_match in (2, 9):
        DatastoreText(text, longest=longest_match).build(host)
    assert len(made) == 1
    with pytest.raises(DraftwoodError, match="tokens, and the datastore takes 1 to 2"):
        DatastoreText(text, size=2).build(host)
    assert len(made) == 1


def test_what_cannot_be_drafted_from_is_refused(tmp_path: Path) -> None:
    host = FakeHost(INFO, reads=True)
    with pytest.raises(DraftwoodError, match="has no text: name files or folders"):
        DatastoreText().build(host)
    with pytest.raises(DraftwoodError, match="none does not exist"):
        DatastoreText((str(tmp_path / "none"),)).build(host)
    (tmp_path / "empty").write_text("")
    with pytest.raises(DraftwoodError, match="have 0 tokens"):
        DatastoreText((str(tmp_path / "empty"),)).build(host)
    with pytest.raises(DraftwoodError, match=r"have 5 tokens, .* takes 1 to 4"):
        DatastoreText(written(tmp_path, "abcde"), size=4).build(host)
    with pytest.raises(DraftwoodError, match=r"rest has nothing to draft from: give --datastore\."):
        check_drafts("embedded", {"rest": method("rest")})
    check_drafts("embedded", {"rest:..": method(f"rest:datastore.text={tmp_path}")})

"""A harvest equals a loop over the text's tokens, however it is cut, ordered or interrupted."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftwood.drafters.adjacency.table import UNKNOWN, Facts, PreparedTable
from draftwood.drafters.adjacency.table_file import to_bytes
from draftwood.errors import DraftwoodError
from draftwood.lab.harvest import run, shards
from draftwood.lab.harvest.plan import HarvestPlan
from draftwood.lab.harvest.run import Harvest
from draftwood.lab.harvest.shards import WorkDirectory
from draftwood.protocols import Needs, TargetOutput
from tests.factories.markov_target import MarkovTarget

V, WIDTH, LEAST = 13, 3, 0.05


def texts(seed: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(V, size=int(rng.integers(1, 12))).tolist() for _ in range(count)]


def harvest(target: MarkovTarget, windows: Sequence[Sequence[int]], **settings: Any) -> Harvest:
    plan = HarvestPlan(width=WIDTH, **{"min_score": LEAST, **settings})
    read = tuple(tuple(window) for window in windows)
    facts = Facts(V, WIDTH, str(hash(frozenset(read))), "float32", "", None, (), 0, {})
    arrays = [np.array(window, dtype=np.int32) for window in windows]
    return Harvest(target, plan, facts, sorted(arrays, key=lambda w: (len(w), w.tolist())))


def nothing(_: int) -> None:
    """Shows nothing."""


def made(found: Harvest, path: Path, show: Callable[[int], None] = nothing) -> PreparedTable:
    work = WorkDirectory(path)
    work.prepare(found.identity)
    return found.run(work, show)


def by_hand(
    target: MarkovTarget, windows: Sequence[Sequence[int]]
) -> dict[tuple[int, int], dict[int, float]]:
    """The mean of what the target says after each pair and each token (before = V)."""
    said: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for window in windows:
        for i, token in enumerate(window):
            probs = target.logits(window[: i + 1]).softmax(-1).numpy().astype(np.float64)
            kept = np.zeros(V)
            best = np.argsort(-probs)[: 2 * WIDTH]
            kept[best] = probs[best]
            said[V, token].append(kept)
            if i:
                said[window[i - 1], token].append(kept)
    found = {}
    for pair, rows in said.items():
        mean = np.mean(rows, axis=0)
        leading = [t for t in np.argsort(-mean).tolist()[:WIDTH] if mean[t] >= LEAST]
        found[pair] = {t: float(mean[t]) for t in leading}
    return found


@pytest.mark.parametrize("entries", [1 << 23, 10])
def test_rows_are_means_over_the_occurrences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    monkeypatch.setattr(run, "_SHARD_TOKENS", 40)
    monkeypatch.setattr(shards, "_ENTRIES", entries)  # one run of tokens, or many
    target, windows = MarkovTarget(V, sharpness=1.0), texts(1, 60)
    shown: list[int] = []
    table = made(harvest(target, windows), tmp_path / "work", shown.append)
    assert sum(shown) == sum(map(len, windows))
    assert len(list((tmp_path / "work").glob("*.safetensors"))) > 3
    expected = by_hand(target, windows)
    pairs, singles = table.find([b for b, _ in expected], [t for _, t in expected])
    stored = 0
    for i, ((before, _), row) in enumerate(expected.items()):
        where = singles[i] if before == V else pairs[i]
        if where == UNKNOWN:
            # Its best successors are those of the token alone: it would add nothing.
            assert before != V
            continue
        stored += 1
        tokens, logq = table.successors(np.array([where]), WIDTH)
        count = len(row)
        assert tokens[0].tolist() == [*row] + [-1] * (WIDTH - count)
        np.testing.assert_allclose(np.exp(logq[0, :count]), list(row.values()), rtol=0.016)
    assert stored == len(table.keys) > 40


def test_order_of_texts_and_size_of_shards_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, windows = MarkovTarget(V), texts(2, 50)
    whole = to_bytes(made(harvest(target, windows), tmp_path / "whole"))
    monkeypatch.setattr(run, "_SHARD_TOKENS", 25)
    assert to_bytes(made(harvest(target, windows[::-1]), tmp_path / "cut")) == whole
    other = made(harvest(target, windows[1:]), tmp_path / "other")
    assert to_bytes(other) != whole


class Failing(MarkovTarget):
    """A target that fails after some prefills."""

    left = 10**9

    def prefill(
        self, slots: Any, prompts: Any, needs: Needs, hidden: Any = ()
    ) -> list[TargetOutput]:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().prefill(slots, prompts, needs, hidden)


def test_an_interrupted_harvest_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SHARD_TOKENS", 25)
    windows = texts(3, 50)
    whole = to_bytes(made(harvest(MarkovTarget(V), windows), tmp_path / "whole"))
    target = Failing(V)
    found = harvest(target, windows)
    for calls in (3, 4):
        target.left = calls
        with pytest.raises(KeyboardInterrupt):
            made(found, tmp_path / "work")
        assert not target.cached, "all slots are given back"
    target.left = 10**9
    assert to_bytes(made(found, tmp_path / "work")) == whole
    # Nothing is read again: further tables come from the work directory.
    target.left = 0
    assert to_bytes(made(found, tmp_path / "work")) == whole


def test_the_work_of_another_harvest_is_refused(tmp_path: Path) -> None:
    target, windows = MarkovTarget(V), texts(4, 9)
    made(harvest(target, windows), tmp_path / "work")
    made(harvest(target, windows, max_megabytes=1.0), tmp_path / "work")
    with pytest.raises(DraftwoodError, match="is not of this harvest, but of another model, text"):
        made(harvest(target, windows[1:]), tmp_path / "work")
    found = harvest(target, windows)
    # The texts are the same, and a limit of tokens leaves out others of their documents.
    with pytest.raises(DraftwoodError, match="is not of this harvest"):
        made(replace(found, windows=found.windows[1:]), tmp_path / "work")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(DraftwoodError, match="is not of this harvest"):
        made(harvest(target, windows), tmp_path / "other")


def test_an_empty_directory_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    target, windows = MarkovTarget(V), texts(4, 9)
    found, new = (made(harvest(target, windows), tmp_path / name) for name in ("work", "new"))
    assert found.keys.tolist() == new.keys.tolist()


def test_one_process_at_a_time_works_in_a_directory(tmp_path: Path) -> None:
    work = WorkDirectory(tmp_path)
    with (
        work.alone(),
        pytest.raises(DraftwoodError, match="another process works in"),
        WorkDirectory(tmp_path).alone(),
    ):
        pass
    with work.alone():
        pass


def test_the_most_useful_rows_stay(tmp_path: Path) -> None:
    target, windows = MarkovTarget(V, sharpness=1.0), texts(5, 80)
    work = tmp_path / "work"
    full = made(harvest(target, windows), work)
    bound = (full.keys.nbytes + full.lengths.nbytes + full.tokens.nbytes + full.codes.nbytes) // 2
    half = made(harvest(target, windows, max_megabytes=bound / 1e6), work)
    size = half.keys.nbytes + half.lengths.nbytes + half.tokens.nbytes + half.codes.nbytes
    assert bound * 0.8 < size <= bound
    assert set(half.keys.tolist()) < set(full.keys.tolist())
    # A token alone occurs more often than any of its pairs.
    assert (half.keys >= V * V).sum() == (full.keys >= V * V).sum() == V
    with pytest.raises(DraftwoodError, match="no row fits into a table of 1e-06 MB"):
        made(harvest(target, windows, max_megabytes=1e-6), work)


def test_a_model_that_knows_nothing_makes_no_table(tmp_path: Path) -> None:
    target = MarkovTarget(V, sharpness=0.0)
    with pytest.raises(DraftwoodError, match=r"no token a probability of 0.9 or more"):
        made(harvest(target, texts(5, 80), min_score=0.9), tmp_path / "work")

"""The canned drafter: ranked, sampled, excluded, tempered; and how it wants to be asked."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.canned import CannedDistributions, CannedDrafter, CannedSpec
from draftwood.lab.lossless.tape import EnumerationError, Tape, TapeNoise, explore
from draftwood.lab.lossless.tiny import Prefix, Row, Scene
from draftwood.protocols import Candidates, Expand
from draftwood.tree import ROOT, Draw, TreeBuilder, tree_of

ROW = np.array([0.2, 0.5, 0.3])


class OneRow(Scene):
    """Every drafter says the same everywhere, but for a deeper node."""

    def q(self, source: str, prefix: Prefix, temperature: float) -> Row:
        row = ROW if len(prefix) < 3 else np.array([0.0, 0.0, 1.0])
        hot: Row = row ** (1 / temperature)
        return hot / float(hot.sum())


def made(dtype: torch.dtype = torch.float64) -> CannedDrafter:
    return CannedDrafter(OneRow(0), "draft", (4,), dtype)


def ask(drafter: CannedDrafter, own: TapeNoise, k: int, **query: Any) -> Candidates:
    builder = TreeBuilder(4)
    builder.add_chain([1, 1], "draft")
    drafter.play([own])
    (found,) = drafter.expand([0], [Expand("draft", builder, [ROOT, 2], k, **query)])
    return found


def test_ranked_children() -> None:
    found = ask(made(), TapeNoise(Tape()), 3)
    assert found.tokens.tolist() == [[1, 2, 0], [2, -1, -1]]
    assert np.allclose(found.logq[0], np.log(ROW[[1, 2, 0]]))
    assert found.logq[1].tolist() == [0.0, -np.inf, -np.inf]
    assert found.q_rows is None
    found = ask(made(), TapeNoise(Tape()), 2, exclude=[frozenset({1}), frozenset()])
    assert found.tokens.tolist() == [[2, 0], [2, -1]]
    assert np.allclose(found.logq[0], np.log([0.6, 0.4]))


def sampled(draw: Draw, k: int, **query: Any) -> dict[tuple[int, ...], float]:
    """The root's children in drawing order, with their probabilities."""
    drafter = made()

    def run(starts: Any, tapes: Any) -> list[tuple[int, ...]]:
        found = []
        for tape in tapes:
            noise = TapeNoise(tape)
            answer = ask(drafter, noise, k, draw=draw, noise=noise, **query)
            assert answer.tokens[1, 0] == 2
            found.append(tuple(answer.tokens[0].tolist()))
        return found

    (outcomes,) = explore(run, [None])
    return dict(outcomes)


def test_drawn_without_replacement() -> None:
    assert sampled(Draw.WITHOUT_REPLACEMENT, 2) == pytest.approx(
        {
            (0, 1): 0.2 * 5 / 8,
            (0, 2): 0.2 * 3 / 8,
            (1, 0): 0.5 * 2 / 5,
            (1, 2): 0.5 * 3 / 5,
            (2, 0): 0.3 * 2 / 7,
            (2, 1): 0.3 * 5 / 7,
        }
    )
    exclude = [frozenset({1}), frozenset[int]()]
    assert sampled(Draw.WITHOUT_REPLACEMENT, 3, exclude=exclude) == pytest.approx(
        {(0, 2, -1): 0.4, (2, 0, -1): 0.6}
    )


def test_drawn_with_replacement_at_a_temperature() -> None:
    found = sampled(Draw.IID, 2, temperature=0.5)
    squares = ROW**2 / (ROW**2).sum()
    assert found == pytest.approx(
        {(a, b): squares[a] * squares[b] for a in range(3) for b in range(3)}
    )


def test_proposals_are_what_was_drawn_from() -> None:
    drafter = made()
    noise = TapeNoise(Tape())
    exclude = [frozenset({0}), frozenset[int]()]
    query = {"draw": Draw.WITHOUT_REPLACEMENT, "temperature": 0.5, "exclude": exclude}
    found = ask(drafter, noise, 2, noise=noise, **query)
    assert found.q_rows is not None
    rows = drafter.proposals(0, found.q_rows.tolist())
    assert rows.dtype == torch.float64
    assert torch.allclose(rows[0], torch.tensor([0.0, 25 / 34, 9 / 34], dtype=torch.float64))
    assert rows[1].tolist() == [0.0, 0.0, 1.0]
    first = found.tokens[0].tolist()
    assert np.allclose(found.logq[0], rows[0].log()[first])
    again = TapeNoise(Tape())
    assert ask(drafter, again, 2, noise=again, **query).q_rows == pytest.approx(found.q_rows)
    assert made(torch.float32)._dtype == torch.float32


def test_only_the_steps_own_numbers_will_do() -> None:
    noise, other = TapeNoise(Tape()), TapeNoise(Tape())
    for wrong in (None, other):
        with pytest.raises(EnumerationError, match="other numbers than the step's"):
            ask(made(), noise, 1, draw=Draw.IID, noise=wrong)
    with pytest.raises(EnumerationError, match="temperature 0"):
        ask(made(), noise, 1, draw=Draw.IID, noise=noise, temperature=0.0)
    ask(made(), noise, 1, draw=Draw.IID, noise=noise)
    ask(made(), noise, 1)
    with pytest.raises(EnumerationError, match="two queries"):
        ask(made(), noise, 1, draw=Draw.IID, noise=noise)


def test_it_copies_as_the_scene_says_and_has_no_real_target() -> None:
    assert made().continuations([0, 1]) == [Scene(0).copies("draft", (4,))] * 2
    host: Any = SimpleNamespace(info="a target")
    with pytest.raises(DraftwoodError, match="no real target"):
        CannedSpec().build(host)


def test_distributions_of_a_tree() -> None:
    scene = Scene(2)
    tree = tree_of([4, 1, 0], [-1, 0, 1])
    p = CannedDistributions(scene.p, tree, (4,), torch.float64, greedy=False)
    assert p.probabilities([2, 0]).tolist() == [
        scene.p((4, 1, 0)).tolist(),
        scene.p((4,)).tolist(),
    ]
    tape = Tape()
    p.draw(1, TapeNoise(tape))
    assert len(tape.forks) == np.count_nonzero(scene.p((4, 1))) - 1
    rows = p.rows()
    assert rows.argmax.tolist() == [
        int(scene.p(path).argmax()) for path in ((4,), (4, 1), (4, 1, 0))
    ]
    assert np.allclose(rows.top_probs.sum(axis=1), 1)
    assert torch.allclose(rows.logits.exp(), p.probabilities([0, 1, 2]).float())


def test_greedy_distributions_ask_for_no_chance() -> None:
    scene = Scene(2, temperature=0.0)
    tree = tree_of([4, 1], [-1, 0])
    p = CannedDistributions(scene.p, tree, (4,), torch.float64, greedy=True)
    tape = Tape()
    assert p.draw(1, TapeNoise(tape)) == scene.p((4, 1)).argmax()
    assert not tape.forks

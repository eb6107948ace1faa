"""Drafts drawn with the target's own numbers name the target's own tokens."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from draftwood.drafters._rollout.coupling import couple
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.policies.auto.policy import Auto
from draftwood.protocols import Candidates, Expand, TargetInfo, Verification
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import ROOT, Draw, TreeBuilder
from draftwood.verifiers.traversal import Traversal

V = 50


def info(vocab_size: int = V) -> TargetInfo:
    return TargetInfo(vocab_size, 99, 1, 1, torch.device("cpu"), torch.float32)


def outputs(ids: list[int] | None = None) -> VocabularyMap:
    return VocabularyMap(np.arange(V) if ids is None else np.array(ids), info())


def logits(seed: int, rows: int = 1, size: int = V) -> torch.Tensor:
    return 2.0 * torch.randn((rows, size), generator=torch.Generator().manual_seed(seed))


def variates(noise: RequestNoise, depth: int, size: int) -> NDArray[np.float64]:
    found: NDArray[np.float64] = noise.exponentials([depth], size, torch.device("cpu"))[0].numpy()
    return found


def ask(
    noise: RequestNoise | None,
    rows: torch.Tensor,
    depths: tuple[int, ...] = (0,),
    k: int = 4,
    exclude: tuple[frozenset[int], ...] = (),
    temperature: float = 1.0,
    of: VocabularyMap | None = None,
) -> Candidates:
    tree = TreeBuilder(0)
    tree.add_chain([1] * max(depths), "chain")
    query = Expand(
        "draft", tree, depths, k, Draw.COUPLED, exclude, temperature=temperature, noise=noise
    )
    (found,) = couple([(query, rows.clone())], of or outputs())
    return found


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_if_the_models_agree_the_first_token_is_the_targets(temperature: float) -> None:
    for seed in range(40):
        noise, rows = RequestNoise(seed, 10), logits(seed, 3)
        found = ask(noise, rows, (2, 0, 5), temperature=temperature)
        p = torch.softmax(rows / temperature, dim=-1)
        chosen = [noise.choose(depth, row) for depth, row in zip((2, 0, 5), p, strict=True)]
        assert found.tokens[:, 0].tolist() == chosen
        assert found.q_rows is None, "how it was drawn has no say in accepting it"


def test_if_they_differ_the_agreement_reaches_its_lower_bound() -> None:
    """The agreement is at least (1 - d) / (1 + d), and the next tokens are the next likeliest."""
    p, q = torch.softmax(logits(1), -1)[0], torch.softmax(logits(1) + 0.7 * logits(2), -1)[0]
    distance = float((p - q).abs().sum()) / 2
    hits = np.zeros(4)
    for seed in range(1500):
        noise = RequestNoise(seed, 3)
        hits += ask(noise, q.log()[None]).tokens[0] == noise.choose(0, p)
    assert 0.2 < distance < 0.6
    assert hits[0] / 1500 > (1 - distance) / (1 + distance) - 0.03
    assert hits[0] > hits[1] > hits[2] > hits[3] > 0
    ranked = int((-q).argsort()[0]), float(p[q.argmax()])
    assert hits[0] / 1500 > 1.2 * ranked[1], "much more often than the likeliest token is drawn"


def test_the_score_is_the_share_in_the_sum_of_keys() -> None:
    noise, rows = RequestNoise(5, 7), logits(4, 2)
    found = ask(noise, rows, (1, 3), k=V)
    for row, depth in enumerate((1, 3)):
        keys = torch.softmax(rows[row], -1).double().numpy() / variates(noise, depth, V)
        order = np.argsort(-keys)
        assert found.tokens[row].tolist() == order.tolist()
        assert np.exp(found.logq[row]) == pytest.approx(keys[order] / keys.sum(), rel=1e-5)


def test_queries_are_answered_together_as_alone() -> None:
    asked = []
    for seed, depths in enumerate([(1, 3), (2,), (0, 0, 4)]):
        tree = TreeBuilder(0)
        tree.add_chain([1] * max(depths), "chain")
        noise = RequestNoise(seed, 5)
        query = Expand("draft", tree, depths, 3, Draw.COUPLED, noise=noise)
        asked.append((query, logits(seed, len(depths))))
    found = couple([(query, rows.clone()) for query, rows in asked], outputs())
    for (query, rows), own in zip(asked, found, strict=True):
        (alone,) = couple([(query, rows.clone())], outputs())
        assert own.tokens.tolist() == alone.tokens.tolist()
        assert own.logq.tolist() == alone.logq.tolist()


def test_zero_probability_tokens_are_not_proposed() -> None:
    noise, rows = RequestNoise(5, 7), logits(4)
    best = ask(noise, rows).tokens[0].tolist()
    left = ask(noise, rows, exclude=(frozenset(best[:2]),))
    assert left.tokens[0, :2].tolist() == best[2:], "the others keep their variates"
    rows[0, 4:] = -torch.inf
    few = ask(noise, rows, k=6)
    assert sorted(few.tokens[0, :4].tolist()) == [0, 1, 2, 3]
    assert few.tokens[0, 4:].tolist() == [-1, -1]
    assert np.isneginf(few.logq[0, 4:]).all()
    rows[0, 0] = torch.nan
    nothing = ask(noise, rows)
    assert nothing.tokens[0].tolist() == [-1] * 4
    assert np.isneginf(nothing.logq).all()


@pytest.mark.parametrize("size", [V - 20, V + 6])
def test_another_vocabulary_size_uses_the_targets_variates(size: int) -> None:
    ids = [i if i < V else -1 for i in range(size)]
    noise, rows = RequestNoise(2, 4), logits(6, size=size)
    p = torch.full((V,), 0.0)
    shared = min(size, V)
    p[:shared] = torch.softmax(rows[0, :shared], -1)
    found = ask(noise, rows, of=outputs(ids), k=3)
    assert found.tokens[0, 0] == noise.choose(0, p)


def test_a_head_with_another_token_order_uses_the_targets_variates() -> None:
    ids = np.random.default_rng(0).permutation(V)[:30].tolist()
    noise, rows = RequestNoise(2, 4), logits(6, size=30)
    p = torch.zeros(V)
    p[ids] = torch.softmax(rows[0], -1)
    found = ask(noise, rows, of=outputs(ids))
    assert found.tokens[0, 0] == noise.choose(0, p)
    assert set(found.tokens[0].tolist()) <= set(ids)


def test_more_variates_begin_with_fewer_variates() -> None:
    noise = RequestNoise(9, 1)
    longest = variates(noise, 3, 1000)
    for size in (1, 7, 999):
        assert variates(noise, 3, size).tolist() == longest[:size].tolist()
    by_its_own_position = variates(RequestNoise(9, 0), 4, 5)
    assert by_its_own_position.tolist() == longest[:5].tolist()


def test_no_policy_may_draw_both_coupled_and_sampled_nodes() -> None:
    class Both(Auto):
        @property
        def draws(self) -> frozenset[Draw]:
            return frozenset({Draw.COUPLED, Draw.IID})

    with pytest.raises(DraftwoodError, match="no verifier is lossless for both"):
        Method("both", Both(), {}, Traversal())


def test_trees_with_coupled_and_sampled_nodes_are_refused() -> None:
    tree = TreeBuilder(0)
    tree.add(ROOT, 1, "draft", draw=Draw.COUPLED)
    tree.add(ROOT, 2, "draft", draw=Draw.WITHOUT_REPLACEMENT)
    anything: object = None
    case = Verification(tree.build(), anything, anything, anything)  # type: ignore[arg-type]
    with pytest.raises(DraftwoodError, match="no rule is lossless for both"):
        Traversal().verify([case])

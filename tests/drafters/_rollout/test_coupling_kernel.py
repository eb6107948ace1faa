"""The kernel finds the largest keys that tensors of the vocabulary's size give."""

import itertools

import numpy as np
import pytest
import torch

from draftwood.drafters._rollout import coupling
from draftwood.drafters._rollout.coupling_kernel import kernel_for
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.kernels.compiled import _command
from draftwood.protocols import Candidates, Expand, TargetInfo
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import Draw, TreeBuilder

pytestmark = pytest.mark.skipif(_command() is None, reason="no C++ compiler")

SIZES = (1, 7, 64, 97, 1000, 5003)
DEPTHS = (2, 0, 2, 5)


def query_of(seed: int, k: int, temperature: float) -> Expand:
    tree = TreeBuilder(0)
    tree.add_chain([1] * max(DEPTHS), "chain")
    noise = RequestNoise(seed, 10)
    return Expand("draft", tree, DEPTHS, k, Draw.COUPLED, temperature=temperature, noise=noise)


def both(
    query: Expand, logits: torch.Tensor, vocabulary: VocabularyMap, patch: pytest.MonkeyPatch
) -> tuple[Candidates, Candidates]:
    """The answer with the kernel and the plain one."""
    assert kernel_for(query, logits)
    (found,) = coupling.couple([(query, logits.clone())], vocabulary)
    with patch.context() as plain:
        plain.setattr(coupling, "kernel_for", lambda *_: False)
        (expected,) = coupling.couple([(query, logits.clone())], vocabulary)
    return found, expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_candidates_are_those_of_tensors(
    size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(size)
    info = TargetInfo(size + 30, 99, 1, 1, torch.device("cpu"), torch.float32)
    tokens = np.random.default_rng(size).permutation(size + 30)[:size]
    tokens[1::9] = -1  # these outputs are no tokens
    vocabulary = VocabularyMap(tokens, info)
    for seed, (k, temperature) in enumerate(itertools.product((1, 4, 9), (0.3, 1.0, 1.7))):
        logits = 3 * torch.randn((len(DEPTHS), size), generator=generator)
        logits[:, 3::5] = -torch.inf
        query = query_of(seed, k, temperature)
        found, expected = both(query, logits.to(dtype), vocabulary, monkeypatch)
        assert found.tokens.tolist() == expected.tokens.tolist()
        assert np.array_equal(np.isfinite(found.logq), found.tokens >= 0)
        real = found.tokens >= 0
        np.testing.assert_allclose(found.logq[real], expected.logq[real], rtol=1e-5, atol=2e-5)
        assert found.q_rows is None


def test_rows_that_are_no_distribution_have_no_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    info = TargetInfo(100, 99, 1, 1, torch.device("cpu"), torch.float32)
    vocabulary = VocabularyMap(np.arange(100), info)
    logits = torch.randn((4, 100), generator=torch.Generator().manual_seed(0))
    logits[0, 70], logits[1], logits[2, 99] = torch.nan, -torch.inf, torch.inf
    found, expected = both(query_of(1, 3, 1.0), logits, vocabulary, monkeypatch)
    assert found.tokens[:3].tolist() == expected.tokens[:3].tolist() == [[-1] * 3] * 3
    assert found.tokens[3].tolist() == expected.tokens[3].tolist()


def test_other_numbers_and_exclusions_are_left_to_tensors() -> None:
    query, logits = query_of(1, 3, 1.0), torch.zeros(4, 9)
    assert kernel_for(query, logits)
    assert not kernel_for(query, logits.to("meta"))

    class Others:
        """Numbers of somebody else."""

    for changed in ({"noise": Others()}, {"exclude": (frozenset([1]), *3 * [frozenset[int]()])}):
        given = {**vars(query), **changed}
        assert not kernel_for(Expand(**given), logits)


def test_variates_are_logs_of_the_exponentials() -> None:
    noise = RequestNoise(3, 7)
    expected = -noise.exponentials([2], 50, torch.device("cpu"))[0].log()
    tokens = np.array([49, 0, -1, 7])
    found = noise.perturbations(2, tokens)
    assert found.dtype == np.float32
    assert found[[0, 1, 3]].tolist() == pytest.approx(expected[[49, 0, 7]].tolist(), rel=1e-6)
    assert found[2] == -np.inf
    assert noise.perturbations(2, np.array([-1])).tolist() == [-np.inf]


def test_variates_are_kept_for_the_next_steps() -> None:
    noise, tokens = RequestNoise(3, 7), np.arange(9)
    found = [noise.perturbations(depth, tokens) for depth in range(4)]
    noise.position += 2
    assert noise.perturbations(1, tokens) is found[3]
    assert (
        noise.perturbations(2, tokens).tolist()
        == RequestNoise(3, 12).perturbations(-1, tokens).tolist()
    )
    [kept] = noise._perturbed.values()
    assert len(kept.variates) == 3, "earlier positions are forgotten"
    backwards = tokens[::-1]
    other = noise.perturbations(0, backwards)
    assert other.tolist() == found[2][::-1].tolist()
    # Those of another vocabulary do not replace them.
    assert noise.perturbations(0, tokens) is found[2]
    assert noise.perturbations(0, backwards) is other

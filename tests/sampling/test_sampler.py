"""p is what ``generate`` would have sampled from, node by node, and draws follow it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import LlamaForCausalLM, LogitsProcessor, LogitsProcessorList
from transformers.generation.logits_process import (
    NoRepeatNGramLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from draftwood.errors import DraftwoodError
from draftwood.protocols import TargetOutput
from draftwood.sampling.distributions import TreeDistributions
from draftwood.sampling.history import History
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.processors import PresenceFrequencyPenalty
from draftwood.sampling.sampler import Sampler, SamplingParams
from draftwood.tree import tree_of
from tests.factories.tiny_llama import VOCAB, tiny_llama

PROMPT = [5, 9, 5, 60, 9, 2]
ROOT_ONLY = tree_of([0], [-1])
NOISE = RequestNoise(0)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return tiny_llama()


def rows_of(logits: torch.Tensor) -> TargetOutput:
    """Rows of a target that needs nothing but logits ``[n, V]``."""
    n = logits.shape[0]
    return TargetOutput(
        logits=logits,
        argmax=logits.argmax(-1).numpy(),
        top_tokens=np.zeros((n, 0), dtype=np.int64),
        top_probs=np.zeros((n, 0), dtype=np.float32),
    )


def single(logits: list[float] | torch.Tensor, params: SamplingParams) -> TreeDistributions:
    """p of one row without a path."""
    return TreeDistributions(
        rows_of(torch.as_tensor(logits).reshape(1, -1)), ROOT_ONLY, Sampler(params, 1), History([0])
    )


# --- against transformers -------------------------------------------------------------------------

SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 1.0}, {}),
    ({"temperature": 0.7}, {"temperature": 0.7}),
    ({"temperature": 1.0, "top_k": 7}, {"top_k": 7}),
    ({"temperature": 1.0, "top_p": 0.6}, {"top_p": 0.6}),
    ({"temperature": 1.0, "min_p": 0.2}, {"min_p": 0.2}),
    ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4, "do_sample": False}),
    (
        {"logit_bias": {3: 4.0, 9: -2.5}},
        {"sequence_bias": [[[3], 4.0], [[9], -2.5]], "do_sample": False},
    ),
    ({"banned_tokens": (5, 9)}, {"suppress_tokens": [5, 9], "do_sample": False}),
    (
        {
            "temperature": 1.3,
            "top_k": 20,
            "top_p": 0.8,
            "min_p": 0.05,
            "repetition_penalty": 1.2,
            "logit_bias": {1: 1.5},
            "banned_tokens": (7,),
            "presence_penalty": 0.4,
            "frequency_penalty": 0.3,
        },
        {
            "temperature": 1.3,
            "top_k": 20,
            "top_p": 0.8,
            "min_p": 0.05,
            "repetition_penalty": 1.2,
            "sequence_bias": [[[1], 1.5]],
            "suppress_tokens": [7],
            "logits_processor": LogitsProcessorList(
                [PresenceFrequencyPenalty(presence=0.4, frequency=0.3, prompt_length=len(PROMPT))]
            ),
        },
    ),
]


def generated(
    model: LlamaForCausalLM, arguments: dict[str, Any]
) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """New tokens, raw logits ``[n, V]`` and processed scores ``[n, V]`` of plain ``generate``."""
    torch.manual_seed(1)
    untyped: Any = model  # the annotations of ``generate`` do not accept transformers' own models
    out = untyped.generate(
        torch.tensor([PROMPT]),
        **{"do_sample": True, "top_k": 0, **arguments},
        max_new_tokens=8,
        eos_token_id=None,
        pad_token_id=0,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    tokens = [int(t) for t in out.sequences[0, len(PROMPT) :]]
    return tokens, torch.cat(list(out.logits)), torch.cat(list(out.scores))


@pytest.mark.parametrize(("ours", "theirs"), SETTINGS, ids=",".join)
def test_scores_at_nodes_equal_those_of_generate(
    model: LlamaForCausalLM, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    tokens, logits, scores = generated(model, theirs)
    assert len(tokens) == 8
    # The new tokens as one drafted path below the prompt's last token: node i is followed by i + 1.
    chain = tree_of([PROMPT[-1], *tokens[:-1]], range(-1, len(tokens) - 1))
    params = SamplingParams(**ours)
    p = TreeDistributions(
        rows_of(logits), chain, Sampler(params, len(PROMPT)), History(PROMPT, capacity=16)
    )
    for node, token in enumerate(tokens):
        if params.temperature:
            assert torch.equal(p.probabilities([node])[0], torch.softmax(scores[node], -1))
        else:
            assert p.draw(node, NOISE) == token
            assert p.probabilities([node])[0].tolist() == [float(t == token) for t in range(VOCAB)]


def test_given_processors_are_applied_unchanged(model: LlamaForCausalLM) -> None:
    tokens, logits, scores = generated(
        model, {"no_repeat_ngram_size": 1, "temperature": 0.5, "top_k": 9}
    )
    processors = LogitsProcessorList(
        [NoRepeatNGramLogitsProcessor(1), TemperatureLogitsWarper(0.5), TopKLogitsWarper(9)]
    )
    sampler = Sampler.from_processors(processors, temperature=0.5)
    chain = tree_of([PROMPT[-1], *tokens[:-1]], range(-1, len(tokens) - 1))
    p = TreeDistributions(rows_of(logits), chain, sampler, History(PROMPT))
    for node in reversed(range(len(tokens))):
        assert torch.equal(p.probabilities([node])[0], torch.softmax(scores[node], -1))
    greedy = Sampler.from_processors(processors[:1], temperature=0.0)
    p = TreeDistributions(rows_of(logits), chain, greedy, History(PROMPT))
    assert p.draw(2, NOISE) not in {*PROMPT, *tokens[:2]}


@pytest.mark.parametrize(("ours", "_"), SETTINGS, ids=",".join)
def test_own_processors_do_not_change_the_logits(ours: dict[str, Any], _: object) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(5))
    before = logits.clone()
    sampler = Sampler(SamplingParams(**ours), 2)
    TreeDistributions(rows_of(logits), ROOT_ONLY, sampler, History(PROMPT)).draw(0, NOISE)
    assert torch.equal(logits, before)


def test_given_processors_cannot_change_the_logits() -> None:
    class InPlace(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores.zero_()

    logits = torch.tensor([[1.0, 3.0, 2.0]])
    sampler = Sampler.from_processors([InPlace()], temperature=1.0)
    p = TreeDistributions(rows_of(logits), ROOT_ONLY, sampler, History([0]))
    assert p.probabilities([0])[0].tolist() == pytest.approx([1 / 3] * 3)
    assert logits.tolist() == [[1.0, 3.0, 2.0]]


def test_without_processors_a_given_sampler_is_plain() -> None:
    assert Sampler.from_processors([], temperature=0.0).plain


def test_processors_with_other_arguments_are_refused() -> None:
    class Hungry(LogitsProcessor):
        def __call__(
            self, input_ids: torch.Tensor, scores: torch.Tensor, beams: int
        ) -> torch.Tensor:
            return scores

    with pytest.raises(DraftwoodError, match="Hungry needs more than token ids"):
        Sampler.from_processors([Hungry()], temperature=0.0)


@pytest.mark.parametrize(
    ("setting", "plain"),
    [
        ({}, True),
        ({"top_k": 3, "top_p": 0.5, "min_p": 0.1}, True),
        ({"temperature": 1.0}, False),
        ({"banned_tokens": (1,)}, False),
        ({"logit_bias": {1: 0.5}}, False),
        ({"frequency_penalty": 0.5}, False),
    ],
    ids=str,
)
def test_a_plain_sampler_takes_the_raw_argmax(setting: dict[str, Any], plain: bool) -> None:
    assert Sampler(SamplingParams(**setting), 0).plain is plain


def test_a_prefill_has_more_argmaxes_than_logits() -> None:
    rows = TargetOutput(
        torch.zeros(1, 3),
        np.array([0, 1, 2]),
        np.zeros((3, 0), np.int64),
        np.zeros((3, 0), np.float32),
    )
    p = TreeDistributions(rows, ROOT_ONLY, Sampler(SamplingParams(), 3), History([0, 0, 0]))
    assert p.draw(0, NOISE) == 2
    assert p.probabilities([0])[0].tolist() == [0.0, 0.0, 1.0]


# --- paths ----------------------------------------------------------------------------------------


def test_penalties_depend_on_the_path_only() -> None:
    #        0 (root, token 0)
    #       / \
    #   1 (1)   2 (2)
    #   3 (1)   4 (3)
    tree = tree_of([0, 1, 2, 1, 3], [-1, 0, 0, 1, 2])
    params = SamplingParams(temperature=1.0, presence_penalty=0.5, frequency_penalty=2.0)
    # Tokens 4, 4 are the prompt's; 4 and the root 0 were generated.
    p = TreeDistributions(
        rows_of(torch.zeros(5, 5)), tree, Sampler(params, 2), History([4, 4, 4, 0])
    )
    counts = {0: [1, 0, 0, 0, 1], 3: [1, 2, 0, 0, 1], 4: [1, 0, 1, 1, 1], 1: [1, 1, 0, 0, 1]}
    for node, count in counts.items():
        penalised = torch.tensor([-2.0 * c - 0.5 * (c > 0) for c in count])
        assert torch.allclose(p.probabilities([node])[0], torch.softmax(penalised, 0))


def test_rows_scored_together_equal_rows_scored_alone() -> None:
    torch.manual_seed(4)
    tree = tree_of([7, 1, 2, 3], [-1, 0, 1, 2])
    logits = torch.randn(4, 40) * 5
    sampler = Sampler(SamplingParams(temperature=0.7, top_k=9, top_p=0.8, min_p=0.02), 3)
    assert not sampler.reads_history
    p = TreeDistributions(rows_of(logits), tree, sampler, History([8, 9, 7]))
    alone = torch.cat([p.probabilities([node]) for node in range(4)])
    assert torch.allclose(p.probabilities([3, 1]), alone[[3, 1]], rtol=1e-6)
    assert torch.allclose(p.probabilities([3, 2, 1, 0]), alone.flip(0), rtol=1e-6)
    assert (alone > 0).sum(1).max() <= 9


def test_scores_do_not_depend_on_the_order_of_calls() -> None:
    torch.manual_seed(3)
    tree = tree_of([7, 1, 2, 3, 4, 5], [-1, 0, 1, 2, 0, 4])
    logits = torch.randn(6, 16)
    sampler = Sampler(SamplingParams(temperature=0.9, repetition_penalty=1.5), 3)

    def fresh() -> TreeDistributions:
        return TreeDistributions(rows_of(logits), tree, sampler, History([8, 9, 7]))

    alone = [fresh().probabilities([node])[0] for node in range(6)]
    together = fresh()
    for node in (3, 5, 0, 4, 1, 2, 3):
        assert torch.equal(together.probabilities([node])[0], alone[node])


def test_processors_run_once_for_a_node_and_never_for_others() -> None:
    class Counter(LogitsProcessor):
        keeps_state = False
        calls = 0

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return scores

    tree = tree_of([7, 1, 2], [-1, 0, 1])
    for temperature in (1.0, 0.0):
        counter = Counter()
        sampler = Sampler.from_processors([counter], temperature=temperature)
        p = TreeDistributions(rows_of(torch.eye(3)), tree, sampler, History([7]))
        assert counter.calls == 0
        p.draw(1, NOISE)
        assert counter.calls == 1
        p.probabilities([1, 2])
        assert counter.calls == 3


def test_a_history_that_grew_is_refused() -> None:
    history = History([1, 2])
    params = SamplingParams(temperature=1.0)
    p = TreeDistributions(rows_of(torch.zeros(1, 4)), ROOT_ONLY, Sampler(params, 2), history)
    history.append(3)
    with pytest.raises(DraftwoodError, match="history grew"):
        p.draw(0, NOISE)


# --- draws ----------------------------------------------------------------------------------------


def chi_square(p: TreeDistributions, expected: list[float], draws: int = 4000) -> float:
    """p-value of the hypothesis that draws with a request's noise follow ``expected``."""
    counts = np.zeros(len(expected))
    for position in range(draws):
        counts[p.draw(0, RequestNoise(11, position))] += 1
    possible = np.array(expected) > 0
    assert counts[~possible].sum() == 0
    return float(stats.chisquare(counts[possible], draws * np.array(expected)[possible]).pvalue)


def test_draws_follow_p() -> None:
    logits = [0.3, -1.0, 1.7, 0.0, -0.4]
    at = {t: [math.exp(x / t) for x in logits] for t in (1.0, 0.6)}
    for t, weights in at.items():
        expected = [w / sum(weights) for w in weights]
        p = single(logits, SamplingParams(temperature=t))
        assert p.probabilities([0])[0].tolist() == pytest.approx(expected, abs=1e-6)
        assert chi_square(p, expected) > 1e-3
    cut = [w if w >= sorted(at[1.0])[-3] else 0.0 for w in at[1.0]]
    p = single(logits, SamplingParams(temperature=1.0, top_k=3))
    assert chi_square(p, [w / sum(cut) for w in cut]) > 1e-3
    # Negative control: the test can tell temperature 1 from 0.6.
    wrong = [w / sum(at[0.6]) for w in at[0.6]]
    assert chi_square(single(logits, SamplingParams(temperature=1.0)), wrong) < 1e-6


def test_rounding_errors_rarely_change_a_draw() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4096, generator=generator)
    off = logits + 3e-4 * torch.randn(4096, generator=generator)
    exact, rounded = (single(row, SamplingParams(temperature=1.0)) for row in (logits, off))
    sums = [p.probabilities([0])[0].double().cumsum(0) for p in (exact, rounded)]
    noises = [RequestNoise(5, position) for position in range(1500)]
    changed = sum(exact.draw(0, noise) != rounded.draw(0, noise) for noise in noises)
    uniforms = np.random.default_rng(5).random(1500).tolist()
    inverse = sum(len({int(torch.searchsorted(c, u)) for c in sums}) > 1 for u in uniforms)
    assert changed <= 3
    assert inverse > 10, "the obvious way is much more sensitive"


@pytest.mark.parametrize("position", range(5))
def test_impossible_tokens_are_never_drawn(position: int) -> None:
    noise = RequestNoise(1, position)
    never = -math.inf
    edges = single([never, 1.0, never, 1.0, never], SamplingParams(temperature=1.0))
    assert edges.draw(0, noise) in {1, 3}
    only = single([never, never, -50.0, never], SamplingParams(temperature=1.0))
    assert only.draw(0, noise) == 2
    many = torch.full((50_000,), never)
    many[::7] = torch.randn(len(many[::7]), generator=torch.Generator().manual_seed(0))
    assert single(many, SamplingParams(temperature=1.0)).draw(0, noise) % 7 == 0


def test_half_precision_logits_become_float32() -> None:
    logits = torch.tensor([[0.1, 0.7, -0.2]], dtype=torch.bfloat16)
    p = single(logits, SamplingParams(temperature=0.5)).probabilities([0])[0]
    assert p.dtype == torch.float32
    assert torch.equal(p, torch.softmax(logits[0].float() / 0.5, 0))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [-math.inf, math.nan])
def test_a_row_without_possible_tokens_is_an_error_where_it_is_drawn_from(
    temperature: float, bad: float
) -> None:
    params = SamplingParams(temperature=temperature, banned_tokens=(0, 1))
    p = single([0.0, 1.0, bad], params)
    said = "logits are not numbers" if math.isnan(bad) else "no token can follow"
    with pytest.raises(DraftwoodError, match=f"{said} at position 1"):
        p.draw(0, NOISE)
    assert p.probabilities([0]).isnan().all()

"""llama.cpp itself, where it is installed, gives the tokens and the logits of the model."""

from typing import Any

import numpy as np
import pytest
import torch

from draftwood.engine.request import Request
from draftwood.lab.bench.llamacpp.gguf import Precision, file_of
from draftwood.lab.bench.peers.llamacpp import LlamaCpp
from draftwood.lab.bench.peers.llamacpp_lookup import LlamaCppLookup
from draftwood.models import Loaded
from draftwood.sampling.sampler import SamplingParams
from tests.lab.bench.llamacpp.test_gguf import LLAMA3, llama
from tests.lab.bench.peers.answers import (
    PROMPTS,
    answers,
    check_sampling,
    late_end,
    plain,
    stock,
    texts,
)

llama_cpp: Any = pytest.importorskip("llama_cpp")


@pytest.fixture(scope="module")
def model() -> Loaded:
    return stock()


def test_defaults_are_those_of_the_installed_library() -> None:
    lookup = llama_cpp.llama_speculative.LlamaPromptLookupDecoding()
    assert (LlamaCppLookup().tokens, LlamaCppLookup().ngram) == (
        lookup.num_pred_tokens,
        lookup.max_ngram_size,
    )


def test_greedy_tokens_are_those_of_transformers(model: Loaded) -> None:
    assert texts(answers(LlamaCpp().enter(model))) == plain(model)
    asked: list[dict[str, Any]] = [{}, {"tokens": 3}, {"tokens": 1, "ngram": 1}, {"ngram": 5}]
    for settings in asked:
        assert texts(answers(LlamaCppLookup(**settings).enter(model))) == plain(model)


@pytest.mark.parametrize("weights", ["q8_0", "q4_1"])
def test_quantised_weights_decode(weights: Precision) -> None:
    small = stock(intermediate_size=64)
    for peer in (LlamaCpp(weights), LlamaCppLookup(weights=weights)):
        found = answers(peer.enter(small))
        assert all(len(answer.completion.tokens) > 1 for answer in found)


def test_a_long_prompt_is_read_in_several_batches() -> None:
    # The library reads 512 tokens at a time; a tiny context of 256 is the model's, not llama.cpp's.
    long = stock(context=2048)
    prompts = [[(7 * i) % 250 for i in range(700)]]
    for peer in (LlamaCpp(), LlamaCppLookup()):
        assert texts(answers(peer.enter(long), prompts)) == plain(long, prompts)


def test_lookup_needs_fewer_forwards_and_tells_what_it_drafted(model: Loaded) -> None:
    one_by_one, looked_up = (answers(p().enter(model)) for p in (LlamaCpp, LlamaCppLookup))
    assert [a.completion.tally.steps for a in one_by_one] == [23, 23]
    for found in looked_up:
        tally = found.completion.tally
        assert tally.committed == 23
        assert tally.accepted < tally.drafted <= 10 * tally.steps
        # Each forward brings what is accepted and a bonus, which the last one may cut off.
        assert tally.committed - tally.accepted in {tally.steps, tally.steps - 1}
    # Rounding, which differs between processors, decides whether an answer repeats itself.
    assert any(a.completion.tally.accepted and a.completion.tally.steps < 23 for a in looked_up)


def test_an_end_inside_what_was_accepted_ends_the_answer(model: Loaded) -> None:
    eos = late_end(model)
    for peer in (LlamaCpp(), LlamaCppLookup()):
        assert texts(answers(peer.enter(model), eos=eos)) == plain(model, eos=eos)


@pytest.mark.parametrize(
    ("changed", "dtype", "apart"),
    [
        ({}, torch.float32, 1e-4),
        ({"tie_word_embeddings": True}, torch.float32, 1e-4),
        ({"head_dim": 6, "layers": 3}, torch.float32, 1e-4),
        ({"rope_parameters": LLAMA3}, torch.float32, 1e-4),
        ({"layers": 3}, torch.bfloat16, 0.5),
        ({"layers": 3}, torch.float16, 0.05),
    ],
)
def test_logits_are_those_of_the_model(
    changed: dict[str, Any], dtype: torch.dtype, apart: float
) -> None:
    model = llama(dtype, **changed)
    ids = [3, 17, 0, 5, 5, 19, 8, 2, 11, 3]
    with torch.inference_mode():
        wanted = model(torch.tensor([ids])).logits[0].float().numpy()
    kind = llama_cpp.GGML_TYPE_F32
    opened = llama_cpp.Llama(
        str(file_of(model)), n_ctx=256, n_threads=1, type_k=kind, type_v=kind,
        logits_all=True, verbose=False,
    )  # fmt: skip
    opened.eval(ids)
    found = np.array(opened.scores[: len(ids)])
    opened.close()
    assert float(np.abs(wanted).max()) > 2
    assert float(np.abs(found - wanted).max()) < apart


@pytest.mark.parametrize("peer", [LlamaCpp, LlamaCppLookup])
def test_sampling_follows_the_seed_of_each_request(model: Loaded, peer: Any) -> None:
    check_sampling(peer().enter(model), model)


@pytest.mark.parametrize("peer", [LlamaCpp, LlamaCppLookup])
def test_the_first_token_is_drawn_from_the_models_distribution(model: Loaded, peer: Any) -> None:
    with torch.inference_mode():
        scores = model.model(torch.tensor([PROMPTS[0]])).logits[0, -1]
    top = scores.topk(3)
    likely = float((top.values / 2.0).softmax(-1)[0])
    assert 0.2 < likely < 0.8
    decode, count = peer().enter(model).begin(1), 400
    params = (SamplingParams(temperature=2.0, top_k=3, seed=seed) for seed in range(count))
    found = decode([Request(PROMPTS[0], max_new_tokens=1, sampling=one) for one in params])
    tokens = [a.completion.tokens[0] for a in found]
    assert set(tokens) == set(top.indices.tolist())
    share = tokens.count(int(top.indices[0])) / count
    assert abs(share - likely) < 4 * (likely * (1 - likely) / count) ** 0.5

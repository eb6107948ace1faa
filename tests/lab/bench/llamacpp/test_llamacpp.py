"""llama.cpp itself, where it is installed, gives the tokens and the logits of the model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.engine.request import Request
from draftwood.lab.bench.llamacpp.gguf import file_of
from draftwood.lab.bench.measure import Answer, Contender
from draftwood.lab.bench.peers.hf import HuggingFace
from draftwood.lab.bench.peers.llamacpp import LlamaCpp
from draftwood.lab.bench.peers.llamacpp_lookup import LlamaCppLookup
from draftwood.models import Loaded
from draftwood.sampling.sampler import SamplingParams
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer
from tests.lab.bench.llamacpp.test_gguf import LLAMA3, llama

llama_cpp: Any = pytest.importorskip("llama_cpp")

EOS = frozenset({256})
PROMPTS = ([10, 20, 30, 10, 20, 30, 10], [7, 8])


@pytest.fixture(scope="module")
def stock() -> Loaded:
    return Loaded("tiny", tiny_llama(), tiny_tokenizer(), EOS)


def answers(
    contender: Contender, prompts: Sequence[list[int]] = PROMPTS, eos: frozenset[int] = EOS
) -> list[Answer]:
    return contender.begin(len(prompts))([Request(p, max_new_tokens=40, eos=eos) for p in prompts])


def spoken(found: Sequence[Answer]) -> list[tuple[tuple[int, ...], str]]:
    return [(a.completion.tokens, a.completion.reason) for a in found]


def test_defaults_are_those_of_the_installed_library() -> None:
    lookup = llama_cpp.llama_speculative.LlamaPromptLookupDecoding()
    assert (LlamaCppLookup().tokens, LlamaCppLookup().ngram) == (
        lookup.num_pred_tokens,
        lookup.max_ngram_size,
    )


def test_greedy_tokens_are_those_of_transformers(stock: Loaded) -> None:
    wanted = spoken(answers(HuggingFace().enter(stock)))
    assert spoken(answers(LlamaCpp().enter(stock))) == wanted
    for settings in ({}, {"tokens": 3}, {"tokens": 1, "ngram": 1}, {"ngram": 5}):
        assert spoken(answers(LlamaCppLookup(**settings).enter(stock))) == wanted


def test_a_long_prompt_is_read_in_several_batches(stock: Loaded) -> None:
    # The library reads 512 tokens at a time; a tiny context of 256 is the model's, not llama.cpp's.
    long = Loaded("tiny", tiny_llama(context=2048), tiny_tokenizer(), EOS)
    prompts = [[(7 * i) % 250 for i in range(700)]]
    wanted = spoken(answers(HuggingFace().enter(long), prompts))
    assert spoken(answers(LlamaCpp().enter(long), prompts)) == wanted
    assert spoken(answers(LlamaCppLookup().enter(long), prompts)) == wanted


def test_lookup_needs_fewer_forwards_and_tells_what_it_drafted(stock: Loaded) -> None:
    plain, looked_up = (answers(p().enter(stock)) for p in (LlamaCpp, LlamaCppLookup))
    assert [a.completion.tally.steps for a in plain] == [39, 39]
    for found in looked_up:
        tally = found.completion.tally
        assert tally.committed == 39
        assert 0 < tally.accepted < tally.drafted <= 10 * tally.steps
        # Each forward brings what is accepted and a bonus, which the last one may cut off.
        assert tally.committed - tally.accepted in {tally.steps, tally.steps - 1}
        assert tally.steps < 39


def test_an_end_inside_what_was_accepted_ends_the_answer(stock: Loaded) -> None:
    plain = answers(HuggingFace().enter(stock))[0].completion.tokens
    eos = frozenset({max(set(plain), key=plain.index), 256})
    wanted = spoken(answers(HuggingFace().enter(stock), eos=eos))
    assert wanted[0][1] == "eos"
    for peer in (LlamaCpp(), LlamaCppLookup()):
        assert spoken(answers(peer.enter(stock), eos=eos)) == wanted


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
def test_sampling_follows_the_seed_of_each_request(stock: Loaded, peer: Any) -> None:
    decode = peer().enter(stock).begin(2)

    def drawn(*seeds: int, top_k: int = 0) -> list[tuple[int, ...]]:
        params = [SamplingParams(temperature=1.0, top_k=top_k, seed=seed) for seed in seeds]
        found = decode([Request(PROMPTS[0], max_new_tokens=12, sampling=p) for p in params])
        return [answer.completion.tokens for answer in found]

    assert drawn(1, 2) == [*drawn(1), *drawn(2)]
    assert drawn(1) != drawn(2)
    greedy = HuggingFace().enter(stock).begin(1)([Request(PROMPTS[0], max_new_tokens=12)])
    assert drawn(3, top_k=1) == [greedy[0].completion.tokens]


@pytest.mark.parametrize("peer", [LlamaCpp, LlamaCppLookup])
def test_the_first_token_is_drawn_from_the_models_distribution(stock: Loaded, peer: Any) -> None:
    with torch.inference_mode():
        scores = stock.model(torch.tensor([PROMPTS[0]])).logits[0, -1]
    top = scores.topk(3)
    likely = float((top.values / 2.0).softmax(-1)[0])
    assert 0.2 < likely < 0.8
    decode, count = peer().enter(stock).begin(1), 400
    params = (SamplingParams(temperature=2.0, top_k=3, seed=seed) for seed in range(count))
    found = decode([Request(PROMPTS[0], max_new_tokens=1, sampling=one) for one in params])
    tokens = [a.completion.tokens[0] for a in found]
    assert set(tokens) == set(top.indices.tolist())
    share = tokens.count(int(top.indices[0])) / count
    assert abs(share - likely) < 4 * (likely * (1 - likely) / count) ** 0.5

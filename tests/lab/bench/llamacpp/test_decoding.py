"""What is asked of llama-cpp-python, and what is made of its answers."""

import sys
from typing import Any

import pytest
import torch

from draftwood.engine.request import Completion, Request
from draftwood.engine.stats import Tally
from draftwood.errors import DraftwoodError, need
from draftwood.lab.bench import peers
from draftwood.lab.bench.contenders import choose
from draftwood.lab.bench.llamacpp.decoding import LlamaCppDecoder, _drafted
from draftwood.lab.bench.peers import llamacpp, llamacpp_lookup
from draftwood.models import Loaded
from draftwood.sampling.sampler import SamplingParams
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer
from tests.lab.bench.llamacpp import fake_library
from tests.lab.bench.llamacpp.fake_library import Llama, Script
from tests.lab.bench.llamacpp.test_gguf import llama


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", fake_library.library())


@pytest.fixture(scope="module")
def stock() -> Loaded:
    return Loaded("tiny", tiny_llama(), tiny_tokenizer(), frozenset({256}))


def answer(contender: LlamaCppDecoder, request: Request) -> Completion:
    (found,) = contender.begin(1)([request])
    assert found.steps == ()
    assert 0 < found.completion.ttft <= found.completion.seconds
    return found.completion


def counts(tally: Tally) -> tuple[int, int, int, int]:
    return tally.steps, tally.committed, tally.drafted, tally.accepted


@pytest.mark.parametrize(
    ("drafts", "length", "ends", "tokens", "counted"),
    [
        (None, 7, (), (4, 0, 1, 2, 3, 4, 0), (6, 6, 0, 0)),
        (None, 7, (1, 9), (4, 0, 1), (2, 2, 0, 0)),
        (None, 3, (1,), (4, 0, 1), (2, 2, 0, 0)),  # an end that is the last token allowed
        (None, 1, (), (4,), (0, 0, 0, 0)),  # the prefill's token
        ([[0]], 1, (), (4,), (0, 0, 0, 0)),
        # Of [0, 1, 9] two are right; nothing is drafted; all of the last are, but three fit.
        ([[0, 1, 9], [], [4, 0, 1, 2]], 8, (), (4, 0, 1, 2, 3, 4, 0, 1), (3, 7, 7, 5)),
        ([[0, 1, 2, 3], [9]], 8, (1,), (4, 0, 1), (1, 2, 4, 2)),  # an end inside a draft
    ],
)
def test_answers_end_and_their_drafts_are_counted(
    stock: Loaded,
    drafts: list[list[int]] | None,
    length: int,
    ends: tuple[int, ...],
    tokens: tuple[int, ...],
    counted: tuple[int, int, int, int],
) -> None:
    script = None if drafts is None else Script(*drafts)
    contender = LlamaCppDecoder(stock, script, ahead=4)
    request = Request([3], max_new_tokens=length, eos=frozenset(ends))
    done = answer(contender, request)
    assert (done.tokens, done.reason) == (tokens, "eos" if ends else "length")
    assert done.prompt_tokens == 1
    assert counts(done.tally) == counted
    if script is not None:  # the lookup sees all tokens so far
        assert len(script.asked) == counted[0]
        assert all(asked == [3, *tokens][: len(asked)] for asked in script.asked)
    # The next answer's counts start anew.
    assert answer(contender, Request([3], max_new_tokens=2)).tally.committed == 1


def test_a_bonus_that_no_draft_reached_is_not_accepted() -> None:
    assert counts(_drafted([1, 2, 3, 4], [[2], [5]], [1, 3])) == (2, 3, 2, 1)


def test_every_request_starts_empty_and_with_its_own_seed_and_sampling(stock: Loaded) -> None:
    contender = LlamaCppDecoder(stock)
    drawn = SamplingParams(temperature=0.5, top_k=3, top_p=0.9, seed=2**32 + 4)
    contender.decode([Request([1, 2], 2), Request([1, 2, 3], 1, drawn)])
    (opened,) = Llama.opened
    off = {"min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0}
    assert opened.calls == [
        "reset",
        ("seed", 0),
        ("generate", 2, {"temp": 0.0, "top_k": 0, "top_p": 1.0, **off}),
        "ended",
        "reset",
        ("seed", 5),
        ("generate", 3, {"temp": 0.5, "top_k": 3, "top_p": 0.9, **off}),
        "ended",
    ]


def test_the_seed_that_means_any_seed_is_never_given(stock: Loaded) -> None:
    params = SamplingParams(temperature=1.0, seed=2**32 - 1)
    answer(LlamaCppDecoder(stock), Request([1], 1, params))
    assert ("seed", 0) in Llama.opened[0].calls


def test_requests_of_a_group_wait_for_those_before(stock: Loaded) -> None:
    answers = LlamaCppDecoder(stock).begin(2)([Request([3], 5), Request([0], 2)])
    first, second = (a.completion for a in answers)
    assert (first.tokens, second.tokens) == ((4, 0, 1, 2, 3), (1, 2))
    assert 0 < first.ttft <= first.seconds < second.ttft <= second.seconds


def test_the_context_is_what_requests_need_and_only_grows(stock: Loaded) -> None:
    contender = LlamaCppDecoder(stock, Script(), ahead=10)
    contender.decode([Request([1] * 100, 146), Request([1], 1)])
    contender.decode([Request([1] * 50, 20)])
    contender.decode([Request([1] * 100, 147)])
    contender.decode([Request([1], 1)])
    assert [one.settings["n_ctx"] for one in Llama.opened] == [256, 512]
    assert ["close" in one.calls for one in Llama.opened] == [True, False]


def test_the_file_is_opened_as_torch_runs_the_model(
    stock: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    answer(LlamaCppDecoder(stock), Request([1], 1))
    settings = Llama.opened[0].settings
    assert settings.pop("model_path").endswith(".gguf")
    threads = {"n_ctx": 256, "n_threads": 3, "n_threads_batch": 3}
    device = {"n_gpu_layers": 0, "main_gpu": 0, "offload_kqv": False, "op_offload": False}
    cache = {"type_k": 0, "type_v": 0, "logits_all": False, "draft_model": None}
    assert settings == {**threads, **device, **cache, "verbose": False}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_cache_of_a_half_precision_model_is_the_librarys_default(dtype: torch.dtype) -> None:
    loaded = Loaded("tiny", llama(dtype), tiny_tokenizer(), frozenset())
    answer(LlamaCppDecoder(loaded, Script(), ahead=1), Request([1], 1))
    settings = Llama.opened[0].settings
    assert settings["type_k"] == settings["type_v"] == int(dtype != torch.float32)
    assert settings["logits_all"] is True  # a drafting context has room for all logits


class Elsewhere:
    """A model on a GPU, as far as is asked before its weights are."""

    device = torch.device("cuda:1")
    dtype = torch.float32


def test_a_library_without_the_models_device_is_refused() -> None:
    away: Any = Loaded("tiny", Elsewhere(), tiny_tokenizer(), frozenset())  # type: ignore[arg-type]
    with pytest.raises(DraftwoodError, match="target is on cuda:1 and the installed llama-cpp"):
        LlamaCppDecoder(away)


def test_a_model_on_a_gpu_is_opened_on_that_gpu(
    stock: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", fake_library.library(gpu=True))
    monkeypatch.setattr(type(stock.model), "device", torch.device("cuda:1"))
    answer(LlamaCppDecoder(stock), Request([1], 1))
    settings = Llama.opened[0].settings
    assert (settings["n_gpu_layers"], settings["main_gpu"]) == (-1, 1)
    assert settings["offload_kqv"] is settings["op_offload"] is True


def test_what_the_library_cannot_open_is_refused_before_the_run(
    stock: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses(Llama):
        def __init__(self, **settings: Any) -> None:
            raise ValueError("Failed to load model from file: x\nmore")

    monkeypatch.setitem(sys.modules, "llama_cpp", fake_library.library(llama=Refuses))
    with pytest.raises(DraftwoodError, match=r"leave its peers out: Failed to load .*: x$"):
        llamacpp.LlamaCpp().enter(stock)


def test_entering_tries_a_few_tokens(stock: Loaded) -> None:
    llamacpp.LlamaCpp().enter(stock)
    assert Llama.opened[0].calls[-2][:2] == ("generate", 3)


def test_lookup_has_the_librarys_names_and_defaults(
    stock: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, int]] = []

    def prompt_lookup(**settings: int) -> Script:
        made.append(settings)
        return Script()

    module: Any = fake_library.library()
    module.LlamaPromptLookupDecoding = prompt_lookup
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", module)
    llamacpp_lookup.LlamaCppLookup().enter(stock)
    contender = llamacpp_lookup.LlamaCppLookup(tokens=300, ngram=4).enter(stock)
    assert made == [
        {"max_ngram_size": 2, "num_pred_tokens": 10},
        {"max_ngram_size": 4, "num_pred_tokens": 300},
    ]
    assert Llama.opened[-1].settings["n_ctx"] == 512  # the drafts fit beside the answer
    assert answer(contender, Request([3], 2)).tokens == (4, 0)


@pytest.mark.parametrize("missing", ["llama_cpp", "gguf"])
@pytest.mark.parametrize("peer", ["llamacpp", "llamacpp-lookup"])
def test_a_missing_library_is_named_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, missing: str, peer: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    message = (
        rf"this needs {missing} \(import of {missing} halted.*pip install 'draftwood\[llamacpp\]'"
    )
    for chosen in (lambda: choose([peer]), peers.load(peer)):
        with pytest.raises(DraftwoodError, match=message):
            chosen()


def test_a_library_that_cannot_be_loaded_is_missing_too(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_binding.py").write_text("raise RuntimeError('Failed to load libx.so')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DraftwoodError, match=r"Failed to load libx\.so.*draftwood\[llamacpp\]"):
        need("broken_binding", "llamacpp")

"""The number format of draft weights: what decides it, and that no token depends on it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.engine import draft_dtype
from draftwood.engine.draft_dtype import load_draft, load_in, multiplies_bfloat16
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion, Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.models import DTYPES, Loaded
from draftwood.protocols import DraftDtype
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from tests.factories.eagle3_heads import tiny_config
from tests.factories.given_costs import drafting_pays
from tests.factories.tiny_llama import VOCAB, save_tiny, tiny_llama, tiny_tokenizer

CPU = torch.device("cpu")
SMALL, LARGE = 8, 3000


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with bfloat16 instructions, without a cache to speak of."""
    _machine(monkeypatch, {"avx512_bf16": True})
    monkeypatch.setattr(draft_dtype, "_CACHED", 0)


@pytest.fixture
def target() -> Runner:
    return attach(tiny_llama(), self_test=False)


def _machine(monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, Any]) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", "bf16"])
def test_instructions_are_found_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _machine(monkeypatch, {name: True, "avx2": True})
    assert multiplies_bfloat16(CPU)
    assert not multiplies_bfloat16(torch.device("cuda"))
    _machine(monkeypatch, {name: False, "avx2": True})
    assert not multiplies_bfloat16(CPU)


def test_a_torch_that_cannot_tell_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not multiplies_bfloat16(CPU)


@pytest.mark.parametrize(
    ("wanted", "own", "width", "chosen"),
    [
        ("auto", torch.float32, LARGE, torch.bfloat16),
        ("auto", torch.float32, SMALL, torch.float32),
        ("auto", torch.float16, LARGE, torch.float16),
        ("target", torch.float32, LARGE, torch.float32),
        ("float16", torch.float32, SMALL, torch.float16),
        ("float32", torch.bfloat16, LARGE, torch.float32),
    ],
)
def test_the_format_follows_from_machine_target_and_size(
    monkeypatch: pytest.MonkeyPatch,
    wanted: DraftDtype,
    own: torch.dtype,
    width: int,
    chosen: torch.dtype,
) -> None:
    _machine(monkeypatch, {"avx512_bf16": True})
    found = load_in(wanted, own, CPU, lambda dtype: nn.Linear(width, width, dtype=dtype))
    assert found.weight.dtype == chosen


def test_without_instructions_the_format_is_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, {})
    found = load_in("auto", torch.float32, CPU, lambda dtype: nn.Linear(LARGE, LARGE, dtype=dtype))
    assert found.weight.dtype == torch.float32


def test_kernels_read_bfloat16_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, {})

    def chosen(device: torch.device = CPU, *, few_rows: bool = True) -> torch.dtype:
        found = load_in(
            "auto",
            torch.float32,
            device,
            lambda dtype: nn.Linear(LARGE, LARGE, dtype=dtype),
            few_rows=few_rows,
        )
        return found.weight.dtype

    monkeypatch.setattr(draft_dtype, "kernels", object)
    assert chosen() == torch.bfloat16
    assert chosen(few_rows=False) == torch.float32
    assert chosen(torch.device("cuda")) == torch.float32
    monkeypatch.setattr(draft_dtype, "kernels", lambda: None)
    assert chosen() == torch.float32


@pytest.mark.usefixtures("native")
def test_a_draft_model_and_a_head_are_cast(target: Runner, tmp_path: Path) -> None:
    name, host = str(save_tiny(tmp_path / "draft")), ModelHost(target, tiny_tokenizer())
    assert host.model(name)[0].info.dtype == torch.bfloat16
    assert host.model(name, "target")[0].info.dtype == torch.float32
    assert load_draft(name, "auto", torch.float32, CPU).model.dtype == torch.bfloat16
    config = tiny_config(vocab_size=VOCAB, hidden_size=32, target_hidden_size=32, taps=(1, 0))
    save_head(Eagle3Head(config), tmp_path / "head")
    assert host.head(str(tmp_path / "head"))[1].info.dtype == torch.bfloat16
    assert host.head(str(tmp_path / "head"), "float32")[1].info.dtype == torch.float32


def test_of_all_networks_an_eagle_head_alone_is_read_by_kernels(
    monkeypatch: pytest.MonkeyPatch, target: Runner, tmp_path: Path
) -> None:
    _machine(monkeypatch, {})
    monkeypatch.setattr(draft_dtype, "_CACHED", 0)
    monkeypatch.setattr(draft_dtype, "kernels", object)
    config = tiny_config(vocab_size=VOCAB, hidden_size=32, target_hidden_size=32, taps=(1, 0))
    name = str(save_head(Eagle3Head(config), tmp_path / "head"))
    host = ModelHost(target, tiny_tokenizer())
    assert host.head(name)[1].info.dtype == torch.bfloat16
    other: nn.Linear = host.loaded(lambda _name, _target, dtype: nn.Linear(2, 2, dtype=dtype), name)
    assert other.weight.dtype == torch.float32


@pytest.mark.usefixtures("native")
def test_a_head_with_the_targets_output_keeps_its_format(target: Runner, tmp_path: Path) -> None:
    config = tiny_config(
        vocab_size=VOCAB,
        draft_vocab_size=VOCAB,
        hidden_size=32,
        target_hidden_size=32,
        taps=(1, 0),
        own_output=False,
    )
    weights = save_head(Eagle3Head(config), tmp_path) / "model.safetensors"
    kept = {name: each for name, each in load_file(weights).items() if name not in ("d2t", "t2d")}
    save_file(kept, weights)
    host = ModelHost(target)
    assert host.head(str(tmp_path))[1].info.dtype == torch.float32
    with pytest.raises(DraftwoodError, match="shares the target's lm_head, so its weights"):
        host.head(str(tmp_path), "bfloat16")


def test_costs_are_kept_by_format(target: Runner, tmp_path: Path) -> None:
    name, host = str(save_tiny(tmp_path)), ModelHost(target)
    assert host.identity(name) != host.identity(name, "float32")
    assert host.identity(tiny_llama()) == ""


def test_an_object_keeps_its_format(target: Runner) -> None:
    host = ModelHost(target)
    with pytest.raises(DraftwoodError, match="dtype is float16, but a loaded LlamaForCausalLM"):
        host.model(tiny_llama(seed=1, layers=1), "float16")
    with pytest.raises(DraftwoodError, match="cast it before, or give its path"):
        host.head(object(), "bfloat16")


@pytest.mark.parametrize("name", ["sd", "dynatree", "auto", "traversal", "specinfer"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_of_any_format_decode(
    name: str,
    temperature: float,
    target: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drafting_pays(monkeypatch)
    loaded: list[torch.dtype] = []

    def noted(*given: Any) -> Loaded:
        found = load_draft(*given)
        loaded.append(found.model.dtype)
        return found

    monkeypatch.setattr("draftwood.engine.host.load_draft", noted)
    draft, other = tiny_llama(), tiny_llama(seed=1)
    with torch.no_grad():  # it agrees with the target for the most part
        for weight, far in zip(draft.parameters(), other.parameters(), strict=True):
            weight.lerp_(far, 0.1)
    draft.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    sampling = SamplingParams(temperature=temperature, seed=5)
    plain = _decoded(target, "ar", sampling).tokens
    for dtype in ("float32", "bfloat16"):
        found = _decoded(target, f"{name}:draft={tmp_path}:draft.dtype={dtype}", sampling)
        assert loaded.pop() == DTYPES[dtype]
        assert not loaded
        assert found.tally.draft_calls > 0
        assert found.tally.accepted > 0
        assert len(found.tokens) == len(plain) == 24
        if temperature == 0 or name not in ("traversal", "specinfer"):
            assert found.tokens == plain


def _decoded(target: Runner, text: str, sampling: SamplingParams) -> Completion:
    [done] = Engine(target, method(text)).generate([Request([3, 1, 4], 24, sampling, eos=())])
    return done.checked()

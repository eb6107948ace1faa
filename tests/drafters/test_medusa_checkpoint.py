"""Checkpoints of Medusa heads, in each published layout, and what is refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from draftwood.drafters.medusa.checkpoint import load_medusa
from draftwood.drafters.medusa.drafter import Medusa
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.methods.shipped import check_drafts
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from tests.factories.tiny_llama import VOCAB, tiny_llama

WIDTH, HEADS, LAYERS = 32, 3, 2
CONFIG = {"medusa_num_heads": 2, "medusa_num_layers": LAYERS, "base_model_name_or_path": "x"}


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(tiny_llama(), self_test=False)


def original(outputs: int | None = VOCAB) -> dict[str, torch.Tensor]:
    """The tensors of FasterDecoding's layout; without outputs, those of its later heads."""
    torch.manual_seed(1)
    found = {}
    for head in range(HEADS):
        for layer in range(LAYERS):
            found[f"{head}.{layer}.linear.weight"] = torch.randn(WIDTH, WIDTH)
            found[f"{head}.{layer}.linear.bias"] = torch.randn(WIDTH)
        if outputs is not None:
            found[f"{head}.{LAYERS}.weight"] = torch.randn(outputs, WIDTH)
    return found


def vllm(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same in vLLM's layout, without biases."""
    found = {}
    for name, tensor in tensors.items():
        head, layer, *rest = name.split(".")
        if rest[0] == "linear" and rest[1] == "weight":
            found[f"blocks.{head}.layers.{layer}.weight"] = tensor
        elif rest[0] == "weight":
            found[f"lm_heads.{head}.weight"] = tensor
    return found


def saved(directory: Path, tensors: dict[str, torch.Tensor], name: str, **config: Any) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | config))
    if name.endswith(".safetensors"):
        save_file(tensors, directory / name)
    else:
        torch.save(tensors, directory / name)
    return str(directory)


def literal(tensors: dict[str, torch.Tensor], states: torch.Tensor) -> torch.Tensor:
    """The heads as torch modules of the published names."""
    found = []
    for head in range(HEADS):
        rows = states
        for layer in range(LAYERS):
            weight = tensors[f"{head}.{layer}.linear.weight"]
            bias = tensors[f"{head}.{layer}.linear.bias"]
            rows = rows + torch.nn.functional.silu(rows @ weight.T + bias)
        found.append(rows @ tensors[f"{head}.{LAYERS}.weight"].T)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize(
    "name", ["medusa_lm_head.safetensors", "medusa_lm_head.pt", "model.safetensors"]
)
@pytest.mark.parametrize("prefix", ["", "medusa_head."])
def test_the_original_layout(target: Runner, tmp_path: Path, name: str, prefix: str) -> None:
    tensors = original()
    stored = {f"{prefix}{key}": tensor for key, tensor in tensors.items()}
    if prefix:
        stored["model.embed_tokens.weight"] = torch.zeros(2, 2)
        stored["lm_head.weight"] = torch.zeros(2, 2)
    heads = load_medusa(saved(tmp_path, stored, name), target, torch.float32)
    states = torch.randn(5, WIDTH)
    torch.testing.assert_close(heads(states), literal(tensors, states), atol=1e-4, rtol=1e-4)
    assert heads.token_ids.tolist() == list(range(VOCAB))


def test_of_a_whole_model_only_the_heads_are_read(
    target: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    @contextmanager
    def opened(path: Path, framework: str) -> Iterator[Any]:
        with safe_open(path, framework=framework) as file:

            def tensor(name: str) -> torch.Tensor:
                read.append(name)
                found: torch.Tensor = file.get_tensor(name)
                return found

            yield SimpleNamespace(keys=file.keys, get_tensor=tensor)

    tensors = original()
    heads = {f"medusa_head.{key}": tensor for key, tensor in tensors.items()}
    shards = [{"lm_head.weight": torch.zeros(2, 2)}, {**heads, "model.norm.weight": torch.zeros(2)}]
    for number, shard in enumerate(shards):
        save_file(shard, tmp_path / f"{number}.safetensors")
    places = {name: f"{number}.safetensors" for number, own in enumerate(shards) for name in own}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    monkeypatch.setattr("draftwood.drafters._directory.safe_open", opened)
    found = load_medusa(str(tmp_path), target, torch.float32)
    assert sorted(read) == sorted(heads)
    states = torch.randn(5, WIDTH)
    torch.testing.assert_close(found(states), literal(tensors, states), atol=1e-4, rtol=1e-4)


def test_vllms_layout(target: Runner, tmp_path: Path) -> None:
    tensors = original(24)
    for name in [name for name in tensors if name.endswith("bias")]:
        tensors[name].zero_()
    stored = vllm(tensors) | {"token_map": torch.arange(24) * 3}
    heads = load_medusa(saved(tmp_path, stored, "model.safetensors"), target, torch.float32)
    states = torch.randn(5, WIDTH)
    torch.testing.assert_close(heads(states), literal(tensors, states), atol=1e-4, rtol=1e-4)
    assert heads.token_ids.tolist() == list(range(0, 72, 3))


def test_one_output_for_all_heads(target: Runner, tmp_path: Path) -> None:
    tensors = original()
    blocks = {name: each for name, each in vllm(tensors).items() if name.startswith("blocks")}
    stored = {f"medusa_heads.{name}": each for name, each in blocks.items()}
    stored["medusa_heads.lm_head.weight"] = tensors["0.2.weight"]
    heads = load_medusa(saved(tmp_path, stored, "model.safetensors"), target, torch.float32)
    for head in range(1, HEADS):
        tensors[f"{head}.2.weight"] = tensors["0.2.weight"]
    for name in [name for name in tensors if name.endswith("bias")]:
        tensors[name].zero_()
    states = torch.randn(5, WIDTH)
    torch.testing.assert_close(heads(states), literal(tensors, states), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("ids", [None, torch.tensor([5, 1, 9])])
def test_heads_without_outputs_use_the_targets(
    target: Runner, tmp_path: Path, ids: torch.Tensor | None
) -> None:
    tensors = original(None)
    stored = tensors if ids is None else tensors | {"token_map": ids}
    heads = load_medusa(saved(tmp_path, stored, "model.safetensors"), target, torch.float32)
    weight = target.lm_head().weight.detach()  # type: ignore[union-attr,operator]
    rows = weight if ids is None else weight[ids]
    expected = literal(
        tensors | {f"{i}.{LAYERS}.weight": rows for i in range(HEADS)}, states := torch.randn(5, 32)
    )
    torch.testing.assert_close(heads(states), expected, atol=1e-4, rtol=1e-4)
    assert len(heads.token_ids) == len(rows)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"0.0.linear.weight": torch.zeros(8, 8)}, r"blocks.0.0.weight is \[8, 8\].*\[32, 32\]"),
        ({"0.5.linear.weight": torch.zeros(WIDTH, WIDTH)}, "lacks blocks.0.2.bias"),
        ({"0.0.gate": torch.zeros(2)}, "has 0.0.gate, which is not of Medusa heads"),
        ({"token_map": torch.zeros(3, dtype=torch.int64)}, r"token_ids is \[3\]"),
        ({"1.2.weight": torch.zeros(VOCAB, WIDTH, dtype=torch.int8)}, "not quantised"),
    ],
)
def test_what_does_not_fit_is_refused(
    target: Runner, tmp_path: Path, change: dict[str, torch.Tensor], complaint: str
) -> None:
    name = saved(tmp_path, original() | change, "model.safetensors")
    with pytest.raises(DraftwoodError, match=complaint):
        load_medusa(name, target, torch.float32)


def test_a_map_beyond_the_vocabulary_is_refused(target: Runner, tmp_path: Path) -> None:
    stored = original(None) | {"token_map": torch.tensor([VOCAB])}
    name = saved(tmp_path, stored, "model.safetensors")
    with pytest.raises(DraftwoodError, match=f"outside the target's vocabulary of {VOCAB}"):
        load_medusa(name, target, torch.float32)


def test_no_weights_and_no_name(target: Runner, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DraftwoodError, match=r"medusa_lm_head\.safetensors"):
        load_medusa(str(tmp_path), target, torch.float32)
    with pytest.raises(DraftwoodError, match=r"no Medusa heads are named: give .*--head"):
        load_medusa("", target, torch.float32)


def test_without_heads_nothing_is_loaded() -> None:
    assert method("medusa").missing == ("head",)
    assert method("medusa:head=x").missing == ()
    with pytest.raises(DraftwoodError, match="medusa has nothing to draft from: give --head"):
        check_drafts("embedded", {"medusa": method("medusa")})


def test_a_head_option_finds_its_drafter_by_the_configuration(tmp_path: Path) -> None:
    heads = saved(tmp_path / "medusa", original(), "model.safetensors")
    assert kind_of("head", heads) == "medusa"
    assert kind_of("head", str(tmp_path)) == "eagle3"
    assert kind_of("head", "embedded-eagle3") == "eagle3"
    for text in ("talon", "goose-eagle3", "auto", "eagle3"):
        assert method(f"{text}:head={heads}").drafters["draft"] == Medusa(heads)
    # A configuration that says nothing leaves the method its own kind of head.
    assert method(f"medusa:head={tmp_path}").drafters["draft"] == Medusa(str(tmp_path))
    assert kind_of("head", str(tmp_path), ["context", "medusa"]) == "medusa"
    explicit = method(f"talon:drafter=medusa:head={tmp_path}")
    assert explicit.drafters["draft"] == Medusa(str(tmp_path))

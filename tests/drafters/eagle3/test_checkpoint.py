"""Checkpoints in both public layouts and every file format; each wrong tensor is named."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from draftwood.drafters import _directory
from draftwood.drafters.eagle3.checkpoint import load_head, save_head
from draftwood.drafters.eagle3.config import write_config
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.errors import DraftwoodError
from tests.factories.eagle3_heads import TARGET, H, V, embedding, tiny_head

Tensors = dict[str, torch.Tensor]
Writer = Callable[[Tensors, Path], None]


def safe(tensors: Tensors, directory: Path) -> None:
    save_file(tensors, directory / "model.safetensors")


def shards(tensors: Tensors, directory: Path) -> None:
    names = sorted(tensors)
    places = {name: f"model-{i % 2 + 1}-of-2.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        save_file({n: tensors[n] for n in names if places[n] == file}, directory / file)
    index = json.dumps({"metadata": {}, "weight_map": places})
    (directory / "model.safetensors.index.json").write_text(index)


def pickled(tensors: Tensors, directory: Path) -> None:
    torch.save(tensors, directory / "pytorch_model.bin")


WRITERS: list[Writer] = [safe, shards, pickled]


def speculators(head: Eagle3Head) -> tuple[dict[str, Any], Tensors]:
    """A head as the speculators library writes it, with copies of the target's weights."""
    fields = write_config(head.config)
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {
            name: fields[name]
            for name in fields
            if name
            not in {
                "architectures",
                "draft_vocab_size",
                "target_hidden_size",
                "norm_before_residual",
                "eagle_config",
            }
        },
        "draft_vocab_size": head.config.draft_vocab_size,
        "norm_before_residual": head.config.norm_before_residual,
        "eagle_aux_hidden_state_layer_ids": list(head.config.taps),
    }
    tensors = {name.replace("midlayer.", "layers.0."): t for name, t in tensors_of(head).items()}
    tensors["verifier_lm_head.weight"] = torch.zeros(2, 2)
    tensors["verifier_norm.weight"] = torch.zeros(2)
    return config, tensors


def tensors_of(head: Eagle3Head) -> Tensors:
    return {name: tensor.clone() for name, tensor in head.state_dict().items()}


def write(directory: Path, config: dict[str, Any], tensors: Tensors, writer: Writer = safe) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    writer(tensors, directory)
    return directory


def broken(
    directory: Path, changes: Mapping[str, torch.Tensor | None], head: Eagle3Head | None = None
) -> Path:
    """A head with tensors replaced, added, or (None) taken out."""
    head = head or tiny_head()
    merged: dict[str, torch.Tensor | None] = {**tensors_of(head), **changes}
    tensors = {name: tensor for name, tensor in merged.items() if tensor is not None}
    return write(directory, write_config(head.config), tensors)


def same(found: Eagle3Head, wanted: Eagle3Head) -> None:
    assert found.config.to_dict() == wanted.config.to_dict()
    state = wanted.state_dict()
    assert found.state_dict().keys() == state.keys()
    for name, tensor in found.state_dict().items():
        assert tensor.dtype == state[name].dtype
        assert torch.equal(tensor, state[name]), name
    ids = torch.tensor([[1, 2, 3, 39]])
    hidden = torch.randn(1, 4, H, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(found(ids, hidden=hidden).logits, wanted(ids, hidden=hidden).logits)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"own_embedding": True},
        {"draft_vocab_size": V, "taps": (1,)},
        {"norm_before_residual": True, "attention_bias": True, "mlp_bias": True},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ],
    ids=str,
)
def test_saving_and_loading_is_the_identity(tmp_path: Path, changes: dict[str, Any]) -> None:
    head = tiny_head(**changes)
    lent = None if head.config.own_embedding else embedding()
    found = load_head(save_head(head, tmp_path / "new" / "head"), TARGET, lent)
    same(found, head)
    assert not found.training
    assert sorted(file.name for file in (tmp_path / "new" / "head").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("own", [False, True])
def test_the_original_layout(tmp_path: Path, writer: Writer, own: bool) -> None:
    head = tiny_head(own_embedding=own)
    tensors = tensors_of(head) | {"midlayer.self_attn.rotary_emb.inv_freq": torch.ones(3)}
    found = load_head(
        write(tmp_path, write_config(head.config), tensors, writer), TARGET, embedding()
    )
    same(found, head)


@pytest.mark.parametrize("writer", WRITERS)
def test_the_speculators_layout(tmp_path: Path, writer: Writer) -> None:
    head = tiny_head(norm_before_residual=True, own_embedding=True)
    same(load_head(write(tmp_path, *speculators(head), writer), TARGET), head)


def test_layouts_mixed_by_conversion(tmp_path: Path) -> None:
    head = tiny_head()
    _, tensors = speculators(head)
    found = load_head(write(tmp_path, write_config(head.config), tensors), TARGET, embedding())
    same(found, head)


def test_safetensors_come_first(tmp_path: Path) -> None:
    head = tiny_head()
    save_head(head, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    same(load_head(str(tmp_path), TARGET, embedding()), head)


def test_dtype_and_device(tmp_path: Path) -> None:
    save_head(tiny_head(), tmp_path)
    head = load_head(tmp_path, replace(TARGET, dtype=torch.bfloat16), embedding())
    assert {parameter.dtype for parameter in head.parameters()} == {torch.bfloat16}
    assert (head.d2t.dtype, head.t2d.dtype) == (torch.int64, torch.bool)
    assert head.rotary_emb.inv_freq.dtype is torch.float32  # positions need the precision
    assert head(torch.tensor([[1]])).logits.dtype is torch.bfloat16
    meta = load_head(tmp_path, replace(TARGET, device=torch.device("meta")))
    assert {tensor.device.type for tensor in meta.state_dict().values()} == {"meta"}
    save_head(head, tmp_path / "narrow")
    assert (
        json.loads((tmp_path / "narrow" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    )


def test_without_an_embedding_one_must_be_set(tmp_path: Path) -> None:
    head = load_head(save_head(tiny_head(), tmp_path), TARGET)
    with pytest.raises(DraftwoodError, match="set_input_embeddings"):
        head(torch.tensor([[1]]))
    head.set_input_embeddings(embedding())
    same(head, tiny_head())


def test_its_own_embedding_is_used(tmp_path: Path) -> None:
    save_head(tiny_head(own_embedding=True), tmp_path)
    same(load_head(tmp_path, TARGET, embedding(seed=1)), tiny_head(own_embedding=True))


# --- the vocabulary -------------------------------------------------------------------------------


def test_a_full_vocabulary_needs_no_maps(tmp_path: Path) -> None:
    head = tiny_head(draft_vocab_size=V)
    found = load_head(broken(tmp_path, {"d2t": None, "t2d": None}, head), TARGET, embedding())
    same(found, head)
    assert found.to_target(torch.arange(V)).tolist() == list(range(V))


def test_d2t_out_of_range(tmp_path: Path) -> None:
    offsets = tiny_head().d2t.clone()
    offsets[23] = 17
    with pytest.raises(DraftwoodError, match=r"d2t maps draft id 23 to 40, outside .* of 40"):
        load_head(broken(tmp_path, {"d2t": offsets}), TARGET)
    offsets[23] = -24
    with pytest.raises(DraftwoodError, match="d2t maps draft id 23 to -1"):
        load_head(broken(tmp_path, {"d2t": offsets}), TARGET)


def test_d2t_that_is_not_one_to_one(tmp_path: Path) -> None:
    offsets = tiny_head().d2t.clone()
    offsets[5] = offsets[4] - 1
    token = int(4 + offsets[4])
    with pytest.raises(DraftwoodError, match=f"two draft ids to token {token};"):
        load_head(broken(tmp_path, {"d2t": offsets}), TARGET)


@pytest.mark.parametrize(
    "changes",
    [
        {"t2d": None},
        {"t2d": torch.zeros(V, dtype=torch.bool)},
        {"t2d": ~tiny_head().t2d},
        {"t2d": torch.ones(64, dtype=torch.bool)},
        {"t2d": torch.zeros(3, dtype=torch.int64)},
        {"d2t": tiny_head().d2t.to(torch.int32)},
    ],
    ids=["none", "all false", "inconsistent", "padded", "of another kind", "narrow d2t"],
)
def test_t2d_is_computed_from_d2t(tmp_path: Path, changes: dict[str, torch.Tensor | None]) -> None:
    same(load_head(broken(tmp_path, changes), TARGET, embedding()), tiny_head())


# --- tensors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(tiny_head(own_embedding=True).state_dict()) - {"t2d"}))
def test_every_shape_is_checked(tmp_path: Path, name: str) -> None:
    head = tiny_head(own_embedding=True)
    wanted = head.state_dict()[name]
    wrong = wanted.new_zeros([size + 1 for size in wanted.shape])
    path = broken(tmp_path, {name: wrong}, head)
    with pytest.raises(DraftwoodError) as error:
        load_head(path, TARGET)
    found = f"{name} is {list(wrong.shape)} in the checkpoint"
    assert str(error.value).startswith(found)
    assert str(error.value).endswith(
        f"call for {list(wanted.shape)}; give a head made for this target"
    )


@pytest.mark.parametrize("name", sorted(set(tiny_head().state_dict()) - {"t2d"}))
def test_every_tensor_is_needed(tmp_path: Path, name: str) -> None:
    path = broken(tmp_path, {name: None})
    with pytest.raises(DraftwoodError, match=f"lacks {name};"):
        load_head(path, TARGET)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"intermediate_size": -1}, ".*negative dimension"),
        ({"num_attention_heads": 0}, "integer modulo by zero"),
        ({"rope_theta": "x"}, "unsupported operand"),
    ],
)
def test_layers_that_cannot_be_made_are_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    head = tiny_head()
    write(tmp_path, write_config(head.config) | changes, tensors_of(head))
    with pytest.raises(DraftwoodError, match=f"^the head's config.json is not valid: {reason}"):
        load_head(tmp_path, TARGET)


def test_features_of_another_width(tmp_path: Path) -> None:
    config = write_config(tiny_head().config)
    del config["target_hidden_size"]
    write(tmp_path, config, tensors_of(tiny_head()))
    said = r"fc\.weight is \[16, 72\].* call for \[16, 96\]: .* width 24, and the target's have 32"
    with pytest.raises(DraftwoodError, match=said):
        load_head(tmp_path, replace(TARGET, hidden_size=32))


def test_unknown_tensors(tmp_path: Path) -> None:
    strange = ("midlayer.self_attn.v_norm.weight", "mask_embedding")
    path = broken(tmp_path, {name: torch.ones(6) for name in strange})
    with pytest.raises(
        DraftwoodError, match=r"mask_embedding, midlayer\.self_attn\.v_norm\.weight; give an"
    ):
        load_head(path, TARGET)


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("fc.weight", torch.int8, "float32"),
        ("d2t", torch.float32, "int64"),
        ("d2t", torch.bool, "int64"),
    ],
)
def test_kinds_of_numbers(tmp_path: Path, name: str, dtype: torch.dtype, expected: str) -> None:
    wrong = torch.zeros(tiny_head().state_dict()[name].shape, dtype=dtype)
    path = broken(tmp_path, {name: wrong})
    with pytest.raises(DraftwoodError, match=f"{name} holds {dtype}.*instead of {expected}"):
        load_head(path, TARGET)


def test_neither_layout_and_both(tmp_path: Path) -> None:
    config = write_config(tiny_head().config)
    write(tmp_path / "a", config, {"blocks.0.mlp.up_proj.weight": torch.ones(1)})
    with pytest.raises(DraftwoodError, match=r"neither midlayer.* nor layers\.0\.\*"):
        load_head(tmp_path / "a", TARGET)
    both = broken(tmp_path / "b", {"layers.0.mlp.up_proj.weight": torch.ones(1)})
    with pytest.raises(DraftwoodError, match=r"has both midlayer.* and layers"):
        load_head(both, TARGET)


def test_other_networks_are_named(tmp_path: Path) -> None:
    config = write_config(tiny_head().config)
    named = {
        "model.layers.0.self_attn.q_proj.weight": torch.ones(1),
        "model.layers.1.self_attn.q_proj.weight": torch.ones(1),
    }
    assistant = {**named, "pre_projection.weight": torch.ones(1)}
    with pytest.raises(DraftwoodError, match="it is a Gemma 4 assistant"):
        load_head(write(tmp_path / "gemma", config, assistant), TARGET)
    with pytest.raises(DraftwoodError, match=r"2 layers .* is a language model, not an EAGLE"):
        load_head(write(tmp_path / "model", config, named), TARGET)
    first = {"fc.weight": torch.ones(H, 2 * H), "layers.0.mlp.up_proj.weight": torch.ones(1)}
    with pytest.raises(DraftwoodError, match=r"\[16, 32\].*EAGLE-1 or EAGLE-2"):
        load_head(write(tmp_path / "first", config, first), TARGET)
    latent = {"midlayer.self_attn.kv_a_proj_with_mqa.weight": torch.ones(1)}
    with pytest.raises(DraftwoodError, match="multi-head latent attention"):
        load_head(broken(tmp_path / "latent", latent), TARGET)


# --- files ----------------------------------------------------------------------------------------


def test_no_config_and_no_json(tmp_path: Path) -> None:
    save_head(tiny_head(), tmp_path)
    for text in ("{", "[1]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(DraftwoodError, match=r"config\.json"):
            load_head(tmp_path, TARGET)
    (tmp_path / "config.json").unlink()
    with pytest.raises(DraftwoodError, match=r"cannot read .*config\.json"):
        load_head(tmp_path, TARGET)


def test_no_weights_and_broken_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DraftwoodError, match="has no weights"):
        load_head(tmp_path, TARGET)
    (tmp_path / "pytorch_model.bin").write_bytes(b"junk")
    with pytest.raises(DraftwoodError, match=r"pytorch_model\.bin as plain tensors"):
        load_head(tmp_path, TARGET)
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(DraftwoodError, match=r"cannot read .*model\.safetensors"):
        load_head(tmp_path, TARGET)


class Payload:
    """Runs code when it is unpickled without care."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("harm"),))


def test_a_pickle_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_head(tiny_head(), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"midlayer.fc.weight": Payload()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DraftwoodError, match="as plain tensors"):
        load_head(tmp_path, TARGET)
    assert not (tmp_path / "harm").exists()
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(DraftwoodError, match="other things than named tensors"):
        load_head(tmp_path, TARGET)


def test_shards_lie_beside_their_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"d2t": "../elsewhere.safetensors"}}))
    with pytest.raises(DraftwoodError, match="not a file beside it"):
        load_head(tmp_path, TARGET)
    index.write_text(json.dumps({"weight_map": {"d2t": "gone.safetensors"}}))
    with pytest.raises(DraftwoodError, match=r"cannot read .*gone\.safetensors"):
        load_head(tmp_path, TARGET)


def test_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_head(tiny_head(), tmp_path)
    asked = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append(name)
        assert "pytorch_model.bin" in allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(_directory, "snapshot_download", download)
    same(load_head("somebody/head", TARGET, embedding()), tiny_head())
    assert asked == ["somebody/head"]


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: Any, **__: Any) -> str:
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr(_directory, "snapshot_download", download)
    with pytest.raises(DraftwoodError, match=r"'somebody/head'.*a network\): no route to host$"):
        load_head("somebody/head", TARGET)


def test_a_directory_that_is_not_there() -> None:
    with pytest.raises(DraftwoodError, match="no such directory here"):
        load_head("not/a/directory", TARGET)

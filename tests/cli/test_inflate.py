"""``draftwood inflate`` from end to end: what it writes, says and refuses."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import PreTrainedTokenizerBase

from draftwood import models
from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.inflate import room, weights
from tests.factories.command_line import output_of, refused, run
from tests.factories.eagle3_heads import tiny_config

# The tiny Llama: 32 wide, 2 layers, 4 heads over 2, head size 8, 48 neurons.
SIZES = {"hidden": 72, "layers": 3, "heads": 9, "kv-heads": 3, "head-dim": 16, "ffn": 64}


def flags(**changes: int | None) -> list[str]:
    sizes = SIZES | {name.replace("_", "-"): size for name, size in changes.items()}
    return [f"--{name}={size}" for name, size in sizes.items() if size is not None]


def tokens(model: str) -> list[int]:
    argv = ("--model", model, "--max-new-tokens=24", "--json", "--method=goose")
    out = output_of("generate", "abc abc abc ", *argv, "--dtype=float32")
    found: list[int] = json.loads(out.splitlines()[-1])["tokens"]
    return found


def test_it_writes_a_model_that_decodes_the_same(checkpoint: str, tmp_path: Path) -> None:
    out_dir = tmp_path / "large"
    out = output_of("inflate", "--model", checkpoint, *flags(), "--dtype=float32", str(out_dir))
    lines = out.splitlines()
    assert lines[0].startswith(
        "the model, checked in float32: 96 of 96 greedy tokens equal, largest"
    )
    loaded = models.load(str(out_dir))
    count = loaded.model.num_parameters()
    assert count == 162_360  # 3 * (27,648 + 13,824 + 144) + 72 + 2 * 260 * 72
    assert (
        lines[1] == f"{out_dir}: {count:,} parameters in float32, 5x the parameters of {checkpoint}"
    )
    source = models.load(checkpoint)
    assert loaded.eos == source.eos
    assert loaded.tokenizer.chat_template == source.tokenizer.chat_template
    assert tokens(str(out_dir)) == tokens(checkpoint)
    assert {path.name for path in tmp_path.iterdir()} == {"large"}, "no leavings"


def test_the_directory_says_what_it_is(checkpoint: str, tmp_path: Path) -> None:
    out_dir = tmp_path / "large"
    out_dir.mkdir()  # an empty one is taken
    run("inflate", "--model", checkpoint, *flags(), "--seed=7", str(out_dir))
    record = json.loads((out_dir / "provenance.json").read_text())
    assert "cost-shaped" in record["what"].lower()
    assert record["source"] == {
        "name": Path(checkpoint).name,
        "revision": None,
        "shape": {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48},
    }
    assert record["shape"] == {name.replace("-", "_"): size for name, size in SIZES.items()}
    assert (record["dtype"], record["device"], record["seed"]) == ("bfloat16", "cpu", 7)
    assert "head" not in record
    assert record["check"]["positions"] == record["check"]["greedy_equal"] == 96
    assert record["check"]["largest"] < 1e-4
    loaded = models.load(str(out_dir))
    assert loaded.model.dtype == torch.bfloat16
    assert record["parameters"] == loaded.model.num_parameters()
    assert len({path.stat().st_mode for path in out_dir.iterdir()}) == 1
    assert {path.suffix for path in out_dir.iterdir()} <= {".json", ".jinja", ".safetensors"}


@pytest.fixture
def head(checkpoint: str, tmp_path: Path) -> str:
    """A head of the tiny Llama that uses its embedding and ``lm_head``."""
    made = Eagle3Head(
        tiny_config(
            vocab_size=260,
            hidden_size=32,
            target_hidden_size=32,
            head_dim=8,
            taps=(0, 1),
            fc_norm=True,
            initializer_range=0.3,
        )
    )
    return str(save_head(made, tmp_path / "small-head", tied=True))


def accepted(model: str, head: str) -> tuple[list[int], dict[str, Any]]:
    """Tokens, and counts of steps and drafts, with a head."""
    argv = ("--model", model, "--head", head, "--max-new-tokens=24", "--json", "--method=eagle3")
    out = json.loads(output_of("generate", "abc abc abc ", *argv, "--dtype=float32"))
    return out["tokens"], {
        key: out[key] for key in ("steps", "mean_acceptance_length", "acceptance_rate")
    }


def test_a_head_is_written_beside_the_model(checkpoint: str, head: str, tmp_path: Path) -> None:
    out_dir = tmp_path / "large"
    argv = ("inflate", "--model", checkpoint, "--head", head, *flags(), "--dtype=float32")
    lines = output_of(*argv, str(out_dir)).splitlines()
    assert lines[1].startswith("the head, checked in float32: 125 of 125 greedy tokens equal")
    assert lines[3].startswith(f"{out_dir / 'head'}: its head, ")
    assert accepted(str(out_dir), str(out_dir / "head")) == accepted(checkpoint, head)
    record = json.loads((out_dir / "provenance.json").read_text())["head"]
    assert (record["name"], record["taps"]) == (Path(head).name, [0, 1])
    assert record["shape"]["ffn"] == 20
    assert record["check"]["positions"] == record["check"]["greedy_equal"] == 125
    files = sorted((out_dir / "head").iterdir())
    assert [path.name for path in files] == ["config.json", "model.safetensors"]
    assert {path.stat().st_mode for path in files} == {(out_dir / "provenance.json").stat().st_mode}
    with safe_open(files[1], "pt") as stored:
        assert stored.get_slice("fc.weight").get_shape() == [72, 144]
        assert not {"lm_head.weight", "embed_tokens.weight"} & set(stored.keys())
    assert {path.name for path in tmp_path.iterdir()} == {"large", "small-head"}


def test_a_head_of_another_model_is_refused(checkpoint: str, tmp_path: Path) -> None:
    argv = ("inflate", "--model", checkpoint, *flags(), str(tmp_path / "large"))
    assert "hidden states of width 576" in refused(*argv, "--head", "smollm2-eagle3")
    assert "no such directory here" in refused(*argv, "--head", str(tmp_path / "none"))
    assert not list(tmp_path.iterdir())


def test_a_head_with_another_function_is_not_written(
    checkpoint: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.lab.inflate.head.norm_scale", lambda small, large: 100.0)
    assert "the inflated head computes something else" in refused(
        "inflate", "--model", checkpoint, "--head", head, *flags(), str(tmp_path / "large")
    )
    assert not (tmp_path / "large").exists()


def test_the_device_is_checked(checkpoint: str, tmp_path: Path) -> None:
    argv = ("inflate", "--model", checkpoint, *flags(), str(tmp_path / "large"))
    assert "device 'nowhere' cannot be used here" in refused(*argv, "--device=nowhere")


def test_the_seed_reproduces_the_weights(checkpoint: str, tmp_path: Path) -> None:
    argv = ("inflate", "--model", checkpoint, *flags())
    for name, extra in (("a", []), ("b", ["--no-check"]), ("c", ["--seed=1"])):
        out = output_of(*argv, *extra, str(tmp_path / name))
        assert ("not checked" in out) == (name == "b")
    one, same, other = ((tmp_path / n / "model.safetensors").read_bytes() for n in "abc")
    assert one == same
    assert one != other
    assert json.loads((tmp_path / "b" / "provenance.json").read_text())["check"] is None


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "the shape is incomplete: give --size, or --hidden, --layers, --heads, --kv-heads"),
        (flags(ffn=None), "the shape is incomplete: give --size, or --ffn as well"),
        (["--size=1b", "--heads=4"], "--size 1b is complete: leave out --heads"),
        (["--size=2b"], "no shape is called '2b'"),
        (flags(hidden=27), "--hidden 27 is less than the model's 32"),
        (flags(kv_heads=4), "9 heads cannot share 4 key-value heads evenly"),
        ([*flags(), "--dtype=int3"], "'int3' is not one of"),
    ],
)
def test_refusals_before_any_work(
    checkpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    complaint: str,
) -> None:
    monkeypatch.setattr(
        "draftwood.lab.inflate.model.inflate", None
    )  # calling it would be a TypeError
    assert complaint in refused("inflate", "--model", checkpoint, *argv, str(tmp_path / "large"))
    assert not list(tmp_path.iterdir())


def test_places_are_refused_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models.loading, "load", None)
    full = tmp_path / "full"
    full.mkdir()
    (full / "note.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for place, complaint in (
        (full, "is not empty: name a new directory"),
        (full / "note.txt", "is a file or a link: name a new directory"),
        (tmp_path / "link", "is a file or a link: name a new directory"),
        (tmp_path / "no" / "where", "cannot write to"),
    ):
        assert complaint in refused("inflate", "--size=1b", str(place))
    assert [path.name for path in full.iterdir()] == ["note.txt"]


def test_what_does_not_fit_into_memory_says_so(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 162,360 weights: 1.3 MB with a shard in float32, half of that in bfloat16.
    argv = ("inflate", "--model", checkpoint, *flags())
    monkeypatch.setattr(room, "available", lambda device: 7e5)
    err = refused(*argv, str(tmp_path / "large"))
    assert "GB are available: the check runs in float32; choose a smaller shape" in err
    assert "skip it with --no-check" in err
    assert not list(tmp_path.iterdir())
    output_of(*argv, "--no-check", str(tmp_path / "large"))
    monkeypatch.setattr(room, "available", lambda device: 3e5)
    assert "available: choose a smaller shape" in refused(
        *argv, "--no-check", str(tmp_path / "other")
    )


def test_a_function_that_is_not_the_same_is_not_written(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "norm_scale", lambda small, large: 1.0)
    assert "the inflated model computes something else" in refused(
        "inflate", "--model", checkpoint, *flags(), str(tmp_path / "large")
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_nothing(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(tokenizer: object, directory: Path, **_: object) -> None:
        part = next(tmp_path.iterdir())
        assert (part / "model.safetensors").is_file(), "the weights were there already"
        raise error

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", fail)
    code, _, err = run("inflate", "--model", checkpoint, *flags(), str(tmp_path / "large"))
    if isinstance(error, OSError):
        assert code == 2
        assert "disk full" in err
    else:
        assert code == 130
    assert not list(tmp_path.iterdir())


def test_a_write_that_sigterm_ends_leaves_nothing(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        PreTrainedTokenizerBase,
        "save_pretrained",
        lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM),
    )
    code, _, _ = run("inflate", "--model", checkpoint, *flags(), str(tmp_path / "large"))
    assert code == 143
    assert not list(tmp_path.iterdir())


def test_a_seed_out_of_range_is_refused_before_the_model_is_loaded(
    tmp_path: Path,
) -> None:
    argv = ("inflate", str(tmp_path / "large"), "--model", "/nowhere/at-all", *flags())
    for seed in ("-1", str(2**64)):
        assert f"--seed is {seed}: give an integer in" in refused(*argv, f"--seed={seed}")

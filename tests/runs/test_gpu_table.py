"""A table of several benchmarks of one model, which is loaded once."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import nn

from draftwood.drafters.eagle3.checkpoint import save_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.bench.document import load
from draftwood.lab.bench.runs import Job
from draftwood.lab.inflate.shapes import LlamaShape
from draftwood.models import Loaded
from draftwood.runner.attach import attach
from draftwood.runner.joined_linears import join_linears
from runs import gpu_table, loaded_once
from runs.gpu_table import CELLS, TimeOver, main
from tests.factories.eagle3_heads import tiny_config
from tests.factories.tiny_llama import VOCAB, tiny_llama, tiny_tokenizer

RUNS = Path(__file__).parents[2] / "runs"
METHODS = "ar,goose:budget=4"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("prompts") / "set.jsonl"
    items = [{"id": f"p{n}", "task": "code", "prompt": f"abc{n} abc{n} "} for n in range(4)]
    place.write_text("\n".join(map(json.dumps, items)))
    return str(place)


@pytest.fixture
def call(checkpoint: str, prompts: str, tmp_path: Path) -> Callable[..., Result]:
    """The command with a tiny model, eight tokens and a directory of its own."""

    def called(*more: str) -> Result:
        usual = ["--model", checkpoint, "--dtype", "float32", "--device", "cpu"]
        usual += ["--prompts", prompts, "--tokens", "8", "--peer-tokens", "4", "--truncate", "64"]
        usual += ["--methods", METHODS, "--limit", "1", "--out", str(tmp_path / "out")]
        return CliRunner().invoke(main, [*usual, *more])

    return called


def documents(tmp_path: Path) -> dict[str, Path]:
    """The documents by the name of their cell."""
    return {
        re.sub("gpu_table_.*?_(?=[a-z]+_[0-9]+$)", "", path.stem): path
        for path in (tmp_path / "out").glob("*.json")
    }


def refusing(*given: Any) -> Any:
    raise AssertionError("nothing is loaded")


def test_every_cell_is_a_benchmark_of_the_same_model(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []
    honest = loaded_once.loaded_stage

    def counted(model: str, dtype: str, device: str) -> Any:
        stages.append(model)
        return honest(model, dtype, device)

    monkeypatch.setattr(gpu_table, "loaded_stage", counted)
    cells = "greedy_1,sampled_1,greedy_2,peers_1"
    done = call("--cells", cells, "--seeds", "0,3")
    assert done.exit_code == 0, done.output
    assert len(stages) == 1
    found = {name: load(path) for name, path in documents(tmp_path).items()}
    assert [*sorted(found)] == sorted(cells.split(","))
    for name, document in found.items():
        kind, _, batch = name.partition("_")
        settings = document.provenance["settings"]
        assert document.complete
        assert settings["batch"] == settings["limit"] == int(batch)
        assert settings["sampling"]["temperature"] == (1.0 if kind == "sampled" else 0.0)
        assert settings["max_new_tokens"] == (4 if kind == "peers" else 8)
        assert settings["seeds"] == ([0, 3] if kind == "sampled" else [0])
        assert [*document.methods] == (["ar", "hf"] if kind == "peers" else METHODS.split(","))
        for method in document.methods.values():
            rows = int(batch) * (2 if kind == "sampled" else 1)
            assert len(method.rows) == rows
            assert method.identical == method.compared
        part = documents(tmp_path)[name].with_suffix(".part_of").read_text()
        assert part == f"gpu_table.sh {name}\n"
        assert re.search(rf"^\S+ {name}: tok/s", done.stdout, re.MULTILINE)
    assert not [*(tmp_path / "out").glob("*.journal.jsonl")]

    monkeypatch.setattr(gpu_table, "loaded_stage", refusing)
    again = call("--cells", cells, "--seeds", "0,3")
    assert (again.exit_code, again.stdout) == (0, done.stdout)
    other = call("--cells", cells, "--seeds", "0,3", "--tokens", "9")
    assert other.exit_code == 1
    assert "of another run: it.settings.max_new_tokens was 8 and is 9; delete it" in other.output


def stopping(after: int) -> Callable[[Job, bool], None]:
    """Called before each job: the time is over when so many have begun."""
    begun = 0

    def starting(job: Job, timed: bool) -> None:
        nonlocal begun
        begun += 1
        if begun > after:
            raise TimeOver

    return starting


def test_a_stopped_table_goes_on_where_it_stopped(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ("--cells", "greedy_1,sampled_1", "--limit", "2")
    # Two methods: two jobs of the warm-up and four others in each cell.
    starting = stopping(9)
    with monkeypatch.context() as patch:
        patch.setattr(gpu_table, "until", lambda end: starting)
        stopped = call(*cells)
    assert stopped.exit_code == 124, stopped.output
    assert "sampled_1, incomplete" in stopped.stdout
    before = documents(tmp_path)
    assert load(before["greedy_1"]).complete
    assert sum(len(each.rows) for each in load(before["sampled_1"]).methods.values()) == 1
    first = before["greedy_1"].read_bytes()
    done = call(*cells)
    assert done.exit_code == 0, done.output
    assert before["greedy_1"].read_bytes() == first
    whole = load(before["sampled_1"])
    assert whole.complete
    assert len(whole.provenance["resumed"]) == 2
    assert {len(each.rows) for each in whole.methods.values()} == {2}


def test_without_time_nothing_is_loaded(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_table, "loaded_stage", refusing)
    assert call("--seconds", "0").exit_code == 124
    assert not documents(tmp_path)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--cells", "greedy_0"], "--cells has 'greedy_0'"),
        (["--cells", "greedy"], "--cells has 'greedy'"),
        (["--cells", "warm_1"], "--cells has 'warm_1'"),
        (["--methods", "goose,nothing"], "nothing"),
        (["--head", "somewhere"], "no contender of this run would use it"),
        (["--inflate", "9b"], "no shape is called '9b'"),
        (["--seeds", "a"], "write integers"),
        (["--prompts", "/nowhere.jsonl"], "cannot read prompts"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_loaded(
    call: Callable[..., Result], flags: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_table, "loaded_stage", refusing)
    refused = call(*flags)
    assert refused.exit_code != 0
    assert said in refused.output


def test_a_cell_that_fails_does_not_cost_the_next_ones(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = gpu_table.measured

    def failing(settings: Any, *others: Any) -> Any:
        if settings.batch == 2:
            raise torch.OutOfMemoryError("too many prompts")
        return honest(settings, *others)

    monkeypatch.setattr(gpu_table, "measured", failing)
    done = call("--cells", "greedy_2,greedy_1")
    assert done.exit_code == 1
    assert "too many prompts" in done.stderr
    assert [*documents(tmp_path)] == ["greedy_1"]


def test_an_inflated_model_has_the_tokens_of_its_source_and_its_head_the_trees(
    call: Callable[..., Result], checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = LlamaShape(hidden=64, layers=3, heads=8, kv_heads=2, head_dim=16, ffn=96)
    for module in (gpu_table, loaded_once):
        monkeypatch.setattr(module, "preset", lambda name: large)
    own = {"vocab_size": VOCAB, "draft_vocab_size": VOCAB, "head_dim": 8}
    head = Eagle3Head(tiny_config(hidden_size=32, target_hidden_size=32, taps=(0, 1, 1), **own))
    head.d2t.zero_()
    save_head(head, tmp_path / "head")
    flags = ["--cells", "greedy_1", "--source", checkpoint, "--head", str(tmp_path / "head")]
    flags += ["--methods", "ar,eagle3:budget=6:top_k=2:levels=3"]
    for more in ([], ["--inflate", "big"]):
        done = call(*flags, *more)
        assert done.exit_code == 0, done.output
    small, made = sorted((tmp_path / "out").glob("*.json"), key=lambda path: "big" in path.stem)
    found = load(made)
    assert found.provenance["model"]["name"] == f"{Path(checkpoint).name} inflated to big"
    assert found.provenance["settings"]["head"] == "head inflated to big"
    weights = [load(path).provenance["model"]["parameters"] for path in (small, made)]
    assert weights[0] < weights[1]
    assert found.excerpts == load(small).excerpts
    (eagle3,) = [each for each in found.excerpts if each.method != "ar"]
    assert any(len(tree.parents) == 7 for tree in eagle3.trees)


def test_instances_share_weights_and_nothing_else() -> None:
    loaded = Loaded("tiny", tiny_llama(), tiny_tokenizer(), frozenset([256]))
    other = loaded_once.sharing_weights(loaded)
    ids = torch.arange(9)[None]
    logits = loaded.model(ids).logits
    pairs = zip(loaded.model.parameters(), other.model.parameters(), strict=True)
    assert all(mine is theirs for mine, theirs in pairs)
    # As attaching does on a GPU.
    own: Any = loaded.model.get_submodule("model.layers.0.self_attn")
    its: Any = other.model.get_submodule("model.layers.0.self_attn")
    joined = join_linears([own.q_proj, own.k_proj, own.v_proj])
    assert joined is not None
    assert its.q_proj.weight.data_ptr() == joined._weight.data_ptr()
    attention = other.model.config._attn_implementation
    attach(loaded.model, packing=False)
    assert loaded.model.config._attn_implementation != attention
    assert other.model.config._attn_implementation == attention
    assert torch.equal(other.model(ids).logits, logits)


class _Placed(nn.Module):
    def __init__(self, place: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.device = torch.device(place)


@pytest.mark.parametrize(("place", "loads"), [("cuda", 1), ("cpu", 3)])
def test_a_model_on_a_gpu_is_loaded_once(place: str, loads: int) -> None:
    counted: list[Any] = []

    def made() -> Any:
        model: Any = _Placed(place)
        counted.append(model)
        return Loaded("placed", model, tiny_tokenizer(), frozenset())

    following = partial(next, loaded_once.instances(made))
    models = [following().model for _ in range(3)]
    assert models[0] is not models[1]
    assert models[0] is counted[0]
    assert len(counted) == loads


def test_the_usual_cells_are_parts_of_the_script() -> None:
    script = (RUNS / "gpu_table.sh").read_text()
    parts = re.search(r'^run "([^"]*)" "\$@"$', script, re.MULTILINE)
    assert parts is not None
    assert parts[1].split() == CELLS.split(",")

"""Every example runs with the embedded model and prints what it is to show."""

import ast
import asyncio
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from transformers import LlamaForCausalLM

from draftwood import CustomGenerate, Engine
from draftwood.methods import method, recipe, registry
from tests.factories.given_costs import drafting_pays
from tests.factories.running_server import running

EXAMPLES = Path(__file__).parents[2] / "examples"
Ran = Callable[..., str]

SAME = {
    "transformers_generate.py": "same tokens as without it: True",
    "transformers_batch.py": "same tokens: True",
    "transformers_chat.py": "same tokens: True",
    "transformers_streaming.py": "same text: True",
    "engine_streaming.py": "same tokens as plain decoding: True",
    "engine_batch.py": "same tokens alone: True",
    "engine_asyncio.py": "same tokens as plain decoding: True",
    "logits_processor.py": "same tokens: True",
    "structured_output.py": "same tokens: True",
    "draft_model.py": "same tokens: True",
    "eagle3_head.py": "same tokens: True",
    "add_policy.py": "same tokens: True",
}
"""The line of a script that compares its tokens."""
OTHERS = {
    "engine_cancel.py",
    "record_replay.py",
    "rl_rollouts.py",
    "serving_client.py",
    "tensor_parallel.py",
    "trl_grpo.py",
    "verl_backend.py",
    "verl_rollouts.py",
}
"""Scripts that have a test of their own below."""
NOT_RUN = {"ray_serve.py", "kubernetes.yaml"}
"""What needs something else; the application of the first is run below without Ray."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ran:
    """Runs a script in this process, in a folder of its own, and returns what it prints."""

    def run(name: str, *argv: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *argv])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def listed() -> dict[str, str]:
    """The files of the table in examples/README.md, each with the column that says what is run."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    table, _, _ = text.partition("## Notebooks")
    return dict(re.findall(r"^\| \[(\S+)\]\(\1\) \|.*\| ([^|]+) \|$", table, re.MULTILINE))


def test_every_file_is_listed_and_run_or_said_not_to_be() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert listed().keys() == files
    assert SAME.keys() | OTHERS | NOT_RUN == files
    assert {name for name, run in listed().items() if run.startswith("no: ")} == NOT_RUN


def test_every_notebook_is_listed() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = re.findall(r"\(notebooks/(\w+)\.ipynb\)", text)
    assert sorted(names) == sorted(path.stem for path in (EXAMPLES / "notebooks").glob("*.py"))
    colab = "https://colab.research.google.com/github/draftwood/draftwood/blob/main/examples/"
    assert re.findall(rf"\({colab}notebooks/(\w+)\.ipynb\)", text) == names


@pytest.mark.parametrize("name", SAME)
def test_an_example_has_the_tokens_of_plain_decoding(
    name: str, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "structured_output.py":
        pytest.importorskip("llguidance")
    drafting_pays(monkeypatch)
    out = ran(name)
    assert SAME[name] in out
    if name == "structured_output.py":
        assert "its fields: name, age" in out
    if name == "engine_asyncio.py":
        assert "1 of 3 given up" in out
    if name == "logits_processor.py":
        text = ast.literal_eval(out.splitlines()[0])
        assert len(text) > 20
        assert "e" not in text
        out = out.replace("the letter 'e' is in it: False", "")
    assert "False" not in out
    # Drafts were accepted: some line tells of more than one token a call or a step.
    told = [float(each) for each in re.findall(r"([0-9.]+) (?:tokens )?a (?:call|step)", out)]
    assert max(told, default=2.0) > 1.0


def test_the_comparison_of_an_example_can_fail(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    honest: Any = CustomGenerate.__call__

    @wraps(honest)  # transformers reads its signature
    def wrong(*given: Any, **named: Any) -> Any:
        ids = honest(*given, **named)
        ids[0, -1] += 1
        return ids

    monkeypatch.setattr(CustomGenerate, "__call__", wrong)
    assert "same tokens as without it: False" in ran("transformers_generate.py")


def test_a_request_is_cancelled_and_the_others_go_on(ran: Ran) -> None:
    out = ran("engine_cancel.py")
    assert re.findall(r"^(\w+): '", out, re.MULTILINE) == ["cancelled", "length", "length"]
    assert "at most 2 ran at once" in out


def test_a_replay_is_as_the_live_run(ran: Ran) -> None:
    found = dict(re.findall(r"^(\S+): .*as live: (\w+)$", ran("record_replay.py"), re.MULTILINE))
    # goose learns from rows of logits, which differ in their last bits between the two.
    assert found.pop("goose:adjacency.harvest=accepted") in ("True", "False")
    assert found == {"pld": "True", "sam": "True"}


def test_a_policy_is_found_by_the_entry_points_that_its_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ast.get_docstring(ast.parse((EXAMPLES / "add_policy.py").read_text())) or ""
    points = tomllib.loads(dedent(text[text.index("    [project.") :]))
    groups = points["project"]["entry-points"]
    information = tmp_path / "mine-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (information / "entry_points.txt").write_text("\n".join(lines))

    def forget() -> None:
        registry.third_party.cache_clear()
        recipe.cache_clear()
        sys.modules.pop("add_policy", None)

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        patch.syspath_prepend(str(tmp_path))
        forget()
        made = method("copy-or-guess:budget=4")
        assert type(made.policy) is import_module("add_policy").CopyOrGuess
        assert made.policy.budget == 4
        assert set(made.drafters) == {"context", "adjacency"}
    forget()
    assert "copy-or-guess" not in registry.third_party("methods")


def epochs(out: str) -> list[tuple[float, float]]:
    """Tokens a forward and reward of each epoch."""
    found = re.findall(
        r"^epoch \d+: ([0-9.]+) tokens a forward, reward ([0-9.]+)$", out, re.MULTILINE
    )
    return [(float(tokens), float(reward)) for tokens, reward in found]


COMPARED = r"^  same tokens: (\w+); greedy as an untouched copy: (\w+)$"


def stopped(monkeypatch: pytest.MonkeyPatch, most: int, *, loads: bool = True) -> None:
    """End the rollouts after some epochs; the untouched copy may not get the new weights."""
    honest: Any = LlamaForCausalLM.load_state_dict
    calls = 0

    def load(self: LlamaForCausalLM, state: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > most:
            raise KeyboardInterrupt
        if loads:
            honest(self, state)

    monkeypatch.setattr(LlamaForCausalLM, "load_state_dict", load)


def test_rollouts_follow_the_weights(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        ran("rl_rollouts.py")
    out = capsys.readouterr().out
    assert re.findall(COMPARED, out, re.MULTILINE) == [("True", "True")] * 3
    tokens = [each for each, _ in epochs(out)]
    assert tokens[0] < min(tokens[1:]), "the memory is empty at first"


def test_rollouts_of_other_weights_would_be_seen(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison with the untouched copy fails while the copy has the weights of before."""
    stopped(monkeypatch, 3, loads=False)
    with pytest.raises(KeyboardInterrupt):
        ran("rl_rollouts.py")
    first, *others = re.findall(COMPARED, capsys.readouterr().out, re.MULTILINE)
    assert first == ("True", "True"), "nothing has moved yet"
    assert ("True", "False") in others


@pytest.mark.slow
def test_drafts_of_rollouts_grow_as_the_memory_fills(ran: Ran) -> None:
    out = ran("rl_rollouts.py")
    found = epochs(out)
    assert re.findall(COMPARED, out, re.MULTILINE) == [("True", "True")] * len(found)
    assert found[1][0] < 1.3 < found[-1][0]
    assert found[-1][1] > found[0][1]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_trl_trains_with_rollouts_through_draftwood(ran: Ran) -> None:
    pytest.importorskip("trl")
    out = ran("trl_grpo.py")
    assert "same tokens: True" in out


@pytest.mark.slow
@pytest.mark.parametrize("follows", [True, False])
def test_verl_rolls_out_through_draftwood(*, follows: bool, tmp_path: Path) -> None:
    """In a process of its own, which starts Ray; with a server that writes nothing, too."""
    for needed in ("verl", "ray", "hydra"):
        pytest.importorskip(needed)
    text = (EXAMPLES / "verl_backend.py").read_text()
    writes = "found = self.model.load_state_dict(dict(part), strict=False)"
    assert writes in text
    wrong = text.replace(writes, writes.replace("dict(part)", "self.model.state_dict()"))
    (tmp_path / "verl_backend.py").write_text(text if follows else wrong)
    script = tmp_path / "verl_rollouts.py"
    script.write_text((EXAMPLES / script.name).read_text())
    done = subprocess.run(
        [sys.executable, script],
        env={
            **os.environ,
            **{"CUDA_VISIBLE_DEVICES": "", "VERL_USE_EXTERNAL_MODULES": "verl_backend"},
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{EXAMPLES.parent}",
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    same = re.findall(r"same tokens: (\w+)", done.stdout)
    assert same == ["True", str(follows), str(follows)]


@pytest.mark.slow
def test_two_processes_decode_with_parts_of_a_model() -> None:
    pytest.importorskip("accelerate")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", EXAMPLES / "tensor_parallel.py"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "same tokens: True" in done.stdout


def test_a_client_streams_from_the_server(ran: Ran) -> None:
    pytest.importorskip("starlette")
    engine = Engine.load("embedded", "goose:budget=16")
    with running(engine, eos=engine.target.info.eos) as server:
        out = ran("serving_client.py", server.url)
    assert "same text: True" in out
    drafted, plain = (
        int(tokens) / int(chunks)
        for tokens, chunks in re.findall(r"(\d+) tokens in (\d+) chunks", out)
    )
    assert drafted > plain


def test_a_replica_behind_ray_serves_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for Ray, which gets a function that makes the application."""
    pytest.importorskip("starlette")
    made: list[Callable[[], Any]] = []

    class Serve(ModuleType):
        def ingress(self, application: Callable[[], Any]) -> Callable[[Any], Any]:
            made.append(application)
            return lambda replica: replica

        def deployment(self, **settings: Any) -> Callable[[Any], Any]:
            assert settings["max_ongoing_requests"] == 16
            return lambda replica: SimpleNamespace(bind=replica)

    ray: Any = ModuleType("ray")
    ray.serve = Serve("ray.serve")
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("DRAFTWOOD_THREADS", str(torch.get_num_threads()))
    runpy.run_path(str(EXAMPLES / "ray_serve.py"))
    app = made[0]()

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://replica") as client,
        ):
            body = {"prompt": "def f(", "max_tokens": 4}
            return await client.post("/v1/completions", json=body, timeout=60)

    found = asyncio.run(ask()).json()
    assert found["model"] == "embedded"
    assert found["usage"]["completion_tokens"] <= 4
    assert not app.state.service.thread.alive

"""The plugin inside SGLang on a CPU, on a tiny random model: ``make test-sglang``.

SGLang has no kernels for CPUs on PyPI, so these run with stand-ins (``tests/sglang/cpu``): they
show that the plugin is wired as SGLang expects, not that its kernels are right. Each engine takes a
minute to start.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sglang", reason="runs in an environment with SGLang: make test-sglang")
httpx = pytest.importorskip("httpx")

from tests.factories.server_process import answers, until_ready  # noqa: E402
from tests.factories.tiny_checkpoint import write_checkpoint  # noqa: E402

ROOT = Path(__file__).parents[2]
PORT = 8792
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_NCCL_SO_PATH": "/nonexistent.so",  # else a communicator of GPUs is made
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}
TWO = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
COUNTED = re.compile(r"Draftwood: (\d+) steps, .*; (\d+) scattered paths")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 prompts of bytes that repeat themselves more or less; some begin alike."""
    draw = random.Random(0)
    begin = [draw.randrange(97, 123) for _ in range(40)]
    found = []
    for i in range(64):
        words = [[draw.randrange(97, 123) for _ in range(draw.randint(2, 6))] for _ in range(4)]
        own = [byte for _ in range(draw.randint(4, 12)) for byte in draw.choice(words)]
        found.append([*begin, *own] if i % 4 == 0 else own)
    path = tmp_path_factory.mktemp("prompts") / "prompts.json"
    path.write_text(json.dumps(found))
    return path


def decoded(
    model: Path, prompts: Path, *words: str, **variables: str
) -> tuple[dict[str, Any], str]:
    """What was decoded, and the log."""
    out = prompts.with_name("result.json")
    out.unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "runs" / "sglang_decode.py"), str(model), str(prompts)]
    done = subprocess.run(
        # Of an option given twice, the last one counts.
        [*command, "--tokens", "96", "--out", str(out), *words],
        env=ENVIRONMENT | variables,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert out.exists(), done.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found, done.stderr + done.stdout


@pytest.fixture(scope="module")
def plain(model: Path, prompts: Path) -> list[list[int]]:
    found, _ = decoded(model, prompts)
    answers: list[list[int]] = found["answers"]
    assert len(answers) == 64
    return answers


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ((), {}),
        (("--no-radix", "--chunk", "16"), {}),
        (("--tensor-parallel", "2"), TWO),
    ],
    ids=["radix", "chunks", "two ranks"],
)
def test_the_tokens_are_those_of_plain_decoding(
    model: Path,
    prompts: Path,
    plain: list[list[int]],
    words: tuple[str, ...],
    variables: dict[str, str],
) -> None:
    found, log = decoded(model, prompts, "--drafts", "DRAFTWOOD", *words, **variables)
    assert found["answers"] == plain
    assert found["tokens_a_step"]["prompts"] > 1.5
    if not words:
        assert found["cached"] > 0, "prompts that begin alike share their keys and values"
    counts = COUNTED.findall(log)
    assert counts, "acceptance is logged"
    assert int(counts[-1][1]) > 0, "accepted nodes are moved in the cache"


@pytest.mark.parametrize("nodes", [8, 32])
def test_answers_that_reach_the_end_of_the_context(
    model: Path, prompts: Path, tmp_path: Path, nodes: int
) -> None:
    """What a step reserves beyond it has to fit into the request's row."""
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps([each[:40] for each in json.loads(prompts.read_text())[::4]]))
    whole = ("--context", "160", "--tokens", "118")
    plain, _ = decoded(model, path, *whole)
    assert {len(answer) for answer in plain["answers"]} == {118}
    found, _ = decoded(model, path, *whole, "--drafts", "DRAFTWOOD", "--nodes", str(nodes))
    assert found["answers"] == plain["answers"]
    assert found["tokens_a_step"]["prompts"] > 1.2


def test_another_method(model: Path, prompts: Path, plain: list[list[int]]) -> None:
    found, log = decoded(model, prompts, "--drafts", "DRAFTWOOD", DRAFTWOOD_METHOD="goose")
    assert found["answers"] == plain
    assert found["tokens_a_step"]["prompts"] > 1.5
    assert COUNTED.search(log), "acceptance is logged"


def test_requests_that_are_put_back_for_lack_of_memory(
    model: Path, prompts: Path, plain: list[list[int]]
) -> None:
    # SGLang knows how long these answers are, and by itself puts none back.
    forced = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "7"}
    words = ("--drafts", "DRAFTWOOD", "--cache-tokens", "400")
    found, _ = decoded(model, prompts, *words, **forced)
    assert found["answers"] == plain
    assert found["retracted"] > 0


def test_the_hook_on_ngram(model: Path, prompts: Path, plain: list[list[int]]) -> None:
    own, _ = decoded(model, prompts, "--drafts", "NGRAM")
    assert own["answers"] == plain
    found, log = decoded(model, prompts, "--drafts", "NGRAM", DRAFTWOOD_SGLANG_HOOK="1")
    assert found["answers"] == plain
    assert COUNTED.search(log)


def test_two_nodes(model: Path, prompts: Path, plain: list[list[int]]) -> None:
    """Two processes with a rank each, as on two machines, over the loopback."""
    command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model)]
    command += ["--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native"]
    command += ["--tp-size", "2", "--nnodes", "2", "--dist-init-addr", "127.0.0.1:29711"]
    command += ["--max-total-tokens", "8192", "--max-running-requests", "8"]
    command += ["--context-length", "1024", "--mem-fraction-static", "0.4"]
    command += ["--speculative-algorithm", "DRAFTWOOD", "--skip-server-warmup"]
    command += ["--skip-tokenizer-init", "--host", "127.0.0.1"]
    nodes = [
        subprocess.Popen(
            [*command, "--node-rank", str(rank), "--port", str(PORT + rank)],
            env=ENVIRONMENT | TWO,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for rank in range(2)
    ]
    wanted = {"temperature": 0, "max_new_tokens": 96, "ignore_eos": True}
    ids = json.loads(prompts.read_text())
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=300) as client:
            assert until_ready(client, nodes[0]), "the server ended"
            bodies = [{"input_ids": prompt, "sampling_params": wanted} for prompt in ids]
            found = answers(client, "/generate", bodies)
            assert [each["output_ids"] for each in found] == plain
    finally:
        for process in nodes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

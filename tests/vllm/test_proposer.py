"""The proposer inside vLLM, on a tiny random model: ``make test-vllm``.

Each engine takes a minute to start.
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

pytest.importorskip("vllm", reason="runs in an environment with vLLM: make test-vllm")
httpx = pytest.importorskip("httpx")

from runs.vllm_decode import PROPOSER, speculation  # noqa: E402
from tests.factories.server_process import answers, until_ready  # noqa: E402
from tests.factories.tiny_checkpoint import write_checkpoint  # noqa: E402

ROOT = Path(__file__).parents[2]
PORT = 8791
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 prompts of bytes that repeat themselves more or less."""
    draw = random.Random(0)
    found = []
    for _ in range(64):
        words = [[draw.randrange(97, 123) for _ in range(draw.randint(2, 6))] for _ in range(4)]
        found.append([byte for _ in range(draw.randint(4, 12)) for byte in draw.choice(words)])
    path = tmp_path_factory.mktemp("prompts") / "prompts.json"
    path.write_text(json.dumps(found))
    return path


def decoded(model: Path, prompts: Path, *words: str) -> dict[str, Any]:
    out = prompts.with_name("result.json")
    command = [sys.executable, str(ROOT / "runs" / "vllm_decode.py"), str(model), str(prompts)]
    done = subprocess.run(
        [*command, "--out", str(out), *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.fixture(scope="module")
def plain(model: Path, prompts: Path) -> dict[str, Any]:
    return decoded(model, prompts, "--drafts", "none", "--tokens", "96")


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_the_tokens_are_those_of_plain_decoding(
    model: Path, prompts: Path, plain: dict[str, Any], ranks: str
) -> None:
    words = ["--drafts", "draftwood", "--tokens", "96", "--tensor-parallel", ranks]
    found = decoded(model, prompts, *words)
    assert len(found["answers"]) == 64
    assert found["answers"] == plain["answers"]
    assert found["num_accepted_tokens"] > 0.2 * sum(map(len, found["answers"]))
    assert found["num_draft_tokens"] < found["num_drafts"] * 7, "lengths differ"


def test_sampled_tokens_are_accepted_and_refused(model: Path, prompts: Path) -> None:
    words = ["--drafts", "draftwood", "--tokens", "64", "--temperature", "0.05"]
    found = decoded(model, prompts, *words)
    assert 0 < found["num_accepted_tokens"] < found["num_draft_tokens"]


def test_a_server_that_is_asked_eight_things_at_once(
    model: Path, plain: dict[str, Any], prompts: Path
) -> None:
    config = json.dumps(speculation("draftwood", 7))
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--port", str(PORT), "--dtype", "float32", "--max-model-len", "512"]
    command += ["--max-num-seqs", "8", "--enforce-eager", "--speculative-config", config]
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=120) as client:
            assert until_ready(client, process), "the server ended"
            body = {"model": str(model), "max_tokens": 96, "temperature": 0, "ignore_eos": True}
            body |= {"return_token_ids": True}
            bodies = [body | {"prompt": prompt} for prompt in json.loads(prompts.read_text())]
            found = answers(client, "/v1/completions", bodies)
            page = client.get("/metrics").text
        assert [each["choices"][0]["token_ids"] for each in found] == plain["answers"]
        accepted = re.search(r"^vllm:spec_decode_num_accepted_tokens_total\{.*\} (\S+)", page, re.M)
        assert accepted is not None
        assert float(accepted[1]) > 0
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_the_proposer_has_its_name() -> None:
    module, _, name = PROPOSER.rpartition(".")
    assert hasattr(__import__(module, fromlist=[name]), name)

"""``transformers serve`` with a checkpoint that holds ``hub/custom_generate``.

Needs transformers' own extra ``serving``.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import draftwood
from tests.factories.server_process import until_ready

HUB = Path(__file__).parents[2] / "hub"
MESSAGES: Any = [{"role": "user", "content": "Write a function that reverses a list."}]

pytestmark = pytest.mark.slow
for needed in ("fastapi", "uvicorn", "typer"):
    pytest.importorskip(needed)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model; its ``generate`` writes what it has done to the file ``calls``."""
    folder = tmp_path_factory.mktemp("served")
    model, tokenizer = draftwood.embedded()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    shutil.copytree(HUB / "custom_generate", folder / "custom_generate")
    file = folder / "custom_generate" / "generate.py"
    code = file.read_text().replace('METHOD = "auto"', 'METHOD = "goose:budget=16"')
    assert code.count("return plain(model, *inputs, ") == 1
    code = code.replace(
        "    return plain(model, *inputs, ",
        "    kwargs['on_finish'] = _noted\n    return plain(model, *inputs, ",
    )
    code += (
        "\n\ndef _noted(done):\n"
        f"    with open({str(folder / 'calls')!r}, 'a') as file:\n"
        "        print(*(f'{d.tally.steps} {len(d.tokens)}' for d in done), file=file)\n"
    )
    file.write_text(code)
    return folder


@pytest.fixture(scope="module")
def client(checkpoint: Path) -> Iterator[openai.OpenAI]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "transformers.cli.transformers", "serve", str(checkpoint)),
            *("--trust-remote-code", "--device", "cpu", "--dtype", "float32"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=60) as ready:
            assert until_ready(ready, process)
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    finally:
        process.terminate()
        process.wait(30)


def plain_answer(count: int) -> str:
    """The greedy answer of ``generate`` without Draftwood."""
    model: Any
    model, tokenizer = draftwood.embedded()
    inputs: Any = tokenizer.apply_chat_template(
        MESSAGES, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    ids = model.generate(**inputs, max_new_tokens=count, do_sample=False, pad_token_id=0)
    new = ids[0, inputs["input_ids"].shape[1] :]
    return str(tokenizer.decode(new, skip_special_tokens=True))


def test_each_request_is_decoded_by_draftwood(client: openai.OpenAI, checkpoint: Path) -> None:
    asked: dict[str, Any] = {
        "model": str(checkpoint),
        "messages": MESSAGES,
        "max_tokens": 48,
        "temperature": 0,
    }
    answer = client.chat.completions.create(**asked).choices[0].message.content
    stream = client.chat.completions.create(**asked, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert answer is not None
    assert answer.strip() == streamed.strip() == plain_answer(48).strip()
    calls = [[*map(int, line.split())] for line in (checkpoint / "calls").read_text().splitlines()]
    assert len(calls) == 2
    assert all(steps < tokens for steps, tokens in calls), "drafts were accepted"


def test_a_stop_string_and_a_completion(client: openai.OpenAI, checkpoint: Path) -> None:
    asked: dict[str, Any] = {"model": str(checkpoint), "max_tokens": 32, "temperature": 0}
    whole = client.completions.create(prompt="Once upon a time", **asked).choices[0].text
    word = whole.split()[6]
    cut = client.completions.create(prompt="Once upon a time", stop=[word], **asked)
    assert cut.choices[0].text == whole[: whole.index(word) + len(word)]

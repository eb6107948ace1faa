"""The table of what an engine's drafters are accepted, and the prompts that are decoded for it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from runs import chat_ids, engine_acceptance, vllm_decode

PLAIN = [[*range(10)], [1] * 10]


def result(first: float, second: float, answers: list[list[int]]) -> dict[str, object]:
    return {"answers": answers, "tokens_a_step": {"code": first, "chat": second}}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    made = {
        "plain": {"answers": PLAIN, "tokens_a_step": {}},
        "NGRAM_8": result(2.0, 1.0, PLAIN),
        "draftwood_8": result(3.0, 1.5, [PLAIN[0], [2] * 10]),
        "NGRAM_16": result(2.5, 1.25, PLAIN),
        "draftwood_16": result(2.0, 1.0, PLAIN),
    }
    for label, content in made.items():
        (tmp_path / f"engine_sglang_{label}.json").write_text(json.dumps(content))
    return tmp_path


def test_drafters_with_as_many_nodes_are_compared_set_by_set(out: Path) -> None:
    shown = CliRunner().invoke(engine_acceptance.main, ["sglang", str(out)])
    assert shown.exit_code == 0, shown.output
    small, large = shown.output.split("16 nodes, 2 prompts, 33% of 8-grams repeated")
    assert "| set | NGRAM | draftwood |" in small
    assert "| code | 2.00 | 3.00 (1.50x) |" in small
    assert "| mean | 1.50 | 2.25 (1.50x) |" in small
    assert "| same tokens | 2 of 2 | 1 of 2 |" in small
    assert "| mean | 1.88 | 1.50 (0.80x) |" in large


def test_without_plain_decoding_there_is_no_table(out: Path) -> None:
    (out / "engine_sglang_plain.json").unlink()
    shown = CliRunner().invoke(engine_acceptance.main, ["sglang", str(out)])
    assert shown.exit_code == 1
    assert "run engines.sh" in shown.output


def test_prompts_are_written_in_the_chat_template(tmp_path: Path) -> None:
    rows = [
        {"id": f"r{i}", "task": "chat", "turns": ["What is a tree?" * n]}
        for i, n in enumerate((1, 900))
    ]
    (tmp_path / "few.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["embedded", "--prompts", str(tmp_path / "few.jsonl"), "--out", str(tmp_path / "ids")]
    done = CliRunner().invoke(chat_ids.main, words)
    assert done.exit_code == 0, done.output
    (ids,) = json.loads((tmp_path / "ids" / "few.json").read_text())
    assert 6 < len(ids) < 100


def test_a_set_of_nothing_but_long_prompts_is_refused(tmp_path: Path) -> None:
    row = {"id": "long", "task": "chat", "turns": ["What is a tree?" * 900]}
    (tmp_path / "few.jsonl").write_text(json.dumps(row))
    words = ["embedded", "--prompts", str(tmp_path / "few.jsonl"), "--out", str(tmp_path / "ids")]
    done = CliRunner().invoke(chat_ids.main, words)
    assert done.exit_code == 1
    assert "longer than 1024 tokens" in done.output


class SteppedEngine:
    """vLLM's engine, as far as it is asked: two requests, of two and of three steps."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.given: dict[str, object] = {}

    def add_request(self, name: str, prompt: object, wanted: object) -> None:
        self.given[name] = prompt, wanted
        self.left[name] = 3 + int(name)  # the prompt's step too

    def has_unfinished_requests(self) -> bool:
        return bool(self.left)

    def step(self) -> list[SimpleNamespace]:
        self.left = {name: left - 1 for name, left in self.left.items()}
        found = [
            SimpleNamespace(request_id=name, finished=not left) for name, left in self.left.items()
        ]
        self.left = {name: left for name, left in self.left.items() if left}
        return found


def test_steps_of_vllm_are_counted_as_they_come() -> None:
    engine = SteppedEngine()
    found, steps = vllm_decode.stepped(engine, ["a", "b"], "wanted")
    assert engine.given == {"0": ("a", "wanted"), "1": ("b", "wanted")}
    assert [each.request_id for each in found] == ["0", "1"]
    assert steps == 2 + 3

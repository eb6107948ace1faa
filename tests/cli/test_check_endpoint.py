"""``draftwood check-lossless --endpoint``: its options, its lines, its files, its exit codes."""

import json
from pathlib import Path

import pytest

from tests.factories.command_line import refused, run
from tests.factories.toy_server import Faults, Toy, serving


def check(url: str, *argv: str) -> tuple[int, list[str], str]:
    flags = ("--endpoint", url, "--dtype", "float32", "--samples", "0", "--limit", "2", *argv)
    code, out, err = run("check-lossless", *flags)
    return code, out.splitlines(), err


def test_a_right_server_and_a_wrong_one() -> None:
    with serving(Toy()) as url:
        code, lines, err = check(url)
    assert code == 0, (lines, err)
    assert lines[0].startswith("  ok  greedy, code: 64 tokens")
    assert lines[-1].startswith("no difference found: all ")
    assert err.startswith("plan: up to ")
    assert err.endswith("gaps up to 0.0001 (float32) are rounding\n")
    with serving(Toy(Faults(wrong=9))) as url:
        code, lines, err = check(url)
    assert code == 1
    assert lines[0].startswith("FAIL  greedy, code: token 8 is ")
    assert lines[-1].startswith("NOT lossless: ")


def test_json_and_markdown(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    with serving(Toy(Faults(wrong=9))) as url:
        code, lines, _ = check(url, "--json", "--markdown", str(file), "--tolerance", "0.25")
    assert code == 1
    [text] = lines
    found = json.loads(text)
    assert found["passed"] is False
    assert found["verdict"].startswith("NOT lossless")
    assert found["endpoint"] == {"name": "draftwood", "version": "1.2", "model": "toy"}
    assert found["settings"]["tolerance"] == {"value": 0.25, "origin": "as given"}
    assert found["sent"] <= found["planned"]["requests"]
    first = found["checks"][0]
    assert (first["check"], first["outcome"]) == ("greedy", "failed")
    assert first["divergence"]["cause"] == "fault"
    assert [command.startswith("curl http") for command in first["curl"]] == [True, True]
    page = file.read_text()
    assert page.startswith("## Is it lossless? NOT lossless")
    assert found["date"] in page
    assert "curl" in page


def test_the_key_of_the_environment_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.md"
    with serving(Toy(Faults(wrong=9), key="word-of-keys")) as url:
        monkeypatch.setenv("OPENAI_API_KEY", "")
        assert "another key: give --api-key" in refused("check-lossless", "--endpoint", url)
        monkeypatch.setenv("OPENAI_API_KEY", "word-of-keys")
        code, lines, err = check(url, "--json", "--markdown", str(file))
        assert code == 1
        assert "word-of-keys" not in file.read_text() + "".join(lines) + err
        monkeypatch.setenv("OPENAI_API_KEY", "another")
        assert check(url, "--api-key", "word-of-keys")[0] == 1


def test_prompts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "mine-1", "prompt": "the cat"}\n{"id": "mine-2", "prompt": "a dog"}\n')
    with serving(Toy()) as url:
        code, lines, err = check(url, "--prompts", str(file), "--limit", "1")
    assert code == 0, err
    assert [line for line in lines if "greedy, mine-1" in line]
    assert not [line for line in lines if "mine-2" in line]


def test_seeds_can_be_asked_to_be_the_references() -> None:
    with serving(Toy()) as url:
        _, lines, _ = check(url)
        assert [line for line in lines if line.startswith("  -   seeds, without speculation: 3 of")]
        _, lines, _ = check(url, "--same-seed")
        assert [line for line in lines if line.startswith("  ok  seeds, without speculation: 3 of")]


def test_a_local_model_of_another_kind_is_no_reference(checkpoint: str) -> None:
    with serving(Toy()) as url:
        code, lines, _ = check(url, "--reference-model", checkpoint)
    assert code == 1
    assert lines[-1].startswith("NOT lossless")


URL = ("--endpoint", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ((*URL, "goose"), "'goose' is a METHOD, which --endpoint does not take"),
        ((*URL, "--all"), "--all is of METHODs"),
        ((*URL, "--top-k", "1"), "--top-k is 1"),
        ((*URL, "--top-k", "17"), "--top-k is 17"),
        ((*URL, "--temperature", "0.5"), "--temperature is of METHODs"),
        ((*URL, "--budget", "3"), "--budget is of METHODs"),
        ((*URL, "--model", "x"), "with --endpoint, name the model that it serves with --served"),
        ((*URL, "--reference", "x", "--reference-model", "y"), "give one reference"),
        ((*URL, "--reference-model", "y", "--plain-body", "{}"), "--plain-body is of a server"),
        ((*URL, "--reference-api-key", "y"), "--reference-api-key needs --reference"),
        ((*URL, "--plain-body", "{"), "--plain-body is not JSON"),
        ((*URL, "--plain-body", "3"), "--plain-body is no JSON object"),
        ((*URL, "--dtype", "int8"), "--dtype int8 says nothing of a server's rounding"),
        ((*URL, "--tolerance", "-1"), "--tolerance is -1.0"),
        ((*URL, "--tolerance", "inf"), "--tolerance is inf: give a number from 0 up"),
        ((*URL, "--timeout", "nan"), "'--timeout': nan is no finite number"),
        ((*URL, "--timeout", "inf"), "'--timeout': inf is not in the range"),
        ((*URL, "--timeout", "1e300"), "'--timeout': 1e+300 is not in the range"),
        ((*URL, "--max-requests", "10"), "--max-requests is 10"),
        ((*URL, "--markdown", "/nowhere/at/all.md"), "there is no such directory"),
        ((*URL, "--prompts", "/nowhere.jsonl"), "cannot read prompts"),
        ((*URL, "--prompt", ""), "the prompt is empty"),
        (URL, "no server answers: http://127.0.0.1:9/v1"),
        (("--endpoint", "localhost"), "'localhost' is no URL of a server"),
        (("goose", "--reference", "x"), "--reference needs --endpoint URL"),
        (("--same-seed",), "--same-seed needs --endpoint URL"),
        (("--max-requests", "5", "--all"), "--max-requests needs --endpoint URL"),
    ],
)
def test_what_does_not_go_together_is_refused(argv: tuple[str, ...], complaint: str) -> None:
    assert complaint in refused("check-lossless", *argv)

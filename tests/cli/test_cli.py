"""The command line end to end on a tiny model: text, JSON, errors and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from draftwood import cli
from draftwood.cli._prompt import encode
from draftwood.errors import DraftwoodError
from draftwood.methods import method, recipes
from tests.factories.command_line import output_of, refused, run
from tests.factories.complete_methods import TEXT
from tests.factories.masked_models import save_pard
from tests.factories.tiny_llama import tiny_tokenizer

PROMPT = "abc abc abc "


@pytest.fixture(scope="module")
def plain(checkpoint: str) -> dict[str, object]:
    return generate(checkpoint, "--method", "ar")


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checkpoint as one that reads masks."""
    return save_pard(tmp_path_factory.mktemp("masked"), 7)


def generate(checkpoint: str, *argv: str) -> dict[str, object]:
    out = output_of(
        "generate", PROMPT, "--model", checkpoint, "--max-new-tokens", "24", "--json", *argv
    )
    found = json.loads(out.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_method_generates_the_same_tokens(
    checkpoint: str, masked: str, plain: dict[str, object], name: str
) -> None:
    extra: list[str] = []
    missing = method(name).missing
    if "draft" in recipes()[name].drafters:
        # A draft model takes the place of a head.
        extra = ["--draft", masked if "draft" in missing else checkpoint]
    for setting in set(missing) - {"head", "draft"}:
        extra += [f"--{setting}", TEXT]
    found = generate(checkpoint, "--method", name, *extra)
    assert found["tokens"] == plain["tokens"]
    assert found["text"] == plain["text"]
    assert found["method"] == name
    assert set(found) >= {
        "steps",
        "target_calls",
        "mean_acceptance_length",
        "acceptance_by_depth",
        "acceptance_by_source",
        "tokens_per_second",
        "ttft_ms",
        "tpot_ms",
    }


def test_settings_are_flags(checkpoint: str) -> None:
    flags = ("--method", "goose", "--budget", "4", "--bypass", "off", "--adjacency.bigram=false")
    assert generate(checkpoint, *flags)["tokens"] == generate(checkpoint)["tokens"]


def test_sampling_is_seeded(checkpoint: str) -> None:
    flags = ("--temperature", "0.9", "--seed", "5")
    first = generate(checkpoint, *flags, "--method", "ar")
    assert generate(checkpoint, *flags)["tokens"] == first["tokens"]
    assert generate(checkpoint, *flags, "--draft", checkpoint)["tokens"] == first["tokens"]
    assert generate(checkpoint, "--temperature", "0.9", "--seed", "6")["tokens"] != first["tokens"]


def test_streamed_text_is_the_text(checkpoint: str, tmp_path: Path) -> None:
    text = generate(checkpoint)["text"]
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT)
    flags = ("--model", checkpoint, "--max-new-tokens", "24")
    code, out, _ = run("generate", "--file", str(file), *flags)
    assert code == 0
    assert out == f"{text}\n"


def test_colours_can_be_forced(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("generate", PROMPT, "--model", checkpoint, "--method", "goose")
    plain = run(*asked)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run(*asked)[1]
    assert "\x1b[" not in plain
    assert "\x1b[32m" in coloured
    assert click.unstyle(coloured) == plain


def test_stop_string_ends_the_text(checkpoint: str) -> None:
    text = str(generate(checkpoint)["text"])
    stop = text[5:7]
    found = generate(checkpoint, "--stop", stop)
    assert found["text"] == text[: text.index(stop)]
    assert found["finish_reason"] == "stop"


def test_a_text_without_steps_has_no_tokens_per_call(checkpoint: str) -> None:
    code, _, err = run("generate", PROMPT, "--model", checkpoint, "--max-new-tokens", "1")
    assert (code, "1 tokens, 0 target calls, - tokens per call" in err) == (0, True), err


@pytest.mark.parametrize("argv", [["generate"], ["generate", "--file", "-"], ["chat", "smollm2"]])
def test_a_closed_standard_input_is_no_prompt(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("draftwood: no ")


def test_a_closed_standard_output_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    cli.main(["methods"])


def test_tree_draws_a_step(checkpoint: str) -> None:
    out = output_of("tree", PROMPT, "--model", checkpoint, "--step", "2", "--budget", "6")
    assert "drafted" in out
    assert "✓" in out


def test_demo_compares_the_methods(checkpoint: str) -> None:
    flags = ("--model", checkpoint, "--max-new-tokens", "4", "--repeats", "1")
    code, out, err = run("demo", *flags)
    # A tiny model's context does not hold the demo's prompts, and the message is one line.
    assert code == 2
    assert "context" in err
    assert "Traceback" not in out + err


def test_methods_lists_everything() -> None:
    code, out, _ = run("methods")
    assert code == 0
    for name, recipe in recipes().items():
        assert name in out
        assert recipe.summary.split()[-1] in out
    code, out, _ = run("methods", "goose")
    assert code == 0
    assert "--budget INTEGER  [default: 59]" in out
    assert "Policy:    spine" in out


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["generate", "x", "--model", "/nowhere/at-all"], "/nowhere/at-all"),
        (["generate", "x", "--temperature", "-1"], "temperature"),
        (["generate", "x", "--logit-bias", "three"], "TOKEN_ID=BIAS"),
        (["generate", "x", "--file", "y"], "not both"),
        (["generate", "--file", "/nowhere/prompt.txt"], "cannot read the prompt"),
        (["generate", "x", "--dtype", "int3"], "'int3' is not one of 'auto'"),
        (["generate", "x", "--device", "abacus"], "abacus"),
        (["tree"], "the prompt on standard input is empty"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(argv: list[str], complaint: str) -> None:
    assert complaint in refused(*argv)


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["a" * 400], "context"),
        (["x", "--ban", "9999"], "9999"),
    ],
)
def test_what_the_model_cannot_do_is_one_line(
    checkpoint: str, argv: list[str], complaint: str
) -> None:
    assert complaint in refused("generate", *argv, "--model", checkpoint)


def test_chat_needs_a_template() -> None:
    with_template, without = tiny_tokenizer(), tiny_tokenizer(chat=False)
    ids = encode(with_template, "hi", chat=True)
    assert with_template.decode(ids) == "User: hi\n\nAssistant:"
    with pytest.raises(DraftwoodError, match="no chat template"):
        encode(without, "hi", chat=True)


def test_python_dash_m() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "draftwood", "--version"], capture_output=True, text=True, check=True
    )
    assert "draftwood" in out.stdout

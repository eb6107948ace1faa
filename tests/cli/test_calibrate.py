"""The command end to end on a tiny model: the file it writes is where ``auto`` begins."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from draftwood.cli.calibrate import calibrate
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.models import load
from draftwood.policies.auto import calibration_file
from draftwood.policies.auto.calibration import BANDS
from draftwood.policies.auto.features import NOT_LISTED
from draftwood.runner.attach import attach
from draftwood.sampling.params import SamplingParams
from tests.factories.command_line import refused


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"id": str(i), "task": "t", "prompt": f"ab{i}ab{i}ab", "completion": True} for i in range(2)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("layout", ["coupled", "either"])
def test_counts_are_written_and_decode_the_tokens_of_plain_decoding(
    checkpoint: str, tmp_path: Path, prompts: Path, layout: str
) -> None:
    output, methods = tmp_path / "mine.json", f"auto,auto:draft={checkpoint}:layout={layout}"
    argv = [str(output), "--model", checkpoint, "--prompts", str(prompts), "--methods", methods]
    outcome = CliRunner().invoke(calibrate, [*argv, "--max-new-tokens", "8"])
    assert outcome.exit_code == 0, outcome.output
    assert f"{output}: 12 answers counted" in outcome.output
    counted = calibration_file.load(output).counts
    assert counted.keys() == set(BANDS)
    assert all(sum(taken for _, taken in band.values()) > 0 for band in counted.values())
    codes = [codes for band in counted.values() for codes in band]
    assert all(max(column) > NOT_LISTED for column in zip(*codes, strict=True)), "of every source"
    target = attach(load(checkpoint).model)
    host = ModelHost(target)
    requests = [
        Request([5, 7, 5, 7, 5], 12, SamplingParams(heat, seed=3), eos=()) for heat in (0.0, 1.0)
    ]
    found, plain = (
        [each.checked().tokens for each in Engine(target, method(m), host=host).generate(requests)]
        for m in (f"auto:calibration={output}", "ar")
    )
    assert found == plain


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("auto,goose", "method 'goose' uses no calibration: count with auto"),
        ("nothing", "unknown method 'nothing'"),
    ],
)
def test_methods_that_cannot_be_counted_with_are_refused(
    checkpoint: str, tmp_path: Path, prompts: Path, methods: str, message: str
) -> None:
    argv = [str(tmp_path / "c.json"), "--model", checkpoint, "--prompts", str(prompts)]
    with pytest.raises(DraftwoodError, match=message):
        CliRunner().invoke(calibrate, [*argv, "--methods", methods], catch_exceptions=False)
    assert not (tmp_path / "c.json").exists()


def test_methods_are_refused_before_the_model_is_loaded(tmp_path: Path, prompts: Path) -> None:
    argv = ("calibrate", str(tmp_path / "c.json"), "--prompts", str(prompts))
    err = refused(*argv, "--model", "/nowhere/at-all", "--methods", "auto,goose")
    assert "method 'goose' uses no calibration" in err

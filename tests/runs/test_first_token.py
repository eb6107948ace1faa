"""Times to the first token: what is opened once is opened before."""

import json
import sys

import pytest
from click.testing import CliRunner

from runs import first_token
from tests.lab.bench.llamacpp.fake_library import Llama, library


def test_a_file_is_opened_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", library())
    opened: list[int] = []
    honest = first_token.first_token

    def counted(*given: object) -> tuple[float, int]:
        found = honest(*given)  # type: ignore[arg-type]
        opened.append(len(Llama.opened))
        return found

    monkeypatch.setattr(first_token, "first_token", counted)
    asked = ["--methods", "ar,llamacpp", "--lengths", "300,900", "--prompts", "2"]
    done = CliRunner().invoke(first_token.main, [*asked, "--threads", "1"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["first_token"]
    assert set(found) == {"ar", "llamacpp"}
    assert set(found["llamacpp"]["milliseconds"]) == {"300", "900"}
    # Two methods, two lengths, a warm-up and two prompts each: the warm-up may open the file.
    assert len(opened) == 12
    assert opened[1] == opened[5]
    assert opened[7] == opened[11]

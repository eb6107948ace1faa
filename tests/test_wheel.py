"""The wheel holds all files of ``draftwood``: neither the build nor git leaves out a part."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from draftwood.methods.shipped_models import ASSETS, shipped_models

ROOT = Path(__file__).parents[1]
PARTS = ("head/config.json", "head/model.safetensors", "table.safetensors", "calibration.json")


def test_the_build_excludes_nothing() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["draftwood"]}
    assert build.keys() == {"targets"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="hatch reads git's ignore file")
def test_git_ignores_no_shipped_part() -> None:
    homes = [path.parent.relative_to(ROOT) for path in ASSETS.glob("*/model.json")]
    assert len(homes) == len(shipped_models(ASSETS)) >= 2
    paths = [str(home / part) for home in homes for part in PARTS]
    page = [path.relative_to(ROOT) for path in (ROOT / "draftwood/server/page").iterdir()]
    assert {path.suffix for path in page} == {".html", ".css", ".js", ".svg"}
    paths += map(str, page)
    found = subprocess.run(
        ["git", "check-ignore", "--no-index", *paths, "build/x"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["build/x"], "the check sees what is ignored"

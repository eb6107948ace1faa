"""What is built: the wheel holds all of ``draftwood`` and runs, the sdist holds the repository.

Slow tests build both as a release does, and install the wheel into an environment of its own.
"""

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from draftwood.methods.shipped_models import ASSETS, shipped_models
from tests.installed import failures, generated, methods

ROOT = Path(__file__).parents[1]
MOST = 40_000_000
"""Bytes of a wheel."""

WEIGHTS = "draftwood/assets/target/model.safetensors"
CHECKOUT = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the files")
PARTS = ("head/config.json", "head/model.safetensors", "table.safetensors", "calibration.json")


def test_the_build_excludes_nothing() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"] == {"packages": ["draftwood"]}
    assert build["targets"]["sdist"].keys() == {"include"}
    assert build.keys() == {"targets"}


@CHECKOUT
def test_the_sdist_includes_every_tracked_file_and_directory() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = build["targets"]["sdist"]["include"]
    assert all(each.startswith("/") for each in included), "a name alone means any depth"
    assert {each.partition("/")[0] for each in tracked()} == {each[1:] for each in included}


@CHECKOUT
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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory)]
    subprocess.run([*command, str(ROOT)], check=True)
    [sdist], [wheel] = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
@CHECKOUT
def test_the_built_files_hold_all_tracked_ones(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked() <= packed
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
    package = {each for each in tracked() if each.startswith("draftwood/")}
    assert WEIGHTS in package
    assert package <= installed
    own = {each for each in installed if ".dist-info/" not in each}
    assert {each.partition("/")[0] for each in own} == {"draftwood"}
    assert wheel.stat().st_size < MOST


@pytest.mark.slow
def test_the_links_of_the_readme_lead_somewhere_on_pypi(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        [name] = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(found) == len(re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text()))
    assert all(each.startswith("https://") for each in found)
    for start in (
        "https://raw.githubusercontent.com/draftwood/draftwood/main/",
        "https://github.com/draftwood/draftwood/blob/main/",
    ):
        paths = [each.removeprefix(start).partition("#")[0] for each in found if start in each]
        assert paths
        assert all((ROOT / path).exists() for path in paths)


@pytest.mark.slow
def test_the_wheel_runs_and_does_not_without_its_weights(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    assert failures(environment(tmp_path / "whole", built[1]), outside) == []

    poorer = without(WEIGHTS, built[1], tmp_path)
    light = {"methods": methods, "generate": generated}
    [found] = failures(environment(tmp_path / "poor", poorer), outside, light)
    assert found.startswith("generate: exit code 2")
    assert "cannot load model 'embedded'" in found


def tracked() -> set[str]:
    """The files that git tracks, as they are in the working tree."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {each for each in done.stdout.split("\0") if (ROOT / each).is_file()}


def environment(home: Path, wheel: Path) -> Path:
    """The interpreter of a new environment with the wheel, which sees the libraries of this one.

    Those are found by a path file, and the path files beside them are not read: a development
    install of Draftwood is not seen.
    """
    venv.create(home, symlinks=sys.platform != "win32")
    paths = sysconfig.get_paths("venv", {"base": str(home), "platbase": str(home)})
    python = Path(paths["scripts"]) / Path(sys.executable).name
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*command, "--no-index", "--no-deps", str(wheel)], check=True)
    libraries = dict.fromkeys(sysconfig.get_paths()[each] for each in ("purelib", "platlib"))
    (Path(paths["purelib"]) / "libraries.pth").write_text("\n".join(libraries))
    return python


def without(name: str, wheel: Path, directory: Path) -> Path:
    """A copy of the wheel that lacks one file."""
    made = directory / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            if entry.filename != name:
                new.writestr(entry, old.read(entry))
    return made

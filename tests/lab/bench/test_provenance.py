"""Provenance names the commit, the machine and the versions, or nothing where they are unknown."""

import json
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import torch

import draftwood
from draftwood.lab.bench.provenance import decisive, git_state, part_of, provenance


def git(directory: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *who, *arguments], cwd=directory, check=True, capture_output=True)


def installed() -> set[str]:
    return {distribution.metadata["Name"].replace("_", "-") for distribution in distributions()}


def test_a_checkout_has_a_commit_and_may_be_dirty(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    git(tmp_path, "init")
    assert git_state(package) is None  # not tracked: an installed copy inside some checkout
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = git_state(package)
    assert clean is not None
    assert isinstance(clean["commit"], str)
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (package / "__init__.py").write_text("x = 1\n")
    changed = git_state(package)
    assert changed is not None
    assert changed["dirty"] is True


def test_a_place_outside_git_has_no_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None


def test_everything_needed_to_repeat_the_run_is_there(tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("abc")
    found = provenance(model={"name": "tiny"}, settings={"repeats": 2}, sets=[prompts])
    json.dumps(found)
    assert found["hardware"]["cpu"]  # type: ignore[index]
    assert found["hardware"]["cpu_capability"]  # type: ignore[index]
    assert found["threads"] == torch.get_num_threads()
    assert found["settings"] == {"repeats": 2}
    versions = found["versions"]
    assert isinstance(versions, dict)
    assert versions["draftwood"] == draftwood.__version__
    assert versions["torch"] == torch.__version__
    for library in ("tokenizers", "safetensors", "llama-cpp-python", "gguf"):
        assert (library in versions) == (library in installed())
    files = found["prompts"]
    assert isinstance(files, list)
    assert files[0]["sha256"].startswith("ba7816bf")


def test_what_decides_a_run_is_neither_the_moment_nor_where_files_lie(tmp_path: Path) -> None:
    found = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        prompts = tmp_path / place / "p.jsonl"
        prompts.write_text("abc")
        settings = {"limit": 2, "prompts": [str(prompts)]}
        found.append(provenance(model={"name": "tiny"}, settings=settings, sets=[prompts]))
    first, second = found
    second |= {"command": "another", "date": "2001-01-01T00:00:00+00:00"}
    second["hardware"]["load_average"] = [9.0, 9.0, 9.0]  # type: ignore[index]
    assert decisive(first) == decisive(second)
    assert decisive(first)["prompts"] == {"p.jsonl": first["prompts"][0]["sha256"]}  # type: ignore[index]
    assert part_of(second) == {"date": second["date"], "load_average": [9.0, 9.0, 9.0]}
    for key in ("git", "versions", "hardware", "threads", "model", "prompts", "settings"):
        assert key in decisive(first)


def test_the_order_of_the_prompts_decides(tmp_path: Path) -> None:
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file in files:
        file.write_text(file.name)
    orders = [files, files[::-1], files]
    one, other, same = (decisive(provenance(model={}, settings={}, sets=order)) for order in orders)
    assert one == same != other

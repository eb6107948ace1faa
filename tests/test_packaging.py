"""The files around the package agree with it: metadata, workflows, issue forms, the image."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import draftwood
from draftwood.server.app import ROUTES

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHON = "Programming Language :: Python :: 3."
PYTHONS = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if each.startswith(PYTHON)]
FOR_DEVELOPERS = {"dev"}
PAPERS = ("GOOSE", "DynaTree", "TALON", "Traversal Verification")


def read(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict), path
    return found


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in read(workflow)["jobs"].values():
        yield from job.get("steps", [])


def commands() -> str:
    return "\n".join(step.get("run", "") for path in WORKFLOWS for step in steps(path))


def requirements() -> Iterator[Requirement]:
    """The requirements of the package and of what its tests need, extras included."""
    extras = PROJECT["optional-dependencies"]
    waiting = [*PROJECT["dependencies"], *extras["dev"]]
    while waiting:
        found = Requirement(waiting.pop())
        if found.name == "draftwood":
            waiting += [each for extra in found.extras for each in extras[extra]]
        else:
            yield found


def test_every_yaml_file_can_be_read() -> None:
    paths = [*GITHUB.rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
    assert len(paths) > 10
    for path in paths:
        assert read(path)


def test_the_workflows_test_the_supported_versions_of_python() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    jobs = read(GITHUB / "workflows/tests.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS
    named = [
        version
        for path in WORKFLOWS
        for step in steps(path)
        if isinstance(version := step.get("with", {}).get("python-version"), str)
        and not version.startswith("$")
    ]
    assert len(named) > 4
    assert set(named) <= set(PYTHONS)


def test_the_workflows_call_make_targets_that_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = re.findall(r"^make (\S+)", commands(), re.MULTILINE)
    assert {"check", "test", "test-all", "test-lowest"} <= set(called)
    assert set(called) <= set(targets)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_pinned_actions(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert set(job.get("permissions", {})) <= {"id-token", "pages"}
    actions = [step["uses"] for step in steps(path) if "uses" in step]
    for action in actions:
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_complete(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert len({each["id"] for each in fields}) == len(fields)
    assert any(each.get("validations", {}).get("required") for each in fields)
    reports = path.stem != "new_part"
    assert ("`draftwood doctor`" in path.read_text()) == reports


def test_the_citation_is_of_this_version_and_names_the_papers() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == draftwood.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    titles = [each["title"].lower() for each in citation["references"]]
    assert len(titles) == len(PAPERS)
    for paper, title in zip(PAPERS, titles, strict=True):
        assert title.startswith(paper.lower())


def test_every_extra_is_explained() -> None:
    page = (ROOT / "docs/python.md").read_text().partition("## Optional packages")[2]
    explained = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    extras = set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS
    assert sorted(explained) == sorted(extras)


def test_the_lowest_versions_are_those_of_the_requirements() -> None:
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    lowest = {
        each.name: f"{bound.major}.{bound.minor}.*"
        for each in requirements()
        if (bound := bound_of(each))
    }
    assert {name: version for name, version in pinned.items() if name in lowest} == {
        name: version for name, version in lowest.items() if name in pinned
    }
    own = {Requirement(each).name for each in PROJECT["dependencies"]}
    assert own <= pinned.keys()
    assert pinned.keys() - lowest.keys() == {"huggingface-hub"}, "transformers asks for it"


def bound_of(requirement: Requirement) -> Version | None:
    """The version from which on a requirement is met."""
    [specifier] = requirement.specifier
    return Version(specifier.version) if specifier.operator == ">=" else None


def test_the_image_asks_for_health_and_has_the_tested_torch() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert f"torch=={text.partition('ARG TORCH=')[2].split()[0]}" in (
        (ROOT / "constraints.txt").read_text().splitlines()
    )
    assert text.partition("ARG PYTHON=")[2].split()[0] in PYTHONS
    [path] = re.findall(r"http://127\.0\.0\.1:8000(/\w+)'", text)
    assert path in {route.path for route in ROUTES}
    assert re.search(r"^USER [1-9]", text, re.MULTILINE)
    copied = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert all((ROOT / each).exists() for each in copied)
    assert "draftwood" in copied

"""The pages of the documentation, as far as that shows without MkDocs; ``make docs`` builds them.

Links lead somewhere, pages are in the navigation, public names are in the reference.
"""

import importlib.util
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import docs_hooks
import draftwood
from tests.test_imports import LAYERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
]
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_ITEM = re.compile(r"(?:- |\d+\. )")


def links(markdown: str) -> list[str]:
    """The addresses that a page's links lead to."""
    return _LINK.findall(re.sub(r"`[^`\n]+`", "code", _FENCED.sub("", markdown)))


def broken(page: Path) -> Iterator[str]:
    """The links of a page that lead to no file or no heading."""
    for link in links(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md":
            headings = docs_hooks.heading_addresses(target.read_text(encoding="utf-8"))
            if anchor not in headings:
                yield f"{link}: no heading has this address"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert not [*broken(page)]


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `page`: with *words*\n\n[a](#a-page-with-words) [b](#b) [c](c.md) `[d](d.md)`\n\n"
        "```\n# no heading\n[e](e.md)\n```\n\n[f](#no-heading) [g](https://x.org/#y)\n",
        encoding="utf-8",
    )
    assert [each.partition(":")[0] for each in broken(page)] == ["#b", "c.md", "#no-heading"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_tables_stand_apart(page: Path) -> None:
    """GitHub sees a list or a table right below a paragraph, and the site does not."""
    assert not [*not_apart(page.read_text(encoding="utf-8"))]


def not_apart(markdown: str) -> Iterator[str]:
    """The first lines of lists and tables that follow a paragraph without an empty line."""
    before = ""
    for line in _FENCED.sub("", markdown).splitlines():
        text = bool(before.strip()) and not before.startswith((" ", "#", "<!--"))
        begins = line.startswith("| ") and not before.startswith("|")
        begins |= line.startswith("- ") and not _ITEM.match(before)
        if text and begins:
            yield line
        before = line


def test_lists_and_tables_that_do_not_are_found() -> None:
    text = "a\n\n- b\n  c\n- d\n\ne\n- f\n\n| g |\n|---|\n| h |\ni\n| j |\n"
    assert [*not_apart(text)] == ["- f", "| j |"]


Loader: Any = type("Loader", (yaml.SafeLoader,), {})
"""Reads mkdocs.yml without calling what it names."""
Loader.add_multi_constructor("!!python", lambda *_: None)
Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def navigation(entry: Any) -> list[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in navigation(part)]


def test_every_page_is_in_the_navigation() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    found = navigation(config["nav"])
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(found) == sorted(pages | {"changelog.md"})


def test_the_link_to_the_repository_asks_nobody() -> None:
    link = '<a href="https://github.com/a/b" class="md-source" data-md-component="source">b</a>'
    assert docs_hooks.quiet(link) == '<a href="https://github.com/a/b" class="md-source">b</a>'


def test_the_site_knows_its_address() -> None:
    """The site map, and the links of the page for addresses that do not exist, are made of it."""
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert config["site_url"] == project["urls"]["Documentation"]
    assert config["repo_url"] == project["urls"]["Repository"]


BESIDE = ("CONTRIBUTING.md", "examples/README.md", "hub/README.md")
READ = [*PAGES, *(ROOT / name for name in BESIDE)]
"""The pages of the site, and those that are read on GitHub or the Hub."""


def programs(text: str) -> set[str]:
    """The modules of the tests that a page has run."""
    return set(re.findall(r"python -m (tests(?:\.\w+)+)", text))


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_of_the_tests_that_pages_name_exist(page: Path) -> None:
    for name in programs(page.read_text(encoding="utf-8")):
        found = importlib.util.find_spec(name)
        assert found is not None, name
        if found.submodule_search_locations:
            assert importlib.util.find_spec(f"{name}.__main__") is not None, name


def test_contributors_are_told_of_everything_that_is_written() -> None:
    begins = re.compile(r'"""``python -m tests\.\w+``.* writes ')
    files = [*(ROOT / "tests").glob("*.py")]
    writing = {f"tests.{p.stem}" for p in files if begins.match(p.read_text(encoding="utf-8"))}
    assert len(writing) > 4
    assert programs((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")) >= writing


def from_the_index(text: str) -> list[str]:
    """Lines that install Draftwood from the package index, extras of an installed one aside."""
    installs = [line for line in text.splitlines() if re.search(r"\bpip\W+install\b", line)]
    name = re.compile(r"(?<![\w/.-])draftwood(?![\w/.\[-])")
    return [line for line in installs if name.search(re.sub(r"git\+\S+", "", line))]


def test_what_is_told_to_install_can_be_installed() -> None:
    """Draftwood is on no package index yet, as the first page says."""
    start = (DOCS / "index.md").read_text(encoding="utf-8")
    assert "Draftwood is not on PyPI yet." in start
    examples = ROOT / "examples"
    notebooks = [*(examples / "notebooks").glob("*.py"), *(examples / "notebooks").glob("*.ipynb")]
    for path in (*READ, *examples.glob("*.py"), *notebooks):
        assert not from_the_index(path.read_text(encoding="utf-8")), path
    assert len(notebooks) > 4
    for path in notebooks:
        assert "git+https://github.com/draftwood/draftwood" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line",
    ["    pip install draftwood", '["pip", "install", "draftwood"]', "`pip install a draftwood` b"],
)
def test_what_cannot_be_installed_is_found(line: str) -> None:
    assert from_the_index(line) == [line]


def test_every_public_name_is_in_the_reference_and_documented() -> None:
    assert docs_hooks.undocumented(ROOT) == []


def test_the_stub_has_the_public_names() -> None:
    names = {name for name in dir(draftwood) if not name.startswith("__")}
    assert docs_hooks.public(ROOT).keys() == names
    assert len(names) > 50
    assert not [name for name in names if not getattr(draftwood, name).__doc__]


def test_names_that_are_not_documented_are_found(tmp_path: Path) -> None:
    shutil.copytree(DOCS / "reference", tmp_path / "docs" / "reference")
    package = tmp_path / "draftwood"
    package.mkdir()
    for name, text in {
        "__init__.pyi": "from draftwood.a import A as A\nfrom draftwood.a import b as b\n"
        'def goose() -> None:\n    """Bare."""\ndef pld() -> None: ...\n',
        "a.py": 'from draftwood.c import b\nclass A:\n    """A."""\n    def m(self): ...\n',
        "c.py": 'def b():\n    """B."""\n',
    }.items():
        (package / name).write_text(text, encoding="utf-8")
    found = docs_hooks.undocumented(tmp_path)
    starts = ("A is in no page", "A.m has no docstring", "b is in no page", "pld has no docstring")
    assert len(found) == len(starts)
    for start, each in zip(starts, found, strict=True):
        assert each.startswith(f"draftwood.{start}")


REPOSITORY = "https://github.com/o/r"


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("why.md", "LOG.md", "LOG.md"),
        ("why.md", "auto.md#calibrating", "auto.md#calibrating"),
        ("why.md", "#layout", "#layout"),
        ("why.md", "https://x.org/a", "https://x.org/a"),
        ("why.md", "../README.md#limits", f"{REPOSITORY}/blob/main/README.md#limits"),
        ("why.md", "../runs/data/a.md", f"{REPOSITORY}/blob/main/runs/data/a.md"),
        ("why.md", "../CHANGELOG.md", "changelog.md"),
        ("reference/engine.md", "../python.md#the-engine", "../python.md#the-engine"),
        ("reference/engine.md", "../../README.md", f"{REPOSITORY}/blob/main/README.md"),
        ("changelog.md", "docs/gpu.md", "gpu.md"),
        ("changelog.md", "README.md", f"{REPOSITORY}/blob/main/README.md"),
    ],
)
def test_links_on_the_site(page: str, link: str, expected: str) -> None:
    text = docs_hooks.relinked(f"[a]({link})\n\n```\n[a]({link})\n```\n", page, REPOSITORY)
    assert text == f"[a]({expected})\n\n```\n[a]({link})\n```\n"


def test_names_in_docstrings_become_links() -> None:
    html = docs_hooks.referred("see :class:<code>draftwood.Engine</code>, <code>x</code>")
    name = '<autoref identifier="draftwood.Engine" optional><code>draftwood.Engine</code></autoref>'
    assert html == f"see {name}, <code>x</code>"


def test_lines_do_not_break_within_options() -> None:
    html = docs_hooks.unbroken("<p>--a</p><code>x --draft SMALL</code> <code>a-b</code>")
    option = '<span class="option">--draft</span>'
    assert html == f"<p>--a</p><code>x {option} SMALL</code> <code>a-b</code>"
    assert docs_hooks.unbroken("<code>--a</code>") == (
        '<code><span class="option">--a</span></code>'
    )


PICTURES = sorted(DOCS.glob("*.svg"))


def test_pictures_are_put_into_the_page_and_follow_its_colours() -> None:
    html = docs_hooks.pictured('<p><img alt="A tree" src="../tree.svg" /></p>', DOCS)
    assert html.startswith('<p><span class="picture" tabindex="0"><svg ')
    assert html.endswith("</svg> </span></p>")
    assert ':where([data-md-color-scheme="slate"]) {' in html
    assert "prefers-color-scheme" not in html


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_pictures_can_be_read(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert 'role="img" aria-label="' in text
    assert "@media (prefers-color-scheme: dark) {" in text
    sizes = [int(size) for size in re.findall(r"(\d+)px", text)]
    assert sizes
    assert min(sizes) >= 12


def test_the_picture_of_the_packages_shows_the_layers() -> None:
    text = (DOCS / "layers.svg").read_text(encoding="utf-8")
    shown = [set(names.split(" · ")) for names in re.findall(r'class="name"[^>]*>([^<]*)<', text)]
    assert shown == LAYERS[::-1]

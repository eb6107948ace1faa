"""What MkDocs needs beside it, so that pages that are written for GitHub work on the site as well.

MkDocs calls the functions whose names begin with ``on_`` (``hooks`` in mkdocs.yml). The others need
no MkDocs: tests use them, too.
"""

import ast
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
CHANGELOG = "CHANGELOG.md"

logger = logging.getLogger("mkdocs.docs_hooks")

_LINK = re.compile(r"(?<=\]\()[^()\s]+(?=\))")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([\w.]+)</code>")
_PICTURE = re.compile(r'<img alt="[^"]*" src="(?:\.\./)*([\w-]+\.svg)" ?/?>')
_CODE = re.compile(r"<code>--?[a-z][^<]*</code>|<code>[^<]* --?[a-z][^<]*</code>")
_OPTION = re.compile(r"(?<=[> ])--?[a-z][^\s<]{0,40}(?=[\s<])")
_DARK = "@media (prefers-color-scheme: dark)"
_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)

Definition = ast.FunctionDef | ast.ClassDef


def on_files(files: Any, config: Any) -> Any:
    """Add the changelog as a page."""
    from mkdocs.structure.files import File

    text = (ROOT / CHANGELOG).read_text(encoding="utf-8")
    files.append(File.generated(config, CHANGELOG.lower(), content=text))
    return files


def on_pre_build(config: Any) -> None:  # noqa: ARG001
    """Warn of public names that the reference lacks; with ``--strict`` the build fails."""
    for wrong in undocumented(ROOT):
        logger.warning(wrong)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001
    """Let links to files outside of ``docs`` lead to the repository."""
    repository = str(config["repo_url"]).rstrip("/")
    return relinked(markdown, page.file.src_uri, repository)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001
    """Link the names in docstrings, keep options whole, and put pictures into the page."""
    return pictured(unbroken(referred(html)), Path(config["docs_dir"]))


def on_post_page(output: str, page: Any, config: Any) -> str:  # noqa: ARG001
    """Let the link to the repository be a link only: pages load nothing from elsewhere."""
    return quiet(output)


def quiet(html: str) -> str:
    """A page whose link to the repository does not ask GitHub for its stars."""
    return html.replace(' data-md-component="source"', "")


def relinked(markdown: str, page: str, repository: str) -> str:
    """A page's text with the addresses that its links have on the site.

    Args:
        markdown: of the page; code blocks stay as they are.
        page: its path below ``docs``.
        repository: its address, without a slash at the end.
    """
    lines = []
    fence = ""
    for line in markdown.split("\n"):
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1] == fence:
            fence = ""
        elif not fence:
            line = _LINK.sub(lambda link: address(link[0], page, repository), line)
        lines.append(line)
    return "\n".join(lines)


def address(link: str, page: str, repository: str) -> str:
    """The address on the site of what a page's link leads to on GitHub."""
    path, mark, anchor = link.partition("#")
    if not path or ":" in path or path.startswith("/"):
        return link
    source = CHANGELOG if page == CHANGELOG.lower() else f"docs/{page}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target == CHANGELOG:
        target = f"docs/{CHANGELOG.lower()}"
    if not target.startswith("docs/"):
        return f"{repository}/blob/main/{target}{mark}{anchor}"
    return posixpath.relpath(target, f"docs/{posixpath.dirname(page)}") + mark + anchor


def referred(html: str) -> str:
    """A page with the names that docstrings refer to as links, where they are in the reference."""
    return _ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)


def unbroken(html: str) -> str:
    """A page whose lines do not break within an option, such as behind its two hyphens."""
    span = r'<span class="option">\g<0></span>'
    return _CODE.sub(lambda code: _OPTION.sub(span, code[0]), html)


def pictured(html: str, docs: Path) -> str:
    """A page with its SVG pictures in place of references, so that they follow its colours.

    A picture by itself can only follow the colours of the reader's system.
    """

    def inlined(found: re.Match[str]) -> str:
        picture = (docs / found[1]).read_text(encoding="utf-8")
        picture = picture.replace(_DARK, ':where([data-md-color-scheme="slate"])')
        lines = " ".join(picture.split("\n"))  # a blank line would end the paragraph
        return f'<span class="picture" tabindex="0">{lines}</span>'

    return _PICTURE.sub(inlined, html)


def undocumented(root: Path) -> list[str]:
    """What is wrong with the reference, a line each.

    Every name of the package has a directive in ``docs/reference`` and a docstring, and so have the
    public members of its classes. Sources are read, not imported.
    """
    pages = sorted((root / "docs" / "reference").glob("*.md"))
    shown = {name for page in pages for name in directives(page.read_text(encoding="utf-8"))}
    found = []
    for name, definition in public(root).items():
        if f"draftwood.{name}" not in shown:
            found.append(f"draftwood.{name} is in no page of docs/reference: add '::: draftwood.…'")
        if definition is None:
            found.append(f"draftwood.{name} is in the stub, and its definition is not found")
        else:
            found += [f"draftwood.{bare} has no docstring" for bare in _bare(name, definition)]
    return found


def directives(markdown: str) -> list[str]:
    """The names whose docstrings a page of the reference shows."""
    return _DIRECTIVE.findall(markdown)


def public(root: Path) -> dict[str, Definition | None]:
    """The public names of the package, as its stub has them, with what defines each."""
    found: dict[str, Definition | None] = {}
    stub = root / "draftwood" / "__init__.pyi"
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("draftwood."):
            for alias in node.names:
                found[alias.name] = defined(str(node.module), alias.name, root)
    return found


def defined(module: str, name: str, root: Path) -> Definition | None:
    """The definition of a module's name, through imports; None if there is none."""
    path = root.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, Definition) and node.name == name:
            return node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return defined(str(node.module), name, root)
    return None


def _bare(name: str, definition: Definition) -> Iterator[str]:
    """The name and its public members that lack a docstring."""
    if not ast.get_docstring(definition):
        yield name
    if isinstance(definition, ast.ClassDef):
        for node in definition.body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                yield from _bare(f"{name}.{node.name}", node)


def heading_addresses(markdown: str) -> list[str]:
    """The addresses that GitHub gives a page's headings, in order."""
    found: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
        elif not fence and (heading := re.match(r"#{1,6} +(.*?) *#*$", line)):
            found.append(slug(heading[1]))
    return found


def slug(heading: str) -> str:
    """The address of a heading: its words in lower case, joined by hyphens."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")

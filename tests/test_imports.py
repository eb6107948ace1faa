"""Imports point one way, siblings never import one another, and importing loads no model code."""

import ast
import subprocess
import sys
from pathlib import Path

import draftwood

PACKAGE = Path(draftwood.__file__).parent
# Layers from the bottom up; a module may import from its own layer's file or from lower layers.
LAYERS = [
    {"errors"},
    {"files", "tree"},
    {"protocols"},
    {"costs", "models", "sampling"},
    {"drafters", "methods", "policies", "runner", "verifiers"},
    {"engine"},
    {"integrations"},
    {"lab"},
    {"cli"},
]
SIBLINGS = ("drafters", "policies", "verifiers")


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name == "draftwood" or name.startswith("draftwood.")}


def layer(part: str) -> int:
    return next(i for i, parts in enumerate(LAYERS) if part in parts)


def modules() -> list[Path]:
    return [
        p for p in sorted(PACKAGE.rglob("*.py")) if p.name not in {"__init__.py", "__main__.py"}
    ]


def test_every_module_has_a_layer() -> None:
    tops = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in modules()}
    assert tops <= set().union(*LAYERS)


def test_imports_point_down() -> None:
    known = set().union(*LAYERS)
    for path in modules():
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imports_of(path):
            part = name.split(".")[1] if "." in name else ""
            if part in known and part != top:
                assert layer(part) < layer(top), f"{path.name} imports {name}"


def test_parts_do_not_import_their_siblings() -> None:
    """What parts of a kind share is in a module or package whose name begins with ``_``."""
    for kind in SIBLINGS:
        for path in (PACKAGE / kind).rglob("*.py"):
            own = (
                f"draftwood.{kind}.{path.relative_to(PACKAGE / kind).parts[0].removesuffix('.py')}"
            )
            wrong = {
                name
                for name in imports_of(path)
                if any(name.startswith(f"draftwood.{k}.") for k in SIBLINGS)
                and not name.startswith((f"draftwood.{kind}._", own))
            }
            assert not wrong or own.rpartition(".")[2].startswith("_"), f"{path} imports {wrong}"


def test_pure_parts_import_no_model_code() -> None:
    for path in [*(PACKAGE / "policies").glob("*.py"), *(PACKAGE / "verifiers").glob("*.py")]:
        assert "transformers" not in path.read_text()
    for path in (PACKAGE / "theory").glob("*.py"):
        assert "import torch" not in path.read_text()


def test_importing_the_package_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, draftwood; print({'torch', 'transformers'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"

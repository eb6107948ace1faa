"""Imports point down, siblings do not import one another, and importing loads no model code."""

import ast
import subprocess
import sys
from pathlib import Path

import draftwood

PACKAGE = Path(draftwood.__file__).parent
# From the bottom up. A package imports from lower layers only; packages of one layer do not import
# one another.
LAYERS = [
    {"errors"},
    {"files", "heap", "recordings", "tree"},
    {"protocols"},
    {"copies", "costs"},
    {"kernels"},
    {"grammars", "models", "sampling"},
    {"drafters", "methods", "policies", "runner", "verifiers"},
    {"engine"},
    {"integrations", "server"},
    {"lab"},
    {"cli"},
]
SIBLINGS = ("drafters", "policies", "verifiers")
WALK = "draftwood.verifiers.walk"
ALLOWED = {"draftwood.verifiers._residuals": {WALK, f"{WALK}.walk"}}
"""Unsampled siblings are walked, by the accept rule that a reader looks for in ``walk.py``."""


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            assert node.module
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name == "draftwood" or name.startswith("draftwood.")}


def layer(part: str) -> int:
    return next(i for i, parts in enumerate(LAYERS) if part in parts)


def modules() -> list[Path]:
    entries = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}  # above all layers
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p not in entries]


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
                and not f"{name}.".startswith((f"draftwood.{kind}._", f"{own}."))
            }
            assert wrong <= ALLOWED.get(own, set()), f"{path} imports {wrong}"


def loaded_by(code: str) -> set[str]:
    """Modules that a fresh process has loaded after running some code."""
    code += "\nimport sys\nprint('MODULES', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.rpartition("MODULES")[2].split())


PURE = ("tree", "protocols", "methods", "policies", "drafters/context", "drafters/adjacency")


def test_pure_modules_load_neither_torch_nor_transformers() -> None:
    """Other engines can use them."""
    paths = [p for name in PURE for p in [*(PACKAGE / name).rglob("*.py"), PACKAGE / f"{name}.py"]]
    paths += (PACKAGE / "lab" / "theory").rglob("*.py")
    names = [
        ".".join(("draftwood", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in paths
        if path.exists()
    ]
    assert len(names) > 40
    found = loaded_by(f"import {', '.join(names)}")
    assert set(names) <= found
    assert not found & {"torch", "transformers"}
    assert "torch" in loaded_by("import draftwood.runner.runner"), "the check sees what is loaded"


def test_the_package_loads_neither_torch_nor_transformers() -> None:
    assert not loaded_by("import draftwood") & {"torch", "transformers"}


DECODE = """
import draftwood
engine = draftwood.Engine.load("embedded", "goose")
engine.generate([draftwood.Request([1, 2, 3, 1, 2, 3], 4)])
"""


def test_decoding_with_goose_loads_nothing_of_lab_and_auto() -> None:
    found = loaded_by(DECODE)
    assert "draftwood.policies.spine" in found
    assert not {
        name for name in found if name.startswith(("draftwood.lab", "draftwood.policies.auto"))
    }


def test_verifiers_know_no_transformers() -> None:
    for path in (PACKAGE / "verifiers").rglob("*.py"):
        assert "transformers" not in path.read_text()

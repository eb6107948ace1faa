"""The package's names are listed, typed and documented, and so are the methods' functions."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import draftwood
from draftwood.errors import DraftwoodError
from draftwood.integrations.functions import function, python_name, signature
from draftwood.integrations.transformers import CustomGenerate
from draftwood.methods import method, recipes
from draftwood.methods.recipe import settings_of
from tests.factories.tiny_llama import tiny_llama
from tests.methods_page import PAGE
from tests.methods_page import written as written_page
from tests.stub import STUB, written

PACKAGE: Any = draftwood


def test_the_stub_equals_the_recipes() -> None:
    assert STUB.read_text() == written(), "run: python -m tests.stub"


def test_the_table_of_methods_is_what_the_recipes_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written_page(page), "run: python -m tests.methods_page"


def test_dir_lists_the_api_and_nothing_else() -> None:
    listed = {name for name in dir(draftwood) if not name.startswith("_")}
    assert listed == {*draftwood.__all__, *map(python_name, recipes())}
    assert {"auto", "opt_tree", "generate", "load", "embedded", "Engine"} <= listed
    assert "__version__" in dir(draftwood)
    for name in listed:
        assert callable(getattr(draftwood, name)), name
        assert inspect.getdoc(getattr(draftwood, name)), f"{name} has no docstring"


def test_listing_the_names_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, draftwood; dir(draftwood); hasattr(draftwood, 'gose');"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


@pytest.mark.parametrize("name", sorted(recipes()))
def test_a_methods_function(name: str) -> None:
    made = getattr(draftwood, python_name(name))
    assert made is getattr(draftwood, python_name(name))
    assert made.__name__ == python_name(name)
    assert made.__module__ == "draftwood"
    found = inspect.signature(made)
    settings = settings_of(recipes()[name])
    assert list(found.parameters) == [python_name(key) for key in settings]
    for key, setting in settings.items():
        parameter = found.parameters[python_name(key)]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == setting.default
        assert f"{python_name(key)}: {setting.help[:20]}" in made.__doc__
    assert isinstance(made(), CustomGenerate)
    assert made().method == method(name)


def test_settings_reach_the_method() -> None:
    assert PACKAGE.goose(budget=16, bypass="off").method == method("goose:budget=16:bypass=off")
    made = PACKAGE.tr(adjacency__width=5)
    assert made.method == method("tr:adjacency.width=5")
    # A default spelt out changes nothing.
    assert PACKAGE.talon(head=None).method == method("talon")
    assert PACKAGE.auto(drafter=None, draft=None).method == method("auto")
    everything = signature(recipes()["goose"]).parameters
    defaults = {name: p.default for name, p in everything.items()}
    assert PACKAGE.goose(**defaults).method == method("goose")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="'draftwood' has no attribute 'gose'") as caught:
        getattr(PACKAGE, "gose")  # noqa: B009
    assert caught.value.name == "gose"
    assert caught.value.obj is draftwood
    with pytest.raises(DraftwoodError, match="unknown method 'gose'"):
        function("gose")


@pytest.mark.parametrize(
    ("name", "settings", "complaint"),
    [
        ("goose", {"budget": 16.5}, "budget=16.5: expected int"),
        ("auto", {"budget": "x"}, "budget='x': expected int"),
        ("auto", {"budget": True}, "budget=True: expected int"),
        ("auto", {"budget": None}, "budget=None: expected int"),
        ("goose", {"rho": "half"}, "rho='half': expected float"),
        ("goose", {"bypass": "maybe"}, "bypass='maybe': expected one of distinct, paper, off"),
        ("goose", {"adjacency__bigram": "off"}, r"adjacency\.bigram='off': expected bool"),
        ("goose", {"context__lengths": 5}, r"context\.lengths=5: expected a tuple of int"),
        ("goose", {"context__lengths": (5, "4")}, r"context\.lengths=\(5, '4'\): expected int"),
        ("talon", {"draft": 5}, "draft=5: expected str or PreTrainedModel"),
        ("talon", {"head": 5}, "head=5: expected str"),
        ("goose", {"bugdet": 3}, "no setting 'bugdet'"),
        ("goose", {"budget": -1}, "budget"),
        ("talon", {"draft": None}, "draft=None: expected str or PreTrainedModel"),
    ],
)
def test_wrong_settings_are_refused(name: str, settings: dict[str, Any], complaint: str) -> None:
    for make in (getattr(draftwood, name), lambda **kw: method(name, **kw)):
        with pytest.raises(DraftwoodError, match=complaint):
            make(**settings)


def test_a_function_that_was_not_called_is_refused() -> None:
    model: Any = tiny_llama()
    ids = model.dummy_inputs["input_ids"] % 200
    with pytest.raises(DraftwoodError, match=r"custom_generate=draftwood\.auto\(\), with the"):
        model.generate(ids, max_new_tokens=2, custom_generate=PACKAGE.auto)
    with pytest.raises(DraftwoodError, match=r"draftwood\.opt_tree\(\) takes its settings by keyw"):
        PACKAGE.opt_tree(16)
    with pytest.raises(DraftwoodError, match="a method cannot be <function auto"):
        draftwood.generate(model, ids, PACKAGE.auto)


PROBE = """
import draftwood
made: draftwood.CustomGenerate = draftwood.auto(budget=3, layout="drawn", context__lengths=(4, 3))
draftwood.Engine
draftwood.gose()
draftwood.goose(budget="x")
draftwood.goose(bugdet=3)
draftwood.auto(layout="tree")
draftwood.auto(3)
draftwood.protocols.policy
"""


def test_a_type_checker_knows_the_functions(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    # The stub and the probe alone: what they import is not looked at.
    flags = ["--follow-imports=skip", f"--cache-dir={tmp_path}", "--config-file=", "--no-color"]
    out, _, _ = api.run([*flags, "--hide-error-context", str(STUB), str(probe)])
    wrong = {int(line.split(":")[1]) for line in out.splitlines() if "probe.py" in line}
    assert wrong == {5, 6, 7, 8, 9, 10}, out
    assert 'Module has no attribute "gose"' in out

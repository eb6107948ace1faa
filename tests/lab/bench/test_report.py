"""The page: whole, harmless whatever the document says, and readable without scripts."""

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.document import TreeExcerpt
from draftwood.lab.bench.plots import FIGURES, draw
from draftwood.lab.bench.report import heading
from draftwood.lab.bench.report.page import html, inline, page
from draftwood.lab.bench.report.traces import tree_of, visible
from draftwood.lab.bench.report.words import printable
from tests.factories.command_line import output_of, refused
from tests.lab.bench.documents import (
    document,
    excerpt,
    forecast,
    method,
    metrics,
    parsed,
    plain,
    ratio,
)

VOID = {"meta", "br", "input", "wbr"}
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u202e\ud800\x00"


class Page(HTMLParser):
    """Elements with their attributes, in order, and texts; wrong nesting is an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(key) == value for key, value in wanted.items())
        ]

    def words(self, *but: str) -> str:
        return "".join(data for tag, data in self.texts if tag not in {"script", "style", *but})


@pytest.fixture(scope="module")
def usual() -> Page:
    return Page(html(document()))


def section(id: str, **others: Any) -> str:
    """The HTML of one section of a document's page, without figures."""
    whole = page(document(**others))
    parts = re.findall(rf'<section id="{id}">.*?</section>', whole, flags=re.DOTALL)
    return parts[0] if parts else ""


def said(id: str, **others: Any) -> str:
    """The words of one section, on one line."""
    return " ".join(Page(section(id, **others)).words().split())


def summary(**others: Any) -> str:
    return " ".join(heading.sentences(document(**others)))


def test_everything_is_in_one_file(usual: Page) -> None:
    for tag, found in usual.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        for key, value in found.items():
            assert not key.startswith("on")
            if key in {"href", "src", "xlink:href"}:
                assert (value or "").startswith("#")
    style = "".join(data for tag, data in usual.texts if tag == "style")
    assert "@import" not in style
    assert not re.search(r"url\((?!#)", style)


def test_only_its_own_script_may_run(usual: Page) -> None:
    scripts = [data for tag, data in usual.texts if tag == "script"]
    assert len(usual.all("script")) == len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    (policy,) = usual.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert f"script-src 'sha256-{digest}';" in (policy["content"] or "")
    assert (policy["content"] or "").startswith("default-src 'none';")


def test_no_text_of_a_document_becomes_markup() -> None:
    steps = [
        {
            "route": EVIL,
            "drafted": 1,
            "depth": 1,
            "committed": [{"text": EVIL, "source": EVIL}, {"text": EVIL, "source": ""}],
            "rejected": [EVIL],
        }
    ]
    tree = {
        "step": 0,
        "parents": [-1, 0],
        "texts": [EVIL, EVIL],
        "sources": ["root", EVIL],
        "path": [1],
        "bonus": EVIL,
    }
    wrong = {
        "id": EVIL,
        "run_seed": 0,
        "repeat": 0,
        "turn": 0,
        "position": 1,
        "expected": 1,
        "found": None,
        "gap": 0.5,
        "bound": 1e-5,
        "near_tie": False,
    }
    sources = {EVIL: {"drafted": 8, "accepted": 2, "rate": ratio(0.25)}}
    predicted = forecast({EVIL: {3: (9, 2)}})
    evil = method(
        metrics(acceptance_by_source=sources, identical=3),
        settings={EVIL: EVIL},
        reliability={"all_steps": predicted, "late_steps": predicted},
        divergences=[wrong],
    )
    evil["by_task"] = {EVIL: evil["by_task"]["code"], "b": evil["by_task"]["chat"]}
    whole = html(
        document(
            methods={"ar": method(plain()), EVIL: evil},
            provenance={"model": {"name": EVIL}, EVIL: [EVIL, {EVIL: EVIL}], "date": EVIL},
            missing={EVIL: EVIL},
            excerpts=[excerpt(EVIL, EVIL, EVIL, prompt=EVIL, steps=steps, trees=[tree])],
        )
    )
    whole.encode("utf-8")
    for character in "\u202e\ud800\x00":
        assert character not in whole
    found = Page(whole)
    assert len(found.all("script")) == 1
    assert not found.all("img")
    assert not [key for _, attributes in found.elements for key in attributes if key == "onerror"]
    assert found.words().count("</script><script>alert(1)</script>") > 20


def test_headings_lead_down_without_a_gap(usual: Page) -> None:
    levels = [int(tag[1]) for tag, _ in usual.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_ids_are_one_of_a_kind_and_links_lead_somewhere(usual: Page) -> None:
    ids = [found["id"] for _, found in usual.elements if "id" in found]
    assert len(ids) == len(set(ids))
    links = [found["href"] for found in usual.all("a")]
    assert {link and link[1:] for link in links} <= set(ids)
    assert len(links) == 4  # two trees of each of two methods
    for tag, found in usual.elements:
        for value in found.values():
            for name in re.findall(r"url\(#([^)]*)\)", value or ""):
                assert name in ids, tag


def test_methods_are_listed_twice_fastest_first(usual: Page) -> None:
    names = [data for tag, data in Page(section("methods")).texts if tag == "th"]
    assert usual.words().count("Without looping outputs") == 1
    assert len(usual.all("table", **{"class": "sortable"})) == 2
    order = [name for name in names if name in ("goose:", "pld", "ar", "hf")]
    assert order == ["goose:", "pld", "ar", "hf"] * 2
    orders = [found.get("aria-sort") for found in usual.all("th", **{"data-kind": "number"})]
    assert [order for order in orders if order] == ["descending"] * 2


def test_figures_of_methods_have_intervals_and_keys() -> None:
    whole, calm = section("methods").split('class="variant calm"')
    row = whole[whole.index("goose:<wbr>budget=16") :].split("</tr>")[0]
    assert '<td data-key="2">2.00†<small>1.90–2.10</small></td>' in row
    assert '<td data-key="2.5">2.50†<small>2.45–2.55</small></td>' in row
    assert '<td data-key="0.3">30%†<small>25%–35%</small></td>' in row  # accepted
    assert '<td data-key="1">1</td><td data-key="0.3">30%<small>25%–35%</small></td>' in row
    assert '<td data-key="1">4 of 4</td>' in row
    calmer = calm[calm.index("goose:<wbr>budget=16") :].split("</tr>")[0]
    assert '<td data-key="2">2.00<small>1.95–2.05</small></td>' in calmer  # τ
    peers = whole[whole.index(">hf</th>") :].split("</tr>")[0]
    assert peers.count("<td>–</td>") == 3  # acceptance rate, δ and memory are not known


def test_figures_of_drafts_are_left_out_if_no_method_drafts_with_a_model() -> None:
    copying = metrics(draft_efficiency=ratio(0.0))
    methods = {"ar": method(plain()), "x": method(copying)}
    found = said("methods", methods=methods)
    assert "δ" not in found
    assert "predicted" not in found
    assert "predicted" in said("methods")
    assert "efficiency" not in draw(document(methods=methods))
    assert "efficiency" in draw(document())


def test_columns_without_a_value_are_left_out() -> None:
    methods = {"ar": method(plain()), "x": method(metrics())}
    for found in methods.values():
        nothing = {"median": None, "low": None, "high": None}
        found["speedup_vs_hf"] = found["without_looping"]["speedup_vs_hf"] = nothing
    assert "× hf" not in said("methods", methods=methods)
    assert "× hf" in said("methods")


def test_the_summary_says_what_came_out() -> None:
    found = summary()
    assert (
        "goose:budget=16 was the fastest: 2.00 times as fast as plain decoding (95 % interval 1.90 "
        "to 2.10), the median over 4 prompts, with 2.50 tokens for each forward of the model. "
        "Its median speed is 2.50 times that of hf. "
        "All 3 methods that were compared gave plain decoding's outputs. † 1 of 4 outputs "
        "loop (20% or more of an output's token 8-grams occur earlier in it; here 30% of all)"
    ) in found
    assert "not certain" not in found
    assert heading.warnings(document()) == []


def test_the_summary_is_honest_about_small_leads_slow_methods_and_differences() -> None:
    near = {"ar": method(plain()), "a": method(metrics(2.0)), "b": method(metrics(1.85))}
    assert "overlaps with that of b: the lead is not certain." in summary(methods=near)
    near["c"] = near["b"]
    assert "overlaps with those of 2 others" in summary(methods=near)
    wrong = method(metrics(0.9, identical=3, looping_texts=0), fault_prompts=1)
    slow = {"ar": method(plain()), "a": wrong}
    found = summary(methods=slow)
    assert "No method was faster than plain decoding: the fastest, a, came to 0.90" in found
    assert "a: 3 of 4 the same; 1 differs by more than rounding: a fault." in found
    assert "No method was compared with plain decoding. No output was" in summary(methods={})
    (warning,) = heading.warnings(document(complete=False))
    assert warning.startswith("This run was interrupted.")


def test_differences_are_told_from_near_ties() -> None:
    tie = {
        "id": "made/1",
        "run_seed": 0,
        "repeat": 0,
        "turn": 1,
        "position": 17,
        "expected": 5,
        "found": None,
        "gap": 2e-7,
        "bound": 1e-5,
        "near_tie": True,
    }
    real = {**tie, "id": "made/2", "found": 6, "gap": 0.25, "near_tie": False}
    odd = method(metrics(identical=3), divergences=[tie], rounding_prompts=1)
    methods = {"ar": method(plain()), "x": odd}
    rounded = "x: 3 of 4 the same; 1 differs by float32 rounding"
    assert f"{rounded}." in summary(methods=methods)
    found = said("equality", methods=methods)
    assert rounded in found
    assert "does not explain" not in found
    assert "1 near ties" in found
    assert "xmade/11175end2e-071e-05" in found
    both = method(
        metrics(identical=2), divergences=[tie, real], rounding_prompts=1, fault_prompts=1
    )
    methods["x"] = both
    faulty = "x: 2 of 4 the same; 1 differs by float32 rounding; 1 differs by more than rounding"
    assert f"{faulty}: a fault." in summary(methods=methods)
    assert 'class="wrong">2 of 4' in section("methods", methods=methods)
    found = said("equality", methods=methods)
    assert "1 first differences that rounding does not explain" in found
    assert "xmade/211756" + "0.25" in found
    assert "Every compared output had plain decoding's tokens." in said("equality")


def test_predicted_and_observed_acceptance_are_in_one_row() -> None:
    methods = {"ar": method(plain()), "auto:budget=9": method(metrics())}
    found = section("calibration", methods=methods)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in found.split("<tr>")[2:]]
    name = "auto:<wbr>budget=9"
    some = "+5.0%<small>+0.0% to +10.0%</small>"
    # 400 with a chance of 0.05 and 40 with 0.45 are 38, and 36 were taken; 17 of 20 and 8 of 10.
    assert rows == [
        [name, "steps, tokens", "80", "210.0", "200", some, "20", some],
        [
            *(name, "candidates of adjacency", "440", "38.0", "36"),
            *("+5.6%<small>+0.6% to +10.6%</small>", "0", "–"),
        ],
        [
            *(name, "candidates of context", "20", "17.0", "17"),
            *("+0.0%<small>-5.0% to +5.0%</small>", "10"),
            "+18.8%<small>+13.8% to +23.8%</small>",
        ],
    ]


def test_methods_without_predictions_have_no_calibration_table() -> None:
    assert section("calibration", methods={"ar": method(plain())}) == ""


def test_missing_peers_are_named_with_the_reason() -> None:
    assert said("missing") == "Missinghf-assistantno assistant fits"
    assert section("missing", missing={}) == ""


def test_provenance_is_there_in_short_and_whole() -> None:
    header = Page(page(document())).words().partition("Methods")[0]
    short, whole = header.split("Everything needed to repeat the run")
    assert short.endswith(
        "date 2025-01-31T12:00:00+00:00model embeddeddtype float32machine A Processorthreads 2"
        "draftwood 1.0torch 2.11commit 0123456789\n"
    )
    for part in ("0123456789abcdef0123456789abcdef01234567", "0" * 64, "max_new_tokens48"):
        assert part in whole
    git = {"commit": "abc", "dirty": True}
    assert heading.facts(document(provenance={"git": git})) == {"commit": "abc, with changes"}
    assert heading.facts(document(provenance={})) == {}


def test_every_figure_is_on_the_page_with_what_it_means(usual: Page) -> None:
    assert [found["id"] for found in usual.all("figure", **{"class": "plot"})] == [
        f"figure-{name}" for name in FIGURES
    ]
    labelled = [found for found in usual.all("svg") if found.get("aria-label")]
    assert len(labelled) == len(FIGURES) + 4
    assert usual.words().count("95 % interval") >= 4


def test_inline_figures_keep_to_themselves() -> None:
    file = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg width="3pt" height="4pt" viewBox="0 0 3 4">'
        "<metadata>\n<a/></metadata><defs><style>*{fill: red}</style></defs>"
        '<g id="a" style="fill: #1f2328; stroke: #ffffff"><use xlink:href="#b" fill="#ffffff"/></g>'
        '<path clip-path="url(#c)" style="fill: #1f2329"/></svg>'
    )
    assert inline(file, "x", 'T"') == (
        '<svg role="img" aria-label="T&#34;" viewBox="0 0 3 4"><defs></defs>'
        '<g id="x-a" style="fill: var(--ink); stroke: var(--paper)">'
        '<use xlink:href="#x-b" fill="#ffffff"/></g>'
        '<path clip-path="url(#x-c)" style="fill: #1f2329"/></svg>'
    )


def test_traces_show_the_source_of_each_token() -> None:
    found = section("traces")
    first = found[found.index('data-method="goose:budget=16"') :].split("</details>")[0]
    steps = first.split('<span class="step"')[1:]
    assert [re.findall(r'<(?:span|s) class="token ?(\w*)">(.*?)</', step) for step in steps] == [
        [("s0", "····"), ("s0", "return"), ("s1", " a"), ("", " -"), ("bonus", " +")],
        [("", "↵"), ("bonus", " b")],
    ]
    assert 'title="step 0, route spine: 5 drafted, 3 accepted"' in steps[0]
    assert "2 steps, 5 tokens, 2.50 a step" in first
    assert '<span class="prompt">def add(a, b):\n</span>' in first


def test_the_legend_names_every_source_in_the_colour_of_its_trees() -> None:
    whole = page(document())
    assert 'class="token s0">token</span> accepted from context' in whole
    assert 'class="token s1">token</span> accepted from adjacency' in whole
    assert ".s1 { background: hsl(30, 75%, 86%) }" in whole
    assert ".draftwood-tree .source-1 rect { fill: hsl(30, 75%, 86%) }" in whole
    # The second step's only node is from adjacency, which is the page's second source.
    second = whole[whole.index('aria-label="Tree of step 1"') :].split("</svg>")[0]
    assert "source-1" in second
    assert "source-0" not in second


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        (" the", " the"),
        ("a b", "a b"),
        (" ", "·"),
        ("    ", "····"),
        ("  x", "··x"),
        ("x ", "x·"),
        ("x  y", "x··y"),
        (":\n    ", ":↵|····"),
        ("\t\n", "⇥↵|"),
        ("", "∅"),
        ("\r\x1b\u202e", r"\r\x1b\u202e"),
        ("<é&漢", "<é&漢"),
    ],
)
def test_whitespace_is_visible(word: str, shown: str) -> None:
    assert visible(word, "|") == shown


def test_trees_are_drawn_with_the_path_and_without_kinds_of_draw() -> None:
    whole = page(document())
    first = whole[whole.index('aria-label="Tree of step 0"') :].split("</svg>")[0]
    assert "5 drafted, 3 accepted, route spine" in first
    assert first.count(" accepted&quot;") == 0
    assert first.count('accepted"><title>') == 3
    assert "log q" not in whole
    assert "deterministic" not in whole
    assert whole.count(".draftwood-tree .source-0 rect") == 2, "one style for all trees"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"texts": ("a",)}, r"tree of step 3 has 2 parents, 1 texts and 2 sources"),
        ({"sources": ("a",)}, "2 texts and 1 sources"),
        ({"parents": (0, 0)}, "as many of each, the root first"),
        ({"parents": (-1, 1)}, "node 1 of the document's tree of step 3 names parent 1, which is"),
        ({"parents": (-1, -1)}, "names parent -1"),
        ({"parents": (), "texts": (), "sources": ()}, "has 0 parents"),
    ],
)
def test_malformed_trees_are_refused(changes: dict[str, Any], complaint: str) -> None:
    usual = {"parents": (-1, 0), "texts": ("a", "b"), "sources": ("root", "x")}
    found = TreeExcerpt(step=3, path=(), bonus="", **{**usual, **changes})
    with pytest.raises(DraftwoodError, match=complaint):
        tree_of(found, "")


def test_siblings_of_one_text_stay_two() -> None:
    found = TreeExcerpt(0, (-1, 0, 0), ("a", "b", "b"), ("root", "x", "x"), (), "")
    assert tree_of(found, "wide").drafted == 2


def test_documents_without_excerpts_have_a_page_too() -> None:
    assert "The document quotes no outputs." in page(document(excerpts=[]))


def test_values_of_any_kind_can_be_shown() -> None:
    values = {"x": [1, "a<", None, True], "y": {"a": {}}, "z": [{"a": 1}, 2], "e": []}
    found = page(document(provenance=values))
    for part in (
        "<dt>x</dt><dd>1, a&lt;, –, true</dd>",
        "<dt>y</dt><dd><dl><dt>a</dt><dd>–</dd></dl></dd>",
        "<dt>z</dt><dd><dl><dt>a</dt><dd>1</dd></dl><br>2</dd>",
        "<dt>e</dt><dd>–</dd>",
    ):
        assert part in found
    assert printable("a\n\t\u2028") == "a\n\t\\u2028"


@pytest.mark.slow
def test_the_command_writes_the_page_and_the_figures(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(parsed()))
    target, directory = tmp_path / "out.html", tmp_path / "new" / "plots"
    out = output_of("report", str(file), "--html", str(target), "--plots", str(directory))
    assert target.read_text(encoding="utf-8") == html(document())
    made = [directory / f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
    assert out.splitlines() == [str(target), *map(str, made)]
    assert all(path.stat().st_size for path in made)


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    good, target = tmp_path / "run.json", tmp_path / "out.html"
    good.write_text(json.dumps(parsed()))
    files: dict[str, tuple[str | bytes, str]] = {
        "text.json": ("hello", "is not JSON"),
        "bytes.json": (b"\xff\xfe", "is not JSON"),
        "list.json": ("[1]", "list.json: not a 'bench --json' file"),
        "old.json": ('{"schema": 1}', "old.json: this document has schema 1, and this version"),
        "part.json": ('{"schema": 4}', "part.json: complete is missing"),
    }
    cases = [
        ([str(good)], "nothing to write: give --html OUT.html, --plots DIR or both"),
        ([str(tmp_path / "no.json"), "--html", str(target)], "no.json: No such file"),
        ([str(good), "--html", str(tmp_path / "no" / "x.html")], "cannot write to"),
        ([str(good), "--plots", str(good)], f"cannot make {good}: File exists"),
    ]
    for name, (content, complaint) in files.items():
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        cases.append(([str(path), "--html", str(target)], complaint))
    for argv, complaint in cases:
        assert complaint in refused("report", *argv)
    assert not target.exists()


@pytest.mark.parametrize("library", ["matplotlib", "scipy", "jinja2"])
def test_a_missing_library_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    target = tmp_path / "out.html"
    err = refused("report", str(tmp_path / "no.json"), "--html", str(target))
    assert f"needs {library}" in err
    assert "pip install 'draftwood[lab]'" in err

"""The page: whole, harmless whatever the document says, and readable without scripts."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.document import TreeExcerpt
from draftwood.lab.bench.plots import FIGURES
from draftwood.lab.bench.report import heading
from draftwood.lab.bench.report.page import html, inline, page
from draftwood.lab.bench.report.traces import tree_of, visible
from draftwood.lab.bench.report.words import printable
from tests.lab.bench.documents import (
    document,
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
def sample() -> Page:
    return Page(html(document()))


def difference(**changes: Any) -> dict[str, Any]:
    """A first difference; without changes a fault."""
    where = {"id": "made/1", "run_seed": 0, "repeat": 0, "turn": 1, "position": 17}
    tokens = {"expected": 5, "found": 6, "gap": 0.25, "bound": 1e-5, "near_tie": False}
    return {**where, **tokens, **changes}


def against(**found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Plain decoding and further methods with these figures."""
    return {"ar": method(plain())} | {name: method(whole) for name, whole in found.items()}


def rows(part: str) -> dict[str, list[str]]:
    """The texts of each row's cells, by the text of its first one."""
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in part.split("<tr>")[2:]]
    return {name: others for name, *others in cells}


def section(id: str, **others: Any) -> str:
    """The HTML of one section of a document's page, without figures."""
    whole = page(document(**others))
    parts = re.findall(rf'<section id="{id}">.*?</section>', whole, flags=re.DOTALL)
    return parts[0] if parts else ""


def text_of(id: str, **others: Any) -> str:
    """The words of one section, on one line."""
    return " ".join(Page(section(id, **others)).words().split())


def summary(**others: Any) -> str:
    return " ".join(heading.sentences(document(**others)))


def test_everything_is_in_one_file(sample: Page) -> None:
    for tag, found in sample.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        for key, value in found.items():
            assert not key.startswith("on")
            if key in {"href", "src", "xlink:href"}:
                assert (value or "").startswith("#")
    style = "".join(data for tag, data in sample.texts if tag == "style")
    assert "@import" not in style
    assert not re.search(r"url\((?!#)", style)


def test_only_its_own_script_may_run(sample: Page) -> None:
    scripts = [data for tag, data in sample.texts if tag == "script"]
    assert len(sample.all("script")) == len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    (policy,) = sample.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert f"script-src 'sha256-{digest}';" in (policy["content"] or "")
    assert (policy["content"] or "").startswith("default-src 'none';")


def evil(found: Any) -> Any:
    """The value with ``EVIL`` in place of every text."""
    if isinstance(found, dict):
        return {key: evil(value) for key, value in found.items()}
    if isinstance(found, list):
        return [evil(value) for value in found]
    return EVIL if isinstance(found, str) else found


def test_no_text_of_a_document_becomes_markup() -> None:
    whole = parsed()
    changed = {part: evil(whole[part]) for part in ("provenance", "missing", "excerpts")}
    changed["provenance"] |= {EVIL: [EVIL, {EVIL: EVIL}]}
    predicted = forecast({EVIL: {3: (9, 2)}})
    method_of_evil = method(
        metrics(
            acceptance_by_source={EVIL: {"drafted": 8, "accepted": 2, "rate": ratio(0.25)}},
            identical=3,
        ),
        settings={EVIL: EVIL},
        reliability={"all_steps": predicted, "late_steps": predicted},
        divergences=[difference(id=EVIL)],
    )
    method_of_evil["by_task"] = dict.fromkeys((EVIL, "b"), method_of_evil["by_task"]["code"])
    found = html(document(methods={"ar": method(plain()), EVIL: method_of_evil}, **changed))
    found.encode("utf-8")
    for character in "\u202e\ud800\x00":
        assert character not in found
    shown = Page(found)
    assert len(shown.all("script")) == 1
    assert not shown.all("img")
    assert not [key for _, attributes in shown.elements for key in attributes if key == "onerror"]
    assert shown.words().count("</script><script>alert(1)</script>") > 20


def test_headings_lead_down_without_a_gap(sample: Page) -> None:
    levels = [int(tag[1]) for tag, _ in sample.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_ids_are_one_of_a_kind_and_links_lead_somewhere(sample: Page) -> None:
    ids = [found["id"] for _, found in sample.elements if "id" in found]
    assert len(ids) == len(set(ids))
    links = [found["href"] for found in sample.all("a")]
    assert {link and link[1:] for link in links} <= set(ids)
    assert len(links) == 4  # two trees of each of two methods
    for tag, found in sample.elements:
        for value in found.values():
            for name in re.findall(r"url\(#([^)]*)\)", value or ""):
                assert name in ids, tag


def test_methods_are_listed_twice_fastest_first(sample: Page) -> None:
    for part in section("methods").split('class="variant calm"'):
        assert list(rows(part)) == ["goose:<wbr>budget=16", "pld", "ar", "hf"]
    assert len(sample.all("table", **{"class": "sortable"})) == 2
    orders = [found.get("aria-sort") for found in sample.all("th", **{"data-kind": "number"})]
    assert [order for order in orders if order] == ["descending"] * 2


def test_figures_of_methods_have_intervals_and_keys() -> None:
    whole, calm = section("methods").split('class="variant calm"')
    row = whole[whole.index("goose:<wbr>budget=16") :].split("</tr>")[0]
    for cell in (
        '<td data-key="2">2.00†<small>1.90–2.10</small></td>',
        '<td data-key="2.5">2.50†<small>2.45–2.55</small></td>',
        '<td data-key="0.3">30%†<small>25%–35%</small></td>',  # accepted
        '<td data-key="1">1</td><td data-key="0.3">30%<small>25%–35%</small></td>',
        '<td data-key="1">4 of 4</td>',
    ):
        assert cell in row
    assert "2.00<small>1.95–2.05</small>" in rows(calm)["goose:<wbr>budget=16"]  # τ
    assert rows(whole)["hf"].count("–") == 3  # acceptance rate, δ and memory are not known


def test_columns_without_a_value_are_left_out() -> None:
    nothing = {"median": None, "low": None, "high": None}
    methods = against(x=metrics(draft_efficiency=ratio(0.0)))
    for entry in methods.values():
        entry["speedup_vs_hf"] = entry["without_looping"]["speedup_vs_hf"] = nothing
    found = text_of("methods", methods=methods)
    for heading_of in ("× hf", "δ", "predicted"):
        assert heading_of not in found
        assert heading_of in text_of("methods")


def test_published_and_best_settings_are_in_one_row() -> None:
    best = {
        "file": "best.json",
        "by": "tokens_per_second",
        "disturbed": None,
        "methods": {"goose": {"published": "goose", "best": "goose:budget=16"}},
    }
    methods = against(**{"goose": metrics(1.5), "goose:budget=16": metrics(2.0)})
    found = section("methods", methods=methods, best=best).rpartition('best setting"')[2]
    assert rows(found)["goose"][1::3] == [
        "1.50†<small>1.40–1.60</small>",
        "2.00†<small>1.90–2.10</small>",
    ]
    assert rows(found)["goose"][-1] == "goose:budget=16"
    del methods["goose"]
    assert "As published" not in text_of("methods", methods=methods, best=best)


def test_the_summary_says_what_came_out() -> None:
    found = summary()
    assert (
        "goose:budget=16 was the fastest: 2.00 times as fast as plain decoding (95 % interval 1.90 "
        "to 2.10), the median over 4 prompts, with 2.50 tokens for each forward of the model. "
        "Its median speed is 2.50 times that of hf. "
        "All 3 methods that were compared gave plain decoding's outputs. † 1 of 4 outputs "
    ) in found
    assert "not certain" not in found
    assert heading.warnings(document()) == []


def test_the_summary_is_honest_about_small_leads_slow_methods_and_differences() -> None:
    near = against(a=metrics(2.0), b=metrics(1.85))
    assert "overlaps with that of b: the lead is not certain." in summary(methods=near)
    assert "overlaps with those of 2 others" in summary(methods={**near, "c": near["b"]})
    slow = against(a=metrics(0.9, identical=3, looping_texts=0), b=metrics(0.5))
    slow["a"]["fault_prompts"] = 1
    found = summary(methods=slow)
    assert "No method was faster than plain decoding: the fastest, a, came to 0.90" in found
    assert "1 of 2 methods that were compared gave plain decoding's outputs." in found
    assert "a: 3 of 4 the same; 1 differs by more than rounding: a fault." in found
    assert "No method was compared with plain decoding. No output was" in summary(methods={})
    (warning,) = heading.warnings(document(complete=False))
    assert warning.startswith("This run was interrupted.")


TIE = difference(found=None, gap=2e-7, near_tie=True)


@pytest.mark.parametrize("faults", [[], [difference(id="made/2")]])
def test_differences_are_told_from_near_ties(faults: list[dict[str, Any]]) -> None:
    methods = against(x=metrics(identical=3 - len(faults)))
    methods["x"] |= {
        "divergences": [TIE, *faults],
        "rounding_prompts": 1,
        "fault_prompts": len(faults),
    }
    verdict = f"x: {3 - len(faults)} of 4 the same; 1 differs by float32 rounding"
    if faults:
        verdict += "; 1 differs by more than rounding: a fault"
    assert f"{verdict}." in summary(methods=methods)
    found = text_of("equality", methods=methods)
    assert verdict in found
    assert "1 near ties" in found
    assert "xmade/11175end2e-071e-05" in found
    assert ("1 first differences that rounding does not explain" in found) == bool(faults)
    assert ("xmade/2117560.25" in found) == bool(faults)
    assert ('class="wrong">2 of 4' in section("methods", methods=methods)) == bool(faults)


def test_equal_outputs_and_uncompared_ones_are_told_apart() -> None:
    assert "Every compared output had plain decoding's tokens." in text_of("equality")
    assert "No output was compared." in text_of("equality", methods=against())


def test_predicted_and_observed_acceptance_are_in_one_row() -> None:
    found = section("calibration", methods=against(auto=metrics()))
    some = "+5.0%<small>+0.0% to +10.0%</small>"
    # 400 with probability 0.05 and 40 with 0.45 are 38, and 36 were accepted; 17 of 20, 8 of 10.
    assert [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in found.split("<tr>")[2:]] == [
        ["steps, tokens", "80", "210.0", "200", some, "20", some],
        [
            *("candidates of adjacency", "440", "38.0", "36"),
            *("+5.6%<small>+0.6% to +10.6%</small>", "0", "–"),
        ],
        [
            *("candidates of context", "20", "17.0", "17"),
            *("+0.0%<small>-5.0% to +5.0%</small>", "10"),
            "+18.8%<small>+13.8% to +23.8%</small>",
        ],
    ]
    assert section("calibration", methods=against()) == ""


def test_missing_peers_are_named_with_the_reason() -> None:
    assert text_of("missing") == "Missinghf-assistantno assistant fits"
    assert section("missing", missing={}) == ""


def test_provenance_is_there_in_short_and_whole() -> None:
    header = Page(page(document())).words().partition("Methods")[0]
    short, whole = header.split("Everything needed to repeat the run")
    for part in (
        "model embedded",
        "machine A Processor, AVX2",
        "torch 2.11",
        "commit 0123456789\n",
    ):
        assert part in short
    for part in ("0123456789abcdef0123456789abcdef01234567", "0" * 64, "max_new_tokens48"):
        assert part in whole
    git = {"commit": "abc", "dirty": True}
    assert heading.facts(document(provenance={"git": git})) == {"commit": "abc, with changes"}
    assert heading.facts(document(provenance={})) == {}


def test_every_figure_is_on_the_page_with_what_it_means(sample: Page) -> None:
    assert [found["id"] for found in sample.all("figure", **{"class": "plot"})] == [
        f"figure-{name}" for name in FIGURES
    ]
    labelled = [found for found in sample.all("svg") if found.get("aria-label")]
    assert len(labelled) == len(FIGURES) + 4
    assert sample.words().count("95 % interval") >= 4


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
    sound = {"parents": (-1, 0), "texts": ("a", "b"), "sources": ("root", "x")}
    found = TreeExcerpt(step=3, path=(), bonus="", **{**sound, **changes})
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

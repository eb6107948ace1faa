"""A tree as SVG: what is in it, where it stands, what is escaped; and ``draftwood tree --svg``."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.picture import LONGEST, svg
from draftwood.lab.picture.svg import WIDEST
from draftwood.tree import Draw, TokenTree, TreeBuilder, tree_of
from tests.factories.command_line import output_of, refused, run

PROMPT = "abc abc abc "


SVG = "{http://www.w3.org/2000/svg}"
PATH = (1, 3, 5)
TEXTS = ["root", "a", "b", '<&"', "d", "\n\x00", "f"]


def mixed() -> TokenTree:
    """Two sources and every kind of draw: 0 -> 1, 2; 1 -> 3, 4; 3 -> 5, 6."""
    builder = TreeBuilder(10)
    builder.add(0, 11, "context", logq=-0.25)
    builder.add(0, 12, "adjacency")
    builder.add(1, 13, "context", draw=Draw.WITHOUT_REPLACEMENT, q_row=0)
    builder.add(1, 14, "context", draw=Draw.WITHOUT_REPLACEMENT, q_row=0)
    builder.add(3, 15, "adjacency", draw=Draw.IID, q_row=1)
    builder.add(3, 16, "adjacency")
    return builder.build("spine")


def drawn(
    tree: TokenTree, texts: Sequence[str], path: Sequence[int] = (), bonus: str | None = None
) -> ET.Element:
    return ET.fromstring(svg(tree, path, texts, bonus))


def groups(root: ET.Element, name: str) -> list[ET.Element]:
    return [group for group in root.iter(f"{SVG}g") if name in group.get("class", "").split()]


def words(element: ET.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def legend(root: ET.Element) -> list[str]:
    """The words beside the swatches: between the caption and the nodes."""
    loose = [text.text or "" for text in root.findall(f"{SVG}text")]
    assert len(loose) - 1 == len(groups(root, "key"))
    return loose[1:]


def corner(group: ET.Element) -> tuple[int, int]:
    rect = group.find(f"{SVG}rect")
    assert rect is not None
    return int(rect.get("x", "")), int(rect.get("y", ""))


def test_every_node_is_there_once_in_order_with_its_text() -> None:
    root = drawn(mixed(), TEXTS)
    assert [words(node) for node in groups(root, "node")] == [[repr(text)] for text in TEXTS]
    assert {path.get("class") for path in root.findall(f"{SVG}path")} == {None}
    assert len(root.findall(f"{SVG}path")) == 6
    assert groups(root, "accepted") == groups(root, "bonus") == []
    assert words(root)[0] == "6 drafted, 0 accepted, route spine"


def test_the_accepted_path_is_marked_and_nothing_else() -> None:
    root = drawn(mixed(), TEXTS, PATH, "end")
    nodes = groups(root, "node")
    assert [i for i, node in enumerate(nodes) if node in groups(root, "accepted")] == list(PATH)
    assert [i for i, node in enumerate(nodes) if "✓" in words(node)[0]] == list(PATH)
    edges = [path.get("class") for path in root.findall(f"{SVG}path")]
    # Three nodes of the path and the bonus, painted over the other three edges.
    assert edges == [None] * 3 + ["committed"] * 4


def test_the_bonus_hangs_off_the_last_accepted_node() -> None:
    root = drawn(mixed(), TEXTS, (1,), "end")
    (bonus,) = (group for group in groups(root, "bonus") if group not in groups(root, "key"))
    assert words(bonus) == ["'end'"]
    nodes = groups(root, "node")
    assert corner(bonus)[0] == corner(nodes[3])[0]  # in the column of node 1's children
    assert corner(nodes[4])[1] < corner(bonus)[1] < corner(nodes[2])[1]  # below the last of them


def test_depth_runs_right_and_first_children_share_their_parents_row() -> None:
    lefts, tops = zip(*map(corner, groups(drawn(mixed(), TEXTS), "node")), strict=True)
    assert tops[0] == tops[1] == tops[3] == tops[5] < tops[6] < tops[4] < tops[2]
    assert lefts[0] < lefts[1] == lefts[2] < lefts[3] == lefts[4] < lefts[5] == lefts[6]


def test_everything_lies_within_the_canvas() -> None:
    root = drawn(mixed(), TEXTS, PATH, "a long last token")
    width, height = int(root.get("width", "")), int(root.get("height", ""))
    for rect in root.iter(f"{SVG}rect"):
        assert int(rect.get("x", "0")) + int(rect.get("width", "")) <= width
        assert int(rect.get("y", "0")) + int(rect.get("height", "")) <= height


def test_classes_tell_source_and_draw_and_the_legend_explains_them() -> None:
    text = svg(mixed(), PATH, TEXTS, "end")
    root = ET.fromstring(text)
    nodes = groups(root, "node")
    kinds = ("source-0", "source-1", "one-hot", "without-replacement", "iid")
    members = {kind: [nodes.index(n) for n in nodes if n in groups(root, kind)] for kind in kinds}
    assert list(members.values()) == [[1, 3, 4], [2, 5, 6], [1, 2, 6], [3, 4], [5]]
    assert legend(root) == [
        "context",
        "adjacency",
        "accepted",
        "bonus",
        "deterministic",
        "drawn without replacement",
        "drawn independently",
    ]
    dashes = re.findall(r"\.(\S+) rect { stroke-dasharray: ([^;}]*)", text)
    assert [kind for kind, _ in dashes] == ["without-replacement", "iid", "coupled"]
    assert len({dash.strip() for _, dash in dashes}) == 3


def test_a_tree_without_draws_has_no_outlines_to_explain() -> None:
    assert legend(drawn(tree_of([1, 2], [-1, 0]), ["a", "b"])) == ["given"]


def test_many_sources_have_different_colours() -> None:
    builder = TreeBuilder(0)
    for token in range(12):
        builder.add(0, token, f"source {token}")
    fills = re.findall(r"\.source-\d+ rect { fill: (.*?) }", svg(builder.build(), (), ["x"] * 13))
    assert len(fills) == len(set(fills)) == 24  # on light and on dark pages


def test_text_is_escaped_and_control_characters_are_spelt_out() -> None:
    text = svg(mixed(), PATH, TEXTS, '</text><script>"&')
    assert "&#x27;&lt;&amp;&quot;&#x27;" in text
    assert "<script" not in text
    root = ET.fromstring(text)
    assert words(groups(root, "node")[5]) == ["'\\n\\x00' ✓"]
    assert root.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve"


@pytest.mark.parametrize("character", ["\x00", "\ud800", "\uffff", "\x1b", "\u202e", "\u2028"])
def test_what_xml_forbids_or_turns_around_never_reaches_it(character: str) -> None:
    text = svg(tree_of([1], [-1]), (), [character])
    assert character not in text
    ET.fromstring(text.encode("utf-8"))


def test_names_are_escaped_too() -> None:
    builder = TreeBuilder(0)
    builder.add(0, 1, "<s&")
    root = drawn(builder.build('"<r'), ["a", "b"])
    assert legend(root) == ["<s&"]
    assert words(root)[0] == root.get("aria-label") == '1 drafted, 0 accepted, route "<r'


def test_long_texts_are_cut_where_they_are_shown_and_whole_in_the_tooltip() -> None:
    long, wide, fits = "x" * 50, "漢" * 30, "y" * (LONGEST - 2)
    root = drawn(tree_of([1, 2, 3], [-1, 0, 1]), [long, wide, fits])
    shown = [words(node)[0] for node in groups(root, "node")]
    assert shown == [f"'{'x' * (LONGEST - 2)}…", f"'{'漢' * 11}…", f"'{fits}'"]
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert titles[0] == f"'{long}', the anchor: committed before this step"
    assert titles[1] == f"'{wide}' from given, deterministic, log q 0.000"


@pytest.mark.parametrize("nodes", [1, 2000])
def test_roots_alone_and_deep_chains_can_be_drawn(nodes: int) -> None:
    root = drawn(tree_of(range(nodes), range(-1, nodes - 1)), ["x"] * nodes)
    assert len(groups(root, "node")) == nodes
    assert len(root.findall(f"{SVG}path")) == nodes - 1


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = svg(mixed(), PATH, TEXTS, "end")
    assert text.replace('xmlns="http://www.w3.org/2000/svg"', "").count("http") == 0
    for foreign in ("url(", "@import", "@font-face", "<script", "href", " id="):
        assert foreign not in text
    style = ET.fromstring(text).findtext(f"{SVG}style") or ""
    assert style.count("{") == style.count("}") > style.count("@media (prefers-color-scheme: dark)")


@pytest.mark.parametrize(
    ("path", "texts", "complaint"),
    [
        ((), TEXTS[:-1], "7 nodes have 6 texts"),
        ((3,), TEXTS, r"\[3\] is no path"),
        ((1, 2), TEXTS, r"\[1, 2\] is no path"),
        ((0, 1), TEXTS, r"\[0, 1\] is no path"),
        ((7,), TEXTS, r"\[7\] is no path"),
        ((-1,), TEXTS, r"\[-1\] is no path"),
    ],
)
def test_what_does_not_fit_the_tree_is_refused(
    path: tuple[int, ...], texts: list[str], complaint: str
) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        svg(mixed(), path, texts)


def test_a_long_chain_is_shown_at_the_width_of_a_screen() -> None:
    root = drawn(tree_of(range(31), range(-1, 30)), ["a long token"] * 31)
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    assert width > WIDEST
    assert float(str(root.get("width"))) == WIDEST
    assert float(str(root.get("height"))) == pytest.approx(height * WIDEST / width, abs=0.01)


def test_the_command_writes_the_tree_it_prints(checkpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.svg"
    flags = ("--model", checkpoint, "--method", "goose", "--budget", "6")
    printed = output_of("tree", PROMPT, *flags, "--svg", str(file))
    assert run("tree", PROMPT, *flags)[1] == printed
    root = ET.fromstring(file.read_text(encoding="utf-8"))
    assert words(root)[0].startswith("goose, step ")
    assert f" after {' '.join(PROMPT.split())!r}: " in words(root)[0]
    # A line that names the step, then one a node, the root's with the caption.
    assert len(groups(root, "node")) == len(printed.splitlines()) - 1 > 1
    assert words(root)[0].partition(": ")[2] in " ".join(printed.split())
    assert len(groups(root, "accepted")) - ("accepted" in legend(root)) == printed.count("✓") - 1
    assert "bonus" in legend(root)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tree.svg"]


def test_a_step_that_never_comes_leaves_the_old_picture(checkpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.svg"
    file.write_text("old")
    assert "steps" in refused(
        "tree", PROMPT, "--model", checkpoint, "--step", "999", "--svg", str(file)
    )
    assert file.read_text() == "old"


def test_wrong_places_are_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "tree.svg"
    for argv, complaint in (
        (
            ["x", "--svg", str(missing)],
            f"cannot write to {missing.parent}: there is no such directory",
        ),
        (["x", "--svg", str(tmp_path)], "is a directory: name a file in it"),
    ):
        assert complaint in refused("tree", "--model", "/nowhere/at-all", *argv)
    assert list(tmp_path.iterdir()) == []

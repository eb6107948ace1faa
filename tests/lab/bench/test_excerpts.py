"""The first steps of an answer in words."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from draftwood.engine.stats import StepStats
from draftwood.lab.bench.document import Committed, Excerpt, StepExcerpt, TreeExcerpt
from draftwood.lab.bench.excerpts import excerpt, first_of_each_task
from draftwood.lab.bench.prompts import Prompt
from tests.factories.bench_rows import step, tree
from tests.factories.tiny_llama import tiny_tokenizer

# Nodes 1 "a", 2 "b" below the root; "c", "d" below "b"; "e" below "d".
BRANCHED = tree(
    [-1, 0, 0, 2, 2, 4],
    [ord(c) for c in "rabcde"],
    ["root", "x", "y", "x", "y", "y"],
    route="spine",
)

PROMPT = Prompt("a/0", "code", "a", ("x",))


LETTERS: Any = SimpleNamespace(decode=lambda ids, **_: "".join(map(chr, ids)))
"""A tokenizer whose tokens are characters."""


def quoted(context: Sequence[int], answer: Sequence[int], steps: Sequence[StepStats]) -> Excerpt:
    return excerpt(LETTERS, "goose", PROMPT, context, answer, steps)


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def test_a_step_tells_what_was_kept_from_whom_and_what_was_not() -> None:
    found = quoted(ids("so far"), ids("rb!"), [step(BRANCHED, (2,))])
    assert (found.method, found.id, found.set, found.task) == ("goose", "a/0", "a", "code")
    assert found.prompt == "so far"
    assert found.steps == (
        StepExcerpt(
            route="spine",
            drafted=5,
            depth=3,
            committed=(Committed("b", "y"), Committed("!", "")),
            rejected=("c",),
        ),
    )
    assert found.trees == (
        TreeExcerpt(
            step=0,
            parents=(-1, 0, 0, 2, 2, 4),
            texts=("r", "a", "b", "c", "d", "e"),
            sources=("root", "x", "y", "x", "y", "y"),
            path=(2,),
            bonus="!",
        ),
    )


@pytest.mark.parametrize(
    ("path", "rejected"), [((), ("a",)), ((2, 4), ("e",)), ((1,), ()), ((2, 4, 5), ())]
)
def test_the_rejected_chain_begins_below_the_last_accepted_node(
    path: tuple[int, ...], rejected: tuple[str, ...]
) -> None:
    (found,) = quoted(ids("x"), ids("r" + "?" * 9), [step(BRANCHED, path)]).steps
    assert found.rejected == rejected


def test_an_answer_that_ends_inside_a_path_has_no_bonus() -> None:
    # The tree's "d" ended the text: of "b", "d", "e" and a bonus, two were committed.
    found = quoted(ids("x"), ids("rbd"), [step(BRANCHED, (2, 4, 5), committed=2)])
    assert found.steps[0].committed == (Committed("b", "y"), Committed("d", "y"))
    assert found.trees[0].bonus == ""


def test_each_step_goes_on_where_the_last_one_ended() -> None:
    steps = [step(tree([-1]), ()), step(BRANCHED, (2, 4)), step(tree([-1]), ())]
    found = quoted(ids("x"), ids("0" + "1" + "bd2" + "3"), steps)
    said = [[token.text for token in one.committed] for one in found.steps]
    assert said == [["1"], ["b", "d", "2"], ["3"]]
    assert [shown.step for shown in found.trees] == [1]


def test_lengths_are_limited_and_trees_evenly_spaced() -> None:
    # Twelve nodes in a chain, none accepted, in every second step.
    chain = tree([-1, *range(12)])
    steps = [step(tree([-1]), ()) if i % 2 else step(chain, ()) for i in range(60)]
    found = quoted(ids("y" * 299 + "zz"), ids("." * 61), steps)
    assert found.prompt == "y" * 298 + "zz"
    assert len(found.steps) == 48
    assert found.steps[0].rejected == tuple(chr(101 + i) for i in range(8))
    assert [shown.step for shown in found.trees] == [0, 16, 32]
    few = quoted(ids("x"), ids("..."), steps[:2])
    assert [shown.step for shown in few.trees] == [0]


def test_only_the_first_prompt_of_a_task_is_quoted() -> None:
    prompts = [
        PROMPT,
        Prompt("a/1", "code", "a", ("x",)),
        Prompt("b/0", "code", "b", ("x",)),
        Prompt("b/1", "chat", "b", ("x",)),
    ]
    assert first_of_each_task(prompts) == {"a/0", "b/1"}


def test_texts_are_the_tokenizers_special_tokens_included() -> None:
    tokenizer = tiny_tokenizer()
    hello, eos = tokenizer.encode("hé"), 256
    plain = [step(tree([-1]), ())]
    found = excerpt(tokenizer, "goose", PROMPT, [*hello, eos], [hello[0], eos], plain)
    assert found.prompt == "hé<eos>"
    assert found.steps[0].committed == (Committed("<eos>", ""),)

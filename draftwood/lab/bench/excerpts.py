"""Excerpts of answers: drafted, committed and rejected tokens of the first steps, as text.

Made outside the clock, of the first prompt of each task only. Knows nothing of how a report shows
them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from draftwood.engine.stats import StepStats
from draftwood.lab.bench.document import Committed, Excerpt, StepExcerpt, TreeExcerpt
from draftwood.lab.bench.prompts import Prompt
from draftwood.tree import ROOT, TokenTree

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROMPT_CHARACTERS = 300
STEPS = 48
TREES = 3
REJECTED = 8


def first_of_each_task(prompts: Sequence[Prompt]) -> frozenset[str]:
    """The ids of the prompts that are excerpted."""
    return frozenset({prompt.task: prompt.id for prompt in reversed(prompts)}.values())


def excerpt(
    tokenizer: "PreTrainedTokenizerBase",
    method: str,
    prompt: Prompt,
    context: Sequence[int],
    answer: Sequence[int],
    steps: Sequence[StepStats],
) -> Excerpt:
    """The excerpt of an answer.

    Args:
        tokenizer: the target's.
        method: name of the contender.
        prompt: what was answered.
        context: ids that were continued.
        answer: ids of the whole answer; the first one came with the prefill.
        steps: all steps, in order; together they committed the rest of the answer.
    """

    def text(ids: Sequence[int]) -> str:
        return str(
            tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    shown: list[StepExcerpt] = []
    trees: list[TreeExcerpt] = []
    at = 1
    for number, step in enumerate(steps[:STEPS]):
        words = tuple(text([token]) for token in answer[at : at + step.committed])
        at += step.committed
        sources = (*(step.tree.sources[node] for node in step.path), "")
        end = step.path[-1] if step.path else ROOT
        shown.append(
            StepExcerpt(
                route=step.tree.route,
                drafted=step.tree.drafted,
                depth=step.tree.depth,
                committed=tuple(map(Committed, words, sources)),
                rejected=tuple(text([int(step.tree.tokens[i])]) for i in chain(step.tree, end)),
            )
        )
        if step.tree.drafted:
            trees.append(
                TreeExcerpt(
                    step=number,
                    parents=tuple(step.tree.parents.tolist()),
                    texts=tuple(text([token]) for token in step.tree.tokens.tolist()),
                    sources=step.tree.sources,
                    path=step.path,
                    bonus=words[-1] if step.committed > len(step.path) else "",
                )
            )
    count = min(TREES, len(trees))
    evenly = tuple(trees[i * len(trees) // count] for i in range(count))
    last = text(context)[-PROMPT_CHARACTERS:]
    return Excerpt(method, prompt.id, prompt.set, prompt.task, last, tuple(shown), evenly)


def chain(tree: TokenTree, node: int) -> list[int]:
    """The first child of ``node``, its first child and so on, at most 8."""
    found: list[int] = []
    while len(found) < REJECTED:
        children = np.flatnonzero(tree.parents == node)
        if not len(children):
            break
        node = int(children[0])
        found.append(node)
    return found

"""A policy of one's own in one file: run, checked and measured.

    python examples/add_policy.py [MODEL]

The policy copies the preferred continuation from the text. Where there is nothing to copy, it
drafts the token that the model ranked first after this one before. A policy decides about speed
alone: the check below enumerates that its trees and the accept rule keep the model's distribution.

To use it by name (``draftwood generate --method copy-or-guess``, ``draftwood bench --methods
ar,copy-or-guess``), a distribution with this module names its parts in its pyproject.toml:

    [project.entry-points."draftwood.policies"]
    copy_or_guess = "add_policy:CopyOrGuess"
    [project.entry-points."draftwood.methods"]
    copy-or-guess = "add_policy:RECIPE"
"""

import sys
from dataclasses import dataclass
from statistics import median

import draftwood
from draftwood import Completion, Engine, Method, Recipe, Request
from draftwood.lab.loops import repeats
from draftwood.lab.lossless.exact import check_exact
from draftwood.protocols import Continue, Expand, Grower, Growth, Policy, setting
from draftwood.tree import ROOT, TreeBuilder

PROMPTS = ["The ship left the harbour. The ship", "def mean(values):", "Once upon a time"]
TOKENS = 48
ROUNDS = 3


@dataclass(frozen=True)
class CopyOrGuess(Policy):
    """A copied chain, or one guessed token."""

    budget: int = setting(8, "most nodes drafted in a step", least=0)
    chain: str = setting("context", "source that copies", source="chains")
    guess: str = setting("adjacency", "source that is asked otherwise", source="successors")

    def grow(self, growth: Growth, state: None) -> Grower:  # noqa: ARG002
        tree = TreeBuilder(growth.anchor)
        most = min(self.budget, growth.budget, growth.room)
        if most <= 0:
            return tree.build("plain")
        copied = yield Continue(self.chain)
        if copied:
            node = ROOT
            for token in copied[0].tokens[:most]:
                node = tree.add(node, token, self.chain)
            return tree.build("copied")
        found = yield Expand(self.guess, tree, [ROOT], 1)
        if found.tokens[0, 0] >= 0:
            tree.add(ROOT, int(found.tokens[0, 0]), self.guess)
        return tree.build("guessed")


RECIPE = Recipe(
    "copy-or-guess",
    "a copied chain, or one guessed token",
    "-",
    policy="copy_or_guess",
    drafters={"context": "context", "adjacency": "adjacency"},
)


def my_method() -> Method:
    """The method without registration: GOOSE's sources and accept rule, with another policy."""
    goose = draftwood.method("goose")
    return Method(RECIPE.name, CopyOrGuess(), goose.drafters, goose.verifier)


def main() -> None:
    mine = my_method()
    print(check_exact(mine.name, mine.policy, mine.verifier))

    loaded = draftwood.load(*sys.argv[1:2])
    methods = {"ar": draftwood.method("ar"), mine.name: mine}
    found: dict[str, list[list[Completion]]] = {name: [] for name in methods}
    for counted in range(-1, ROUNDS):  # the first round warms up
        for name, method in methods.items():  # interleaved, so that both see the same machine
            # A new engine each time: nothing is learnt from the round before.
            engine = Engine(loaded.model, method, loaded.tokenizer)
            done = [engine.generate([Request(text, TOKENS)])[0].checked() for text in PROMPTS]
            if counted >= 0:
                found[name].append(done)
    for name, rounds in found.items():
        seconds = median(sum(done.seconds for done in each) for each in rounds)
        tokens = sum(len(done.tokens) for done in rounds[0])
        steps = sum(done.tally.steps for done in rounds[0])
        print(f"{name}: {tokens / seconds:.0f} tokens/s, {tokens / steps:.2f} tokens a step")
    answers = {name: [done.tokens for done in rounds[0]] for name, rounds in found.items()}
    share = [repeats(tokens).share for tokens in answers["ar"]]
    print(f"repeated 8-grams of each answer: {', '.join(f'{each:.0%}' for each in share)}")
    print(f"same tokens: {answers['ar'] == answers[mine.name]}")


if __name__ == "__main__":
    main()

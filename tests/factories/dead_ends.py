"""A control for verifiers: a rule that fails at every dead end that it asks about."""

import pytest

from draftwood.verifiers._residuals import JudgedTree, Tested


def refuse_dead_ends(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have the rules raise an error at a node that no token can follow, accepted or not."""
    whole = JudgedTree.at

    def at(self: JudgedTree, node: int, reach: float) -> Tested | None:
        found = whole(self, node, reach)
        if found is None:
            raise error
        return found

    monkeypatch.setattr(JudgedTree, "at", at)

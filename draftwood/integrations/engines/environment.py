"""Settings from environment variables: engines have no flags for plugins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from draftwood import methods
from draftwood.costs.costs_file import read_costs
from draftwood.costs.curve import StepCosts
from draftwood.errors import DraftwoodError
from draftwood.integrations.engines.encoding import files_of
from draftwood.methods.recipe import Method, settings_of
from draftwood.protocols import settings

METHOD = "DRAFTWOOD_METHOD"
"""Variable with a method's spelling, such as ``auto:also=memory``."""

COSTS = "DRAFTWOOD_COSTS"
"""Variable with the path of a file of step costs, as ``draftwood tune --json`` writes it."""


def method_of(
    default: str, budget: int, environment: Mapping[str, str] = os.environ, *, chain: bool = False
) -> Method:
    """The method of an engine.

    Args:
        default: its spelling where the environment has none.
        budget: most nodes of a draft, as the engine is told; the method's own budget does not
            count.
        environment: variables.
        chain: the engine verifies chains and gives no rows, so that ``auto`` drafts one, and learns
            from the text.

    Raises:
        DraftwoodError: the spelling is wrong, or the method drafts trees for an engine that
            verifies chains.
    """
    text = environment.get(METHOD, "") or default
    name = text.partition(":")[0]
    try:
        fixed = {"verifier": "walk", "budget": str(budget)}
        if chain and name == "auto":
            fixed["shape"] = "chain"
            table = methods.spelt(text, {}).drafters.get("adjacency")
            if table is not None and any(each.name == "harvest" for each in settings(type(table))):
                fixed["adjacency.harvest"] = "accepted"
        there = settings_of(methods.recipe(name))
        own = {key: each for key, each in fixed.items() if key in there}
        try:
            found = methods.spelt(text, own)
        except DraftwoodError:
            # If the verifier was the reason, the method samples, and EngineDrafts refuses it.
            own.pop("verifier", None)
            found = methods.spelt(text, own)
    except DraftwoodError as error:
        raise DraftwoodError(f"{METHOD}: {error}") from error
    if chain and found.policy.branching:
        raise DraftwoodError(
            f"{METHOD}: {name} drafts trees, and this engine verifies chains: use auto or pld"
        )
    return found


def refuse_shared_file(method: Method, ranks: Iterable[int]) -> None:
    """Refuse a memory's file that several ranks of an engine would write.

    Args:
        method: of the engine's drafts.
        ranks: sizes of all kinds of parallelism.

    Raises:
        DraftwoodError: there is a file, and there are several ranks.
    """
    if files_of(method, "file") and any(size > 1 for size in ranks):
        raise DraftwoodError(
            f"{METHOD}: every rank would write the memory's file: leave memory.file out"
        )


def costs_of(default: StepCosts, environment: Mapping[str, str] = os.environ) -> StepCosts:
    """The step costs of an engine.

    Args:
        default: costs where the environment names no file.
        environment: variables.

    Raises:
        DraftwoodError: the file cannot be read, or holds something else.
    """
    path = environment.get(COSTS, "")
    if not path:
        return default
    try:
        return read_costs(Path(path))
    except DraftwoodError as error:
        raise DraftwoodError(f"{COSTS}: {error}") from error

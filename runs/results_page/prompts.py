"""Tokens a second of each prompt, from a document's rows, as ``draftwood bench`` counts them.

A *group* is what was decoded together: one prompt, unless the run is batched. Its speed is its
tokens over its seconds, the median over repeats; ratios are of the same group and seed, and the
median over seeds is the group's.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, TypeAlias

TargetOutput: TypeAlias = list[dict[str, Any]]
Key: TypeAlias = tuple[int, int]
"""A group and the seed it was decoded with."""


def rows(entry: Mapping[str, Any], name: str | None, *, loops: bool) -> TargetOutput:
    """A method's rows: of all sets or one, with or without groups in which an output loops."""
    found = [row for row in entry["rows"] if name in (None, row["set"])]
    wrong = set() if loops else {key(row) for row in found if row["looping"]}
    return [row for row in found if key(row) not in wrong]


def key(row: Mapping[str, Any]) -> Key:
    """The row's group and seed."""
    return row["group"], row["run_seed"]


def speeds(found: Iterable[Mapping[str, Any]]) -> dict[Key, float]:
    """Tokens a second by group and seed."""
    tokens: dict[tuple[Key, int], int] = defaultdict(int)
    seconds: dict[tuple[Key, int], float] = {}
    for row in found:
        place = key(row), row["repeat"]
        tokens[place] += row["tokens"]
        # A prompt with fewer turns leaves the group when it ends: the longest stay is the group's.
        seconds[place] = max(seconds.get(place, 0.0), row["group_seconds"])
    by_key: dict[Key, list[float]] = defaultdict(list)
    for place, spent in seconds.items():
        by_key[place[0]].append(tokens[place] / spent)
    return {of: median(values) for of, values in by_key.items()}


def over_seeds(values: Mapping[Key, float]) -> list[float]:
    """One value a group, in the order of the groups."""
    by_group: dict[int, list[float]] = defaultdict(list)
    for (group, _), value in sorted(values.items()):
        by_group[group].append(value)
    return [median(found) for found in by_group.values()]


def ratios(fast: Mapping[Key, float], slow: Mapping[Key, float]) -> list[float]:
    """One ratio a group that both have."""
    return over_seeds({of: fast[of] / slow[of] for of in fast if of in slow})


def ratio_of_means(fast: Mapping[Key, float], slow: Mapping[Key, float]) -> float | None:
    """Mean speed over mean speed, over the groups that both have."""
    both = fast.keys() & slow.keys()
    if not both:
        return None
    above = over_seeds({of: fast[of] for of in both})
    return sum(above) / sum(over_seeds({of: slow[of] for of in both}))

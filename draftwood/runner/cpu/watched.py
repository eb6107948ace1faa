"""Parts of modules that must stay what they were, for code that computes in their place."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

CAPTURING = "transformers.utils.output_capturing"
"""Module of the hooks that transformers leaves on attentions once hidden states were asked for.

They do nothing unless attentions are asked for, and fused attention has none to give.
"""

Place: TypeAlias = int | tuple[int, ...] | None
"""Where a parameter is in memory, see :func:`place_of`; None if there is none."""

_PARTS = ("qdata", "scale")
"""Attributes of torchao's weights that hold their numbers and their scales."""
_PARTS_OF = [*map(attrgetter, _PARTS)]


def acts(hook: Any) -> bool:
    """Whether a hook may do something in a forward of the engine."""
    return getattr(hook, "__module__", None) != CAPTURING


def acting(hooks: Mapping[int, Any]) -> bool:
    """Whether one of these hooks may do something in a forward of the engine."""
    return any(map(acts, hooks.values()))


def place(parameters: dict[str, nn.Parameter | None], name: str) -> Place:
    """Where a parameter is in memory; None if there is none."""
    # Past a dictionary that restores a packed weight.
    found = dict.get(parameters, name)
    return None if found is None else place_of(found)


def place_of(parameter: torch.Tensor) -> int | tuple[int, ...]:
    """Where a parameter is in memory.

    One that is put together from others, as quantised, has no address: its id, and where its
    numbers and its scales are. These may move while it stays, as into memory of several processes.
    """
    address = parameter.data_ptr()
    if address:
        return address
    parts = [getattr(parameter, name, None) for name in _PARTS]
    return id(parameter), *(each.data_ptr() for each in parts if isinstance(each, torch.Tensor))


@dataclass
class Watched:
    """What is looked at before each forward; hundreds of things, so that lists are compared.

    Attributes:
        children: dictionaries of child modules, with a name and the child that it had.
        forwards: dictionaries of modules, with the ``forward`` that they had, or None.
        methods: modules, with the ``forward`` of their class.
        places: dictionaries of parameters, with a name and where it was.
        hooks: dictionaries of hooks; those of transformers' capturing may come.
    """

    children: list[tuple[dict[str, Any], str, nn.Module | None]]
    forwards: list[tuple[dict[str, Any], Any]]
    methods: list[tuple[nn.Module, Callable[..., Any]]]
    places: list[tuple[dict[str, Any], str, Place]]
    hooks: list[Mapping[int, Any]]

    def __post_init__(self) -> None:
        self._children = _columns(self.children, 3)
        self._forwards = _columns(self.forwards, 2)
        self._modules, self._methods = _columns(self.methods, 2)
        absent: list[Any] = []
        addressed: list[Any] = []
        quantised: list[Any] = []
        others: list[Any] = []
        for row in self.places:
            known = row[2]
            if known is None:
                absent.append(row)
            elif isinstance(known, int):
                addressed.append(row)
            elif len(known) == 1 + len(_PARTS):
                quantised.append((*row[:2], *known))
            else:
                others.append(row)
        # No call of Python's for each parameter, except for rare ones.
        self._addressed, self._others = _columns(addressed, 3), others
        self._quantised = _columns(quantised, 3 + len(_PARTS))
        self._absent = _columns(absent, 3)
        self._looked = self._unhooked_until = -1

    @classmethod
    def all_of(cls, parts: "Sequence[Watched]") -> "Watched":
        """What several watch, together."""
        return cls(
            [row for part in parts for row in part.children],
            [row for part in parts for row in part.forwards],
            [row for part in parts for row in part.methods],
            [row for part in parts for row in part.places],
            [row for part in parts for row in part.hooks],
        )

    def unchanged(self) -> bool:
        """Whether everything is what it was."""
        return self._same_modules() and self._same_places()

    def moved(self) -> tuple[Place, ...] | None:
        """Where the parameters are now, if that alone is not what it was; else None."""
        if not self._same_modules() or self._same_places():
            return None
        return tuple(place(parameters, name) for parameters, name, _ in self.places)

    def _same_modules(self) -> bool:
        """Whether modules are what they were. Lists of them, or of functions, compare identity."""
        tables, names, children = self._children
        members, forwards = self._forwards
        return (
            self._unhooked()
            and [*map(dict.get, tables, names)] == children
            and [*map(dict.get, members, repeat("forward"))] == forwards
            and [type(module).forward for module in self._modules] == self._methods
        )

    def _same_places(self) -> bool:
        return (
            [*map(dict.get, *self._absent[:2])] == self._absent[2]
            and all(place(parameters, name) == known for parameters, name, known in self._others)
            and self._same_addresses()
        )

    def _unhooked(self) -> bool:
        """Whether no hook may do something.

        PyTorch numbers hooks, so that new ones are noticed; not those that are put into the
        dictionaries without a handle.
        """
        number = RemovableHandle.next_id
        if number != self._unhooked_until:
            if any(acting(hooks) for hooks in self.hooks if hooks):
                return False
            # A hook has its number before it is there: another thread may be about to add it.
            if number == self._looked:
                self._unhooked_until = number
            self._looked = number
        return True

    def _same_addresses(self) -> bool:
        parameters, names, addresses = self._addressed
        owners, own_names, ids, *parts = self._quantised
        try:
            found: Iterator[Any] = map(dict.get, parameters, names)
            if [*map(torch.Tensor.data_ptr, found)] != addresses:
                return False
            weights: list[Any] = [*map(dict.get, owners, own_names)]
            return [*map(id, weights)] == ids and all(
                [*map(torch.Tensor.data_ptr, map(part, weights))] == known
                for part, known in zip(_PARTS_OF, parts, strict=True)
            )
        # One was taken out, and None has no address; or it has no parts any more.
        except (TypeError, AttributeError):
            return False


def _columns(rows: list[Any], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]

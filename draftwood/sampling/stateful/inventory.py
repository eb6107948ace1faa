"""The parts of an object, as pickle sees them: to detect changes, and to copy it.

Models and tokenizers count as constant. Module globals are not inspected.
"""

import copyreg
import types
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

_VALUES = (int, float, complex, str, bytes, type(None), types.EllipsisType)
_CONSTANT = (
    type,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.CodeType,
    torch.dtype,
    torch.device,
    torch.nn.Module,
    PreTrainedTokenizerBase,
    Tokenizer,
)
# Compiled objects of grammar libraries: they never change, and cannot be copied.
_COMPILED = frozenset({"CompiledGrammar", "TokenizerInfo", "LLTokenizer"})
_GROUPS = (list, tuple, set, frozenset, deque)
_PROTOCOL = 4


@dataclass
class Inventory:
    """The parts of an object.

    Attributes:
        marks: a fingerprint; equal marks mean that the object has not changed.
        constant: parts that copies share.
        forkable: parts with a method ``fork()`` or ``deep_copy()``.
        rewindable: parts with ``accept_token()`` and ``rollback()`` that cannot be copied.
        opaque: whether the state of some part is not visible.
    """

    marks: list[object] = field(default_factory=list)
    constant: list[object] = field(default_factory=list)
    forkable: list[object] = field(default_factory=list)
    rewindable: list[object] = field(default_factory=list)
    opaque: bool = False
    _seen: dict[int, int] = field(default_factory=dict)
    _alive: list[object] = field(default_factory=list)

    def add(self, part: object) -> None:
        """Add a part and all its parts, unless it was added before."""
        if isinstance(part, _VALUES):
            self.marks.append((type(part), part))
            return
        if id(part) in self._seen:
            self.marks.append(self._seen[id(part)])
            return
        self._seen[id(part)] = len(self._seen)
        self._alive.append(part)  # so that its id is not reused
        if isinstance(part, _CONSTANT) or type(part).__name__ in _COMPILED:
            self.constant.append(part)
            self.marks.append(_Same(part))
        elif isinstance(part, torch.Tensor):
            self.marks.append((_Same(part), None if part.is_inference() else part._version))
            self.opaque |= part.is_inference()  # such a tensor does not count its changes
        elif isinstance(part, np.ndarray) and part.dtype != object:
            self.marks.append((part.shape, part.dtype, part.tobytes()))
        elif fork_of(part) is not None:
            self.forkable.append(part)
            self.opaque = True
        else:
            self.marks.append(type(part))
            for each in self._members(part):
                self.add(each)

    def _members(self, part: object) -> Iterable[object]:
        if type(part) is dict:
            return [each for item in part.items() for each in item]
        if isinstance(part, _GROUPS) and type(part) in _GROUPS:
            return [len(part), *part]
        if isinstance(part, types.MethodType):
            return (part.__func__, part.__self__)
        if isinstance(part, types.FunctionType):
            return [part.__code__, part.__defaults__, *_closure(part)]
        if isinstance(part, partial):
            return (part.func, part.args, part.keywords)
        return self._reduced(part)

    def _reduced(self, part: Any) -> Iterable[object]:
        """The parts that pickle would store; none if it cannot."""
        if hasattr(type(part), "accept_token") and hasattr(type(part), "rollback"):
            self.rewindable.append(part)
        try:
            reduce = copyreg.dispatch_table.get(type(part))
            found: Any = reduce(part) if reduce else part.__reduce_ex__(_PROTOCOL)
        except Exception:  # noqa: BLE001 - a foreign object that raises cannot be seen into
            self.opaque = True
            return ()
        if isinstance(found, str):
            return (found,)
        return [list(each) if hasattr(each, "__next__") else each for each in found[1:]]


class _Same:
    """Equal to itself only."""

    __slots__ = ("_part",)

    def __init__(self, part: object) -> None:
        self._part = part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._part is self._part

    __hash__ = None  # type: ignore[assignment]


def inventory(thing: object) -> Inventory:
    """The inventory of an object."""
    found = Inventory()
    found.add(thing)
    return found


def fork_of(part: object) -> Any:
    """The part's own copying method; None if ``copy`` should copy it."""
    if hasattr(type(part), "__deepcopy__"):
        return None
    for name in ("fork", "deep_copy"):
        if callable(getattr(type(part), name, None)):
            return getattr(part, name)
    return None


def _closure(function: types.FunctionType) -> list[object]:
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not bound yet
            cells.append(None)
    return cells

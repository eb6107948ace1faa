"""The functions of native.cpp: an index of rows, rows that are stored, and descents.

They are compiled for this machine's processor on first use. Without a compiler, tables are read
and stored by NumPy, and descents are rounds of :class:`draftwood.protocols.Expand`.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int64, c_void_p
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.adjacency.rows import RowArrays, Waiting, pairs_of
from draftwood.kernels.compiled import functions as compiled_functions
from draftwood.kernels.compiled import library
from draftwood.protocols import Coding, Descend, Descent, Describe

if TYPE_CHECKING:
    from draftwood.drafters.adjacency.table import PreparedTable

_ARGUMENTS: dict[str, list[Any]] = {
    "index": [c_int64, c_int64],
    "index_bytes": [c_void_p],
    "index_free": [c_void_p],
    "index_find": [c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_void_p],
    "index_store": [c_void_p],
    "describe": [c_void_p],
    "descend": [c_void_p],
}
_RESULTS = {"index": c_void_p, "index_bytes": c_int64, "descend": c_int64}


class _Store(ctypes.Structure):
    """``Store`` of native.cpp."""

    _fields_ = (
        *((name, c_void_p) for name in ("index", "tokens", "logq", "before", "own", "best")),
        ("probabilities", c_void_p),
        *((name, c_int64) for name in ("count", "given", "width")),
        ("least", c_float),
    )


class _Live(ctypes.Structure):
    """``Live`` of descent.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("index", "tokens", "logq")),
        ("width", c_int64),
        ("least_logq", c_float),
    )


class _Prepared(ctypes.Structure):
    """``Prepared`` of descent.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("keys", "starts", "lengths", "tokens", "codes", "logq")),
        *((name, c_int64) for name in ("count", "vocab", "wide_keys", "wide_tokens")),
    )


class _Coding(ctypes.Structure):
    """``Coding`` of descent.h."""

    _fields_ = (("first", c_void_p), ("edges", c_void_p), ("count", c_int64), ("stride", c_int64))


class _Description(ctypes.Structure):
    """``Description`` of descent.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("live", "prepared", "coding")),
        *((name, c_int64) for name in ("successors", "count")),
        *((name, c_void_p) for name in ("parents", "before", "above", "tokens", "codes")),
    )


class _Descent(ctypes.Structure):
    """``Descent`` of descent.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("live", "prepared", "coding", "chances")),
        ("floor", c_double),
        ("least", c_double),
        *((name, c_int64) for name in ("codes", "successors", "deepest", "room", "first")),
        *((name, c_int64) for name in ("count", "children")),
        *((name, c_void_p) for name in ("nodes", "before", "tokens", "depths", "kinds")),
        *((name, c_void_p) for name in ("child_parents", "child_tokens", "paths")),
        *((name, c_void_p) for name in ("new_parents", "new_tokens", "new_codes", "answered")),
        *((name, c_void_p) for name in ("new_chances", "new_paths")),
        ("answers", c_int64),
    )


Functions: TypeAlias = dict[str, Any]
"""The functions by name."""

_ROOM = 512
"""Nodes for which there is room from the beginning."""


@cache
def functions() -> Functions | None:
    """The functions by name; None if this machine cannot compile them."""
    compiled = library(Path(__file__).parent)
    if compiled is None:
        return None
    # Calls take microseconds: a thread that gets Python's lock meanwhile may keep it far longer.
    return compiled_functions(ctypes.PyDLL(compiled._name), _ARGUMENTS, _RESULTS)


class NativeRows:
    """The rows of a live table: which of them belongs to a key, and what is stored there.

    Args:
        native: the functions.
        arrays: of the table; kept as long as this.
    """

    def __init__(self, native: Functions, arrays: RowArrays) -> None:
        self.native = native
        self._kept = arrays
        self._empty = len(arrays.tokens) - 1
        self._index: int = native["index"](self._empty, arrays.bigram)
        # Not at exit: an engine's thread may still be in a step then.
        weakref.finalize(self, native["index_free"], self._index).atexit = False
        where, width = (self._index, *map(_address, arrays[:2])), arrays.tokens.shape[1]
        self._stored = _Store(*where, width=width, least=arrays.least)
        self._live = _Live(*where, width, math.log(arrays.least))
        self.pointer = ctypes.addressof(self._live)

    @property
    def index_bytes(self) -> int:
        """Bytes of the index, of which Python's allocators know nothing."""
        found: int = self.native["index_bytes"](self._index)
        return found

    def store(self, waiting: Sequence[Waiting]) -> None:
        """Store successors in their order.

        Raises:
            ValueError: the shapes do not fit one another.
        """
        for each in waiting:
            self._store_one(each)

    def _store_one(self, waiting: Waiting) -> None:
        pairs = np.array([waiting.before, waiting.tokens], dtype=np.int64)
        best = np.ascontiguousarray(waiting.best, dtype=np.int64)
        probabilities = np.ascontiguousarray(waiting.probabilities, dtype=np.float32)
        if best.shape != probabilities.shape or best.shape[:1] != pairs.shape[1:]:
            raise ValueError(
                f"{pairs.shape[1]} pairs of tokens have successors {best.shape} with probabilities "
                f"{probabilities.shape}: each pair has one row of both"
            )
        store = self._stored
        store.before, store.own = _rows(pairs)
        store.best, store.probabilities = _address(best), _address(probabilities)
        store.count, store.given = best.shape
        self.native["index_store"](ctypes.addressof(store))

    def find(self, before: Sequence[int], tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """See :meth:`.rows.PlainRows.find`."""
        numbers = np.empty((4, len(tokens)), dtype=np.int64)
        numbers[0], numbers[1] = before, tokens
        high, low, *found = _rows(numbers)
        self.native["index_find"](self._index, high, low, len(tokens), *found)
        rows, own = numbers[2:].tolist()
        places = [self._empty if row < 0 else row for row in rows]
        return places, [i for i, known in enumerate(own) if not known]


class NativeTable:
    """A prepared table as the functions read it.

    Args:
        table: its arrays are kept as long as this.
        starts: of the successors of each key.
        logq: natural log of the probability that each code stands for.
    """

    def __init__(
        self, table: PreparedTable, starts: NDArray[np.int64], logq: NDArray[np.float32]
    ) -> None:
        given = table.keys, starts, table.lengths, table.tokens, table.codes, logq
        self._kept = tuple(map(np.ascontiguousarray, given))
        self._own = _Prepared(
            *map(_address, self._kept),
            *(len(table.keys), table.facts.vocab_size),
            *(table.keys.itemsize > 4, table.tokens.itemsize > 2),
        )
        self.pointer = ctypes.addressof(self._own)


class Descents:
    """Answers queries one after another, in buffers that are kept: most answers are small.

    Args:
        prepared: what the target said after other text, if there is a table.
    """

    def __init__(self, prepared: NativeTable | None) -> None:
        self._prepared = prepared
        pointer = prepared.pointer if prepared else None
        self._asked = _Descent(prepared=pointer)
        self._described = _Description(prepared=pointer)
        self._grow(_ROOM)

    def describe(self, query: Describe, anchor_before: int, rows: NativeRows) -> list[int]:
        """The answer to a query.

        Args:
            query: see there.
            anchor_before: the token before the tree's root.
            rows: of the live table.

        Raises:
            ValueError: the coding does not cover all ranks.
        """
        _check_ranks(query.coding, query.k)
        tree, nodes, asked = query.tree, query.nodes, self._described
        self._reserve(len(nodes))
        parents = [tree.parents[node] for node in nodes]
        given = self._given[:4, : len(nodes)]
        given[:3] = parents, *pairs_of(tree, parents, anchor_before)
        given[3] = [tree.tokens[node] for node in nodes]
        # The coding is held until the call is over: another thread may drop it from the cache.
        _held, asked.coding = _coding(query.coding)
        asked.live = rows.pointer
        asked.successors, asked.count = query.k, len(nodes)
        rows.native["describe"](ctypes.addressof(asked))
        codes: list[int] = self._found[0, : len(nodes)].tolist()
        return codes

    def descend(self, query: Descend, anchor_before: int, rows: NativeRows) -> Descent:
        """The answer to a query; for the arguments see :meth:`describe`.

        Raises:
            ValueError: the chances do not cover all codes, or the coding not all ranks.
        """
        tree, nodes, asked = query.tree, query.nodes, self._asked
        chances = np.ascontiguousarray(query.chances, dtype=np.float64)
        kinds, codes = chances.shape
        _check_ranks(query.coding, query.k)
        if codes < query.coding.most or not all(0 <= kind < kinds for kind in query.kinds):
            raise ValueError(
                f"chances are {chances.shape}, for {query.coding.most} codes and nodes of "
                f"kinds {query.kinds}"
            )
        count, children, room = len(nodes), len(query.children), max(0, query.room)
        self._reserve(max(count + room, children))
        depths = [tree.depths[node] for node in nodes]
        self._given[:5, :count] = nodes, *pairs_of(tree, nodes, anchor_before), depths, query.kinds
        if children:
            self._given[5, :children] = [tree.parents[node] for node in query.children]
            self._given[6, :children] = [tree.tokens[node] for node in query.children]
        self._paths[0, :count] = query.paths
        _held, asked.coding = _coding(query.coding)  # see describe
        asked.live = rows.pointer
        asked.chances, asked.codes = _address(chances), codes
        asked.floor, asked.least = query.floor, query.least
        asked.successors, asked.deepest = query.k, query.deepest
        asked.room, asked.first, asked.count, asked.children = room, len(tree), count, children
        new: int = rows.native["descend"](ctypes.addressof(asked))
        parents, tokens, found = self._found[:3, :new].tolist()
        own, paths = self._likely[:, :new].tolist()
        answered = self._found[3, : asked.answers].tolist()
        return Descent(parents, tokens, found, own, paths, answered)

    def _reserve(self, size: int) -> None:
        if size > self._room:
            self._grow(2 * size)

    def _grow(self, size: int) -> None:
        """Make room for so many nodes, given and new; none if that fails."""
        self._room = 0
        self._given, self._found = (np.empty((rows, size), dtype=np.int64) for rows in (7, 4))
        self._paths, self._likely = (np.empty((rows, size)) for rows in (1, 2))
        asked, given, found = self._asked, _rows(self._given), _rows(self._found)
        asked.nodes, asked.before, asked.tokens, asked.depths, asked.kinds = given[:5]
        asked.child_parents, asked.child_tokens = given[5:]
        (asked.paths,) = _rows(self._paths)
        asked.new_parents, asked.new_tokens, asked.new_codes, asked.answered = found
        asked.new_chances, asked.new_paths = _rows(self._likely)
        said = self._described
        said.parents, said.before, said.above, said.tokens = given[:4]
        said.codes = found[0]
        self._room = size


def _check_ranks(coding: Coding, k: int) -> None:
    if len(coding.first) < k:
        raise ValueError(f"a coding of {len(coding.first)} ranks is too short for {k} successors")


@lru_cache(maxsize=64)
def _coding(coding: Coding) -> tuple[object, int]:
    """What has to be held while the functions read a coding, and the coding's address."""
    first = np.ascontiguousarray(coding.first, dtype=np.int64)
    edges = np.ascontiguousarray(coding.edges, dtype=np.float64)
    made = _Coding(_address(first), _address(edges), len(edges), coding.stride)
    return (made, first, edges), ctypes.addressof(made)


def _address(array: NDArray[Any]) -> int:
    """Where an array's numbers are."""
    found: int = array.__array_interface__["data"][0]
    return found


def _rows(numbers: NDArray[Any]) -> list[int]:
    """Where an array's rows are."""
    start, stride = _address(numbers), numbers.strides[0]
    return [start + row * stride for row in range(len(numbers))]

"""Rotary factors token by token, where a model takes them from the furthest position of a forward.

LongRoPE (arXiv 2402.13753) and dynamic NTK scaling choose the frequencies of a whole forward by its
last position. In ``generate`` that is the end of the prompt for all of the prompt's tokens, and
for every later token its own position. A forward here holds a chunk of a prompt, a tree, or several
sequences; so each token has an *extent*, the length of the text when ``generate`` computes it, and
gets the factors that the module gives at that length.

A module is known by what it does, not by its class: it is asked for the factors of a position at
several lengths. Those whose answers never differ are left alone.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Extents: TypeAlias = NDArray[np.int64]

_extents: ContextVar[Extents | None] = ContextVar("extents", default=None)


@dataclass(frozen=True)
class Regime:
    """Which extents share their factors.

    Attributes:
        limit: those up to here do.
        grows: whether above it each has factors of its own; else those above share theirs.
    """

    limit: int
    grows: bool

    def shared(self, extents: Extents) -> Extents:
        """For every extent, one that has its factors."""
        above = extents if self.grows else self.limit + 1
        return np.where(extents <= self.limit, max(self.limit, 1), above)


class Ropes:
    """The patched rotary modules of one model; :meth:`undo` takes the patches back."""

    def __init__(self, members: "Sequence[_Forward]" = ()) -> None:
        self._members = list(members)

    def __len__(self) -> int:
        return len(self._members)

    @contextmanager
    def given(self, extents: Extents) -> Iterator[None]:
        """A context in which this thread's forwards are over tokens of these extents.

        Args:
            extents: int64 ``[b, q]`` on the host.
        """
        token = _extents.set(extents)
        try:
            yield
        finally:
            _extents.reset(token)

    def undo(self) -> None:
        """Give every module its own ``forward`` back."""
        for member in self._members:
            member.undo()
        self._members = []


def follow(model: nn.Module, lengths: Sequence[int]) -> Ropes:
    """Patch the rotary modules of ``model`` whose factors depend on the length of the text.

    Args:
        model: any module.
        lengths: where they may change, see :func:`named_lengths`.
    """
    if not lengths:
        return Ropes()
    members = []
    for module in model.modules():
        if not hasattr(module, "rope_type") and not hasattr(module, "inv_freq"):
            continue
        if "position_ids" not in inspect.signature(type(module).forward).parameters:
            continue
        kinds = getattr(module, "rope_type", None)
        kinds = list(kinds) if isinstance(kinds, dict) else [None]
        # A copy, because the length that a module saw last shows in its later answers.
        own = copy.deepcopy(module)
        found = {kind: _learn(own, kind, lengths) for kind in kinds}
        regimes = {kind: regime for kind, regime in found.items() if regime is not None}
        if regimes:
            members.append(_Forward(module, own, regimes))
    return Ropes(members)


def named_lengths(config: Any) -> tuple[int, ...]:
    """The lengths, ascending, that a config with rotary settings names as limits of positions."""
    rope = _settings(config)
    if not rope:
        return ()
    names = ("original_max_position_embeddings", "max_position_embeddings")
    found = {getattr(config, name, None) for name in names}
    waiting = [rope]
    while waiting:
        for name, value in waiting.pop().items():
            if isinstance(value, dict):
                waiting.append(value)
            elif name in names:
                found.add(value)
    return tuple(sorted(n for n in found if isinstance(n, int) and n > 1))


def context_of(config: Any) -> int | None:
    """The longest text, in tokens, that a config says its positions are for; None: it says none.

    Dynamic factors are made for texts ``factor`` times as long as the positions of training.
    """
    limit: int | None = getattr(config, "max_position_embeddings", None)
    rope = _settings(config)
    kind = str(rope.get("rope_type", rope.get("type")))  # models with own code may say "type"
    if limit and "dynamic" in kind:
        return int(limit * rope.get("factor", 1.0))
    return limit or None


def _settings(config: Any) -> dict[str, Any]:
    """A config's rotary settings; models that bring their own code may use the older name."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    return found if isinstance(found, dict) else {}


def _learn(own: nn.Module, kind: str | None, lengths: Sequence[int]) -> Regime | None:
    """How the factors of a rotary module depend on the extent; None if they do not."""
    x, one = torch.zeros(1, 1, 1), torch.ones((1, 1), dtype=torch.int64)
    device = next((b.device for b in own.buffers()), x.device)
    x, one = x.to(device), one.to(device)
    extra = () if kind is None else (kind,)

    def same(first: int, second: int) -> bool:
        pair = [_at(own, x, one, extent, True, extra) for extent in (first, second)]
        return all(torch.equal(a, b) for a, b in zip(*pair, strict=True))

    far = 4 * max(lengths)
    try:
        if same(2, far):
            return None
        for limit in lengths:
            if same(2, limit) and not same(2, limit + 1):
                return Regime(limit, grows=not same(limit + 1, far))
    except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError):
        return None  # no module of this kind; the self-test judges what it does
    return Regime(0, grows=True)


@torch.no_grad()
def _at(
    own: nn.Module,
    x: torch.Tensor,
    positions: torch.Tensor,
    extent: int,
    grows: bool,
    extra: tuple[Any, ...],
) -> tuple[torch.Tensor, ...]:
    """What the module yields for ``[m, n]`` positions of texts of one extent, each ``[m, n, ..]``.

    Raises:
        ValueError: what it yields has another shape.
    """
    if grows:
        # Position 0 makes a module forget the longest text that it saw.
        own(x, torch.zeros_like(positions[:1, :1]), *extra)
    last = positions.new_full((len(positions), 1), extent - 1)
    given = torch.cat([positions, last], dim=1)
    found = own(x, given, *extra)
    parts = found if isinstance(found, tuple) else (found,)
    if any(part.shape[:2] != given.shape for part in parts):
        raise ValueError("rotary factors are expected token by token")
    return tuple(part[:, :-1].contiguous() for part in parts)


class _Forward:
    """The patched ``forward``; a copy or pickle of its module gets the plain one instead."""

    def __init__(
        self, module: nn.Module, own: nn.Module, regimes: dict[str | None, Regime]
    ) -> None:
        self._module = module
        self._before = module.__dict__.get("forward")
        self._plain = module.forward
        self._own = own
        self._regimes = regimes
        module.forward = self

    def __call__(
        self, x: torch.Tensor, position_ids: torch.Tensor, *args: Any, **named: Any
    ) -> Any:
        extents = _extents.get()
        extra = (*args, *named.values())
        regime = self._regimes.get(extra[0] if extra else None)
        if extents is None or regime is None:
            return self._plain(x, position_ids, *args, **named)
        shared = regime.shared(extents)
        different = np.unique(shared)
        if different.size == 1:
            parts = _at(self._own, x, position_ids, int(different[0]), regime.grows, extra)
        else:
            parts = self._mixed(x, position_ids, shared, different, regime, extra)
        return parts if len(parts) > 1 else parts[0]

    def _mixed(
        self,
        x: torch.Tensor,
        position_ids: torch.Tensor,
        shared: Extents,
        different: Extents,
        regime: Regime,
        extra: tuple[Any, ...],
    ) -> tuple[torch.Tensor, ...]:
        flat = position_ids.reshape(1, -1)
        whole: list[torch.Tensor] = []
        for extent in different:
            index = torch.from_numpy(np.flatnonzero(shared == extent)).to(flat.device)
            parts = _at(self._own, x, flat[:, index], int(extent), regime.grows, extra)
            if not whole:
                whole = [part.new_empty(flat.shape[1], *part.shape[2:]) for part in parts]
            for tensor, part in zip(whole, parts, strict=True):
                tensor[index] = part[0]
        return tuple(tensor.view(*position_ids.shape, *tensor.shape[1:]) for tensor in whole)

    def undo(self) -> None:
        """Give the module its own ``forward`` back."""
        if self._before is None:
            del self._module.forward
        else:
            self._module.forward = self._before

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (type(self._module).forward, self._module)

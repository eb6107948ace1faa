"""Rotary factors per token, for models that choose them by the last position of a forward.

LongRoPE (arXiv 2402.13753) and dynamic NTK scaling choose the frequencies of a whole forward by its
last position. In ``generate`` that is the prompt's end for all tokens of the prompt, and its own
position for every later token. A forward here holds a chunk of a prompt, a tree, or several
sequences. So each token has an *extent*: the length of the text when ``generate`` computes the
token. The token gets the module's factors for that length.

Such modules are recognised by a test, not by class: their factors of one position are compared at
several lengths. Modules whose factors never differ are not patched.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from draftwood.runner.patched import PatchedForward

Extents: TypeAlias = NDArray[np.int64]

_extents: ContextVar[Extents | None] = ContextVar("extents", default=None)


@dataclass(frozen=True)
class Regime:
    """The dependence of rotary factors on the extent.

    Attributes:
        limit: extents up to the limit share their factors.
        grows: whether each extent above the limit has factors of its own; if not, those share
            theirs.
    """

    limit: int
    grows: bool

    def shared(self, extents: Extents) -> Extents:
        """One representative extent for each, with the same factors."""
        above = extents if self.grows else self.limit + 1
        return np.where(extents <= self.limit, max(self.limit, 1), above)


@contextmanager
def at_extents(extents: Extents) -> Iterator[None]:
    """A context that sets the extents of this thread's forwards, int64 ``[1, n]`` on the host."""
    token = _extents.set(extents)
    try:
        yield
    finally:
        _extents.reset(token)


def patch_rotary(model: nn.Module, lengths: Sequence[int]) -> "list[RotaryForward]":
    """Patch the rotary modules of ``model`` whose factors depend on the length of the text.

    Args:
        model: any module.
        lengths: where the factors may change, see :func:`position_limits`.
    """
    patched: list[RotaryForward] = []
    for module in model.modules() if lengths else ():
        if not hasattr(module, "rope_type") and not hasattr(module, "inv_freq"):
            continue
        if "position_ids" not in inspect.signature(type(module).forward).parameters:
            continue
        kinds = getattr(module, "rope_type", None)
        kinds = list(kinds) if isinstance(kinds, dict) else [None]
        # A copy, because a module's factors depend on the longest text it has seen.
        clone = copy.deepcopy(module)
        found = {kind: _find_regime(clone, kind, lengths) for kind in kinds}
        regimes = {kind: regime for kind, regime in found.items() if regime is not None}
        if regimes:
            patched.append(RotaryForward(module, clone, regimes))
    return patched


def position_limits(config: Any) -> tuple[int, ...]:
    """The limits of positions in a config with rotary settings, ascending."""
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


def context_limit_of(config: Any) -> int | None:
    """The longest text, in tokens, that a config allows; None if it has no limit.

    With dynamic NTK scaling and YaRN, ``factor`` times the positions of training if that is more.
    """
    limit: int | None = getattr(config, "max_position_embeddings", None)
    rope = _settings(config)
    kind = str(rope.get("rope_type", rope.get("type")))  # models with own code may say "type"
    if limit and "dynamic" in kind:
        return int(limit * rope.get("factor", 1.0))
    if limit and kind == "yarn":
        # Configs of several models keep max_position_embeddings of training beside such settings.
        own = getattr(config, "original_max_position_embeddings", None)
        trained = rope.get("original_max_position_embeddings") or own or limit
        return max(limit, int(trained * (rope.get("factor") or 1.0)))
    return limit or None


def _settings(config: Any) -> dict[str, Any]:
    """A config's rotary settings; models that bring their own code may use the older name."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    return found if isinstance(found, dict) else {}


def _find_regime(clone: nn.Module, kind: str | None, lengths: Sequence[int]) -> Regime | None:
    """The regime of a rotary module; None if its factors do not depend on the extent."""
    device = next((b.device for b in clone.buffers()), torch.device("cpu"))
    x = torch.zeros(1, 1, 1, device=device)
    one = torch.ones((1, 1), dtype=torch.int64, device=device)
    extra = () if kind is None else (kind,)

    def same(first: int, second: int) -> bool:
        pair = [_factors(clone, x, one, extent, True, extra) for extent in (first, second)]
        return all(torch.equal(a, b) for a, b in zip(*pair, strict=True))

    far = 4 * max(lengths)
    try:
        if same(2, far):
            return None
        for limit in lengths:
            if same(2, limit) and not same(2, limit + 1):
                return Regime(limit, grows=not same(limit + 1, far))
    except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError):
        return None  # not such a module; the self-test decides about it
    return Regime(0, grows=True)


@torch.no_grad()
def _factors(
    clone: nn.Module,
    x: torch.Tensor,
    positions: torch.Tensor,
    extent: int,
    grows: bool,
    extra: tuple[Any, ...],
) -> tuple[torch.Tensor, ...]:
    """The module's factors for positions ``[m, n]`` at one extent, each ``[m, n, ..]``.

    Raises:
        ValueError: its output has another shape.
    """
    if grows:
        # Position 0 resets the longest text that the module has seen.
        clone(x, torch.zeros_like(positions[:1, :1]), *extra)
    last = positions.new_full((len(positions), 1), extent - 1)
    given = torch.cat([positions, last], dim=1)
    found = clone(x, given, *extra)
    parts = found if isinstance(found, tuple) else (found,)
    if any(part.shape[:2] != given.shape for part in parts):
        raise ValueError("rotary factors are expected token by token")
    return tuple(part[:, :-1].contiguous() for part in parts)


class RotaryForward(PatchedForward):
    """The ``forward`` of a rotary module, with the factors of each token's extent."""

    def __init__(
        self, module: nn.Module, clone: nn.Module, regimes: dict[str | None, Regime]
    ) -> None:
        self._plain = module.forward
        self._clone = clone
        self.regimes = regimes
        super().__init__(module)

    def __call__(
        self, x: torch.Tensor, position_ids: torch.Tensor, *args: Any, **named: Any
    ) -> Any:
        extents = _extents.get()
        extra = (*args, *named.values())
        regime = self.regimes.get(extra[0] if extra else None)
        if extents is None or regime is None:
            return self._plain(x, position_ids, *args, **named)
        shared = regime.shared(extents)
        distinct = np.unique(shared)
        if distinct.size == 1:
            parts = _factors(self._clone, x, position_ids, int(distinct[0]), regime.grows, extra)
        else:
            parts = self._mixed(x, position_ids, shared, distinct, regime, extra)
        return parts if len(parts) > 1 else parts[0]

    def _mixed(
        self,
        x: torch.Tensor,
        position_ids: torch.Tensor,
        shared: Extents,
        distinct: Extents,
        regime: Regime,
        extra: tuple[Any, ...],
    ) -> tuple[torch.Tensor, ...]:
        flat = position_ids.reshape(1, -1)
        parts_by_token: list[torch.Tensor] = []
        for extent in distinct:
            index = torch.from_numpy(np.flatnonzero(shared == extent)).to(flat.device)
            parts = _factors(self._clone, x, flat[:, index], int(extent), regime.grows, extra)
            if not parts_by_token:
                parts_by_token = [part.new_empty(flat.shape[1], *part.shape[2:]) for part in parts]
            for tensor, part in zip(parts_by_token, parts, strict=True):
                tensor[index] = part[0]
        return tuple(
            tensor.view(*position_ids.shape, *tensor.shape[1:]) for tensor in parts_by_token
        )

"""The recurrent layers of a model, found by what they call, and the functions put in their place.

A mixer of transformers convolves its input and calls a rule for several tokens. These two are
functions of its module. Each mixer gets a ``forward`` of its own: the same code, in which these
names mean functions that know the trees. Outside of our forwards they call the originals, so that
``generate`` computes what it did, with kernels where it has some; in our forwards of a prompt they
call transformers' own forms. Nothing else of the model is changed. The state that they return is
handed to the cache, which has no use for it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import unwrap
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.activations import ACT2FN

from draftwood.runner.recurrent.convolution import commit_inputs, convolved
from draftwood.runner.recurrent.exact_products import exact_products
from draftwood.runner.recurrent.forwards import ChunkForward, KeptNodes, Place, TreeForward
from draftwood.runner.recurrent.gated_delta import Kept, commit, gated_delta
from draftwood.runner.recurrent.mamba1 import selective_scan_by_depth
from draftwood.runner.recurrent.mamba2 import commit_scan, selective_scan
from draftwood.runner.recurrent.states import RecurrentStates
from draftwood.runner.recurrent.torch_forms import torch_form

Original = Callable[..., Any]

_CONVOLUTION = "causal_conv1d_fn"
_DELTA = ("torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention")
_MAMBA2 = "mamba2_chunk_scan"
_MAMBA1 = "mamba_selective_scan"
CALLED = frozenset({_CONVOLUTION, *_DELTA, _MAMBA2, _MAMBA1})
"""Functions that are replaced."""


class Mixer:
    """A recurrent layer, whose ``forward`` is replaced between :meth:`serve` and :meth:`undo`.

    Args:
        module: calls some of :data:`CALLED`.

    Attributes:
        layer: index of the layer.
        served: the layer and the number of each of its states.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layer: int = module.layer_idx  # type: ignore[assignment]
        # A layer may have several convolutions.
        self._number: int = getattr(module, "conv_idx", 0) or 0
        self.served = frozenset({(self.layer, 0), (self.layer, self._number)})

    def serve(self, states: RecurrentStates) -> None:
        """Compute trees with these states from now on."""
        plain = unwrap(type(self.module).forward)
        scope = plain.__globals__
        ours = {}
        for name, form in self._forms().items():
            assert form is not None
            made = _MAKERS[name](states, self._place(name), form, scope)
            ours[name] = _in_ours(states, scope[name], made)
        forward = FunctionType(
            plain.__code__,
            {**scope, **ours},
            plain.__name__,
            plain.__defaults__,
            plain.__closure__,
        )
        forward.__kwdefaults__ = plain.__kwdefaults__
        self.module.__dict__["forward"] = MethodType(forward, self.module)

    def _forms(self) -> dict[str, Original | None]:
        """transformers' own form of each of :data:`CALLED` that the layer calls; None: unknown."""
        scope = unwrap(type(self.module).forward).__globals__
        names = CALLED & set(_names(self.module))
        return {name: torch_form(scope.get(name), scope["__name__"]) for name in sorted(names)}

    @property
    def foreign(self) -> list[str]:
        """What it calls that is no function of transformers, and leads to none."""
        return [name for name, form in self._forms().items() if form is None]

    def _place(self, name: str) -> Place:
        """Where the state is that one of :data:`CALLED` reads."""
        return (self.layer, f"convolution {self._number}" if name == _CONVOLUTION else "state")

    def undo(self) -> None:
        """Let the module compute what it did."""
        self.module.__dict__.pop("forward", None)

    @property
    def replaced(self) -> bool:
        """Whether something else has replaced the ``forward`` before."""
        return "forward" in self.module.__dict__

    @property
    def multiplied(self) -> list[nn.Module]:
        """Linears whose weights it may multiply by itself."""
        return [*self.module.children()] if _MAMBA1 in _names(self.module) else []


def find_mixers(model: nn.Module) -> list[Mixer]:
    """The recurrent layers of a model that can be served."""
    return [
        Mixer(module)
        for module in model.modules()
        if hasattr(module, "layer_idx") and CALLED & set(_names(module))
    ]


def served_states(mixers: Sequence[Mixer]) -> frozenset[tuple[int, int]]:
    """The states of all these layers."""
    return frozenset(state for mixer in mixers for state in mixer.served)


def _names(module: nn.Module) -> tuple[str, ...]:
    """Names that the ``forward`` of a module's class reads."""
    code = getattr(unwrap(type(module).forward), "__code__", None)
    return () if code is None else code.co_names


def _in_ours(states: RecurrentStates, original: Original, ours: Original) -> Original:
    """A function that is ours in our forwards, and the original outside of them."""

    def either(*given: Any, **named: Any) -> Any:
        return (original if states.forward is None else ours)(*given, **named)

    return either


def _by_sequence(
    forward: ChunkForward, held: torch.Tensor, whole: Callable[[slice, torch.Tensor], Any]
) -> torch.Tensor:
    """Output ``[1, n, ..]`` of a rule for each sequence by itself, whose states advance.

    ``whole``: called with a sequence's tokens and state ``[1, ..]``; returns output and state.
    """
    parts = []
    for slot, (begin, end) in zip(forward.slots, forward.spans, strict=True):
        output, last = whole(slice(begin, end), held[slot : slot + 1])
        held[slot] = last[0]
        parts.append(output)
    return torch.cat(parts, dim=1)


def _convolution(
    states: RecurrentStates,
    place: Place,
    original: Original,
    scope: dict[str, Any],  # noqa: ARG001
) -> Original:
    def convolve(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        **_: Any,
    ) -> torch.Tensor:
        forward = states.present
        channels, taps = weight.shape
        stored = states.of(place, (taps - 1, channels), x.dtype)
        if isinstance(forward, ChunkForward):
            parts = []
            for slot, (begin, end) in zip(forward.slots, forward.spans, strict=True):
                line = torch.cat([stored[slot].T[None], x[:, :, begin:end]], dim=2)
                output = original(line, weight, bias, activation=activation)
                parts.append(output[:, :, taps - 1 :])
                stored[slot] = line[0, :, line.shape[2] - (taps - 1) :].T
            return torch.cat(parts, dim=2)
        inputs = forward.padded(x[0].T)
        earlier = forward.earlier(place)
        if earlier is not None:
            inputs = torch.cat([earlier[0], inputs], dim=1)
        forward.keep(place, KeptNodes((inputs,), (1,), commit_inputs))
        # Rounded where the original rounds.
        found = convolved(inputs, forward.of_slots(stored), weight, bias, forward.trees)
        found = found.to(x.dtype)
        if activation is not None:
            found = ACT2FN[activation](found)
        return forward.flat(found).T[None]

    return convolve


_CHUNK, _CHUNK_BY_CHANNEL, _CHUNK_OF_SUMS = 32, 8, 64
"""Tokens of a chunk on a CPU, where a prompt takes the least time: of a rule with a decay for each
head or for each channel of the keys, and of Mamba-2."""


def _chunk(tokens: torch.Tensor, usual: int, on_cpu: int) -> int:
    """Tokens of a chunk for ``[1, n, ..]``, of as few chunks as there have to be.

    transformers' forms fill the last chunk up, and one of a few tokens costs as much as a whole. On
    a GPU, more and smaller chunks are more launches.
    """
    n, most = tokens.shape[1], min(usual, on_cpu) if tokens.device.type == "cpu" else usual
    return -(-n // -(-n // most))


def _delta(
    states: RecurrentStates, place: Place, original: Original, scope: dict[str, Any], *, on_cpu: int
) -> Original:
    norm = scope["l2norm"]

    def rule(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        use_qk_l2norm_in_kernel: bool = False,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        forward = states.present
        heads, width = value.shape[2:]
        held = states.of(place, (heads, key.shape[-1], width), torch.float32)
        if isinstance(forward, ChunkForward):

            def whole(own: slice, state: torch.Tensor) -> Any:
                asked = {
                    "initial_state": state,
                    "output_final_state": True,
                    "chunk_size": _chunk(query[:, own], 64, on_cpu),
                }
                return original(
                    *(each[:, own] for each in (query, key, value)),
                    g=g[:, own],
                    beta=beta[:, own],
                    use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
                    **options | asked,
                )

            return _by_sequence(forward, held, whole), held
        q, k, v = (_by_head(forward, each) for each in (query, key, value))
        if use_qk_l2norm_in_kernel:
            q, k = norm(q), norm(k)
        output, kept = gated_delta(
            q * q.shape[-1] ** -0.5,
            k,
            v,
            _by_head(forward, g),
            _by_head(forward, beta),
            forward.of_slots(held),
            forward.trees,
            _earlier(forward, place),
        )
        forward.keep(place, KeptNodes(tuple(kept), (2, 2, 2), commit))
        return _by_token(forward, output, value.dtype), held

    return rule


def _earlier(forward: TreeForward, place: Place) -> Kept | None:
    found = forward.earlier(place)
    return None if found is None else Kept(*found)


def _by_head(forward: TreeForward, x: torch.Tensor) -> torch.Tensor:
    """``[1, n, heads or groups, ..]`` as float32 ``[b, heads or groups, q, ..]``."""
    return forward.padded(x[0]).transpose(1, 2).float()


def _by_token(forward: TreeForward, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``[b, heads, q, d]`` as ``[1, n, heads, d]``."""
    return forward.flat(x.transpose(1, 2)).to(dtype)[None].contiguous()


def _mamba2(
    states: RecurrentStates,
    place: Place,
    original: Original,
    scope: dict[str, Any],  # noqa: ARG001
) -> Original:

    def scan(
        x: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        chunk_size: int,
        D: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        forward = states.present
        # Decoding one token does not clamp dt to the limit, and neither do trees.
        states.prompts_differ |= dt_limit != (0.0, float("inf"))
        heads = x.shape[2]
        held = states.of(place, (heads, x.shape[3], B.shape[3]), torch.float32)
        if isinstance(forward, ChunkForward):

            def whole(own: slice, state: torch.Tensor) -> Any:
                return original(
                    x[:, own],
                    dt[:, own],
                    A,
                    B[:, own],
                    C[:, own],
                    chunk_size=_chunk(x[:, own], chunk_size, _CHUNK_OF_SUMS),
                    D=D,
                    dt_bias=dt_bias,
                    initial_states=state,
                    dt_softplus=dt_softplus,
                    dt_limit=dt_limit,
                    return_final_states=True,
                )

            return _by_sequence(forward, held, whole), held
        if dt_bias is not None:
            dt = dt + dt_bias.to(dt.dtype)
        if dt_softplus:
            dt = functional.softplus(dt)
        own_x, own_dt = _by_head(forward, x), _by_head(forward, dt)
        output, kept = selective_scan(
            own_x,
            own_dt,
            own_dt * A.float()[None, :, None],
            _by_head(forward, B),
            _by_head(forward, C),
            forward.of_slots(held),
            forward.trees,
            _earlier(forward, place),
        )
        if D is not None:
            output = output + own_x * D.float()[None, :, None, None]
        forward.keep(place, KeptNodes(tuple(kept), (2, 2, 2), commit_scan))
        return _by_token(forward, output, x.dtype), held

    return scan


def _mamba1(
    states: RecurrentStates,
    place: Place,
    original: Original,
    scope: dict[str, Any],  # noqa: ARG001
) -> Original:

    def scan(
        x: torch.Tensor,
        dt: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        C: torch.Tensor,
        D: torch.Tensor | None = None,
        z: torch.Tensor | None = None,
        delta_bias: torch.Tensor | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
        **_: Any,
    ) -> Any:
        forward = states.present
        if delta_bias is not None:
            dt = dt + delta_bias.to(dt.dtype)[..., None]
        if delta_softplus:
            dt = functional.softplus(dt)
        held = states.of(place, (x.shape[1], A.shape[1]), torch.float32)
        if isinstance(forward, ChunkForward):
            parts = []
            for slot, (begin, end) in zip(forward.slots, forward.spans, strict=True):
                own_x, own_dt, b_in, c_out = (each[:, :, begin:end] for each in (x, dt, B, C))
                output, last = original(own_x, own_dt, A, b_in, c_out, return_last_state=True)
                # transformers' scan begins without a state, of which it is a linear function.
                sums = own_dt.float().cumsum(2).transpose(1, 2)[0]
                carried = (sums[..., None] * A.float()).exp() * held[slot]
                with exact_products():
                    share = torch.einsum("nds,sn->dn", carried, c_out[0].float())
                parts.append(output + share.to(output.dtype)[None])
                held[slot] = last[0] + carried[-1]
            output = torch.cat(parts, dim=2)
        else:
            given = (forward.padded(each[0].T).transpose(1, 2).float() for each in (x, dt, B, C))
            own_x, own_dt, b_in, c_out = given
            earlier = forward.earlier(place)
            before = None if earlier is None else earlier[0]
            found, after = selective_scan_by_depth(
                own_x,
                own_dt,
                A.float(),
                b_in,
                c_out,
                forward.of_slots(held),
                forward.trees,
                before,
            )
            forward.keep(place, KeptNodes((after,), (1,), _commit_last))
            output = forward.flat(found.transpose(1, 2)).T[None]
        if D is not None:
            output = output + x * D[None, :, None]
        if z is not None:
            output = output * functional.silu(z)
        return (output, held) if return_last_state else output

    return scan


def _commit_last(
    state: torch.Tensor,
    kept: tuple[torch.Tensor, ...],
    path: torch.Tensor,
    valid: torch.Tensor | None,  # noqa: ARG001 - padding repeats the last node
) -> None:
    [states] = kept
    index = path[:, -1].view(-1, 1, 1, 1).expand(-1, 1, *states.shape[2:])
    state.copy_(states.gather(1, index)[:, 0])


_MAKERS: dict[str, Callable[..., Original]] = {
    _CONVOLUTION: _convolution,
    _DELTA[0]: partial(_delta, on_cpu=_CHUNK),
    _DELTA[1]: partial(_delta, on_cpu=_CHUNK_BY_CHANNEL),
    _MAMBA2: _mamba2,
    _MAMBA1: _mamba1,
}

"""Runs decoder layers like Llama's on a GPU with few kernels, ``kernels/gpu_layers.py``.

The products stay the model's own modules, so that quantised linears and adapters are called as
they are; only plain linears of one input become one product. What lies between the products is
computed in the modules' place. A layer is recognised by its modules and by a test: the kernels have
to return what it does. It is in force only inside a ``with`` block, only where the attention is the
kernel's, and only while its modules are what they were: not replaced, not moved, without hooks.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor, nn

from draftwood.kernels.gpu import AttendTrees, LayerKernels, layer_kernels
from draftwood.runner.cpu.calls import any_global_hook
from draftwood.runner.cpu.watched import Watched, place
from draftwood.runner.decoder_layers import DecoderLayer, decoder_layer
from draftwood.runner.device_trees import DeviceTrees
from draftwood.runner.joined_linears import JoinedLinears, join_linears
from draftwood.runner.kernel_attention import KernelAttention
from draftwood.runner.layer_forward import LayerForward
from draftwood.runner.masks import LayerKind
from draftwood.runner.norm_formulas import early, norm_of
from draftwood.tree import tree_of

_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Difference from the layer's own result, over the largest change that the layer makes."""
_NODES: Final = 5
"""Of the tree with which layers are compared."""


class GpuLayers:
    """The layers of a model that the kernels run, in force inside ``with layers.reading(..):``.

    Args:
        layers: in the order of the model.

    Attributes:
        direct: False: the model calls its layers.
        modules: none: no module's direct calls are left out.
    """

    direct: Final = False
    modules: Final = frozenset[nn.Module]()

    def __init__(self, layers: "Sequence[GpuLayer]" = ()) -> None:
        self._layers = layers
        self._watched = Watched.all_of([layer.watched for layer in layers])
        for layer, following in pairwise(layers):
            if following.index == layer.index + 1:
                layer.following = following

    def __len__(self) -> int:
        return len(self._layers)

    def undo(self) -> None:
        """Leave the layers as they were."""
        for layer in self._layers:
            layer.undo()

    def reading(self, taps: Sequence[int], rows: int) -> "GpuLayers":  # noqa: ARG002
        """These layers; see :meth:`draftwood.runner.cpu.layers.FusedLayers.reading`."""
        return self

    def take_states(self) -> None:
        """None: hidden states are read by transformers."""

    def __enter__(self) -> None:
        if any_global_hook():
            return
        unchanged = self._watched.unchanged()
        for layer in self._layers:
            layer.enter(unchanged=unchanged)

    def __exit__(self, *_: object) -> None:
        for layer in self._layers:
            layer.exit()


def fuse_gpu_layers(
    model: nn.Module,
    attend: AttendTrees,
    dtype: torch.dtype,
    device: torch.device,
    *,
    join: bool = True,
) -> GpuLayers:
    """Find the layers that the kernels can run; none where the kernels do not run.

    Args:
        model: of any kind.
        attend: the attention kernel.
        dtype: of the model.
        device: a GPU.
        join: make products of the same input one (:mod:`draftwood.runner.joined_linears`).
    """
    kernels = layer_kernels(device)
    if kernels is None or dtype not in _TOLERANCE:
        return GpuLayers()
    found = []
    for module in model.modules():
        modules = decoder_layer(module)
        norms = None if modules is None else [*map(norm_of, modules.norms + modules.head_norms)]
        if modules is None or norms is None or None in norms:
            continue
        # One of two formulas for all.
        if len({formula for formula, _ in norms if formula}) == 1:  # type: ignore[misc]
            layer = GpuLayer(modules, kernels, norms)  # type: ignore[arg-type]
            if _agrees(layer, attend, dtype, device):
                if join:
                    layer.join()
                found.append(layer)
    return GpuLayers(found)


class GpuLayer(LayerForward):
    """The ``forward`` of a decoder layer, with the kernels where they can be used.

    Args:
        layer: the modules of the decoder layer.
        kernels: what lies between its products.
        norms: formula and eps of its norms and of those of its heads.

    Attributes:
        index: its place in the cache.
        following: the next layer, if it is such a one too.
    """

    following: "GpuLayer | None" = None

    def __init__(
        self,
        layer: DecoderLayer,
        kernels: LayerKernels,
        norms: Sequence[tuple[Callable[..., Tensor], float]],
    ) -> None:
        self.module = layer.module
        self._layer, self._kernels = layer, kernels
        self._early = norms[0][0] is early
        self._eps = [eps for _, eps in norms]
        self._width: int = layer.attention.head_dim  # type: ignore[assignment]
        self._scale: float = layer.attention.scaling  # type: ignore[assignment]
        self.index: int = layer.attention.layer_idx  # type: ignore[assignment]
        self._normed: tuple[Tensor, Tensor] | None = None
        self._joined: dict[tuple[str, ...], JoinedLinears] = {}
        # Only the layer's own forward calls these; the linears are called as they are.
        uncalled = (layer.attention, layer.mlp, layer.activation, *layer.norms, *layer.head_norms)
        owners = (layer.module, layer.attention, layer.mlp)
        self.watched = Watched(
            children=[(o._modules, name, child) for o in owners for name, child in _children(o)],
            forwards=[(module.__dict__, None) for module in uncalled],
            methods=[(module, type(module).forward) for module in uncalled],
            places=[
                (module._parameters, name, place(module._parameters, name))
                for module in uncalled
                for name in module._parameters
            ],
            hooks=[
                hooks
                for module in uncalled
                for hooks in (module._forward_hooks, module._forward_pre_hooks)
            ],
        )

    def exit(self) -> None:
        """See :meth:`draftwood.runner.layer_forward.LayerForward.exit`."""
        self._normed = None
        super().exit()

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: Any,
    ) -> Any:
        attention = kwargs.get("draftwood_visibility")
        entries = getattr(past_key_values, "written", None)
        if (
            not isinstance(attention, KernelAttention)
            or entries is None
            or attention_mask is None
            or position_embeddings is None
            or torch.is_grad_enabled()
            or not self._takes(hidden_states, position_embeddings)
        ):
            return self.own(
                hidden_states,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=past_key_values,
                use_cache=use_cache,
                position_embeddings=position_embeddings,
                **kwargs,
            )
        layer, kernels, x = self._layer, self._kernels, hidden_states[0]
        of: Any = layer.attention
        normed = self._norm_of(hidden_states)
        keys, values = past_key_values.flat(self.index)
        head_norms = None
        if layer.head_norms:
            weights = [norm.weight for norm in layer.head_norms]
            head_norms = (*zip(weights, self._eps[2:], strict=True),)
        queries = kernels.rotate_store(
            *(*self._products(normed, of, ("q_proj", "k_proj", "v_proj")), position_embeddings),
            *(entries, keys, values, head_norms),
            early=self._early,
        )
        keys, values = past_key_values.read(self.index)
        attended = attention.attend(
            *(queries[None].transpose(1, 2), keys, values, attention_mask),
            *(self._scale, None, None),
        )
        change = of.o_proj(attended.reshape(len(x), -1))
        x, normed = self._add_norm(x, change, 1)
        mlp: Any = layer.mlp
        gate, up = self._products(normed, mlp, ("gate_proj", "up_proj"))
        change = mlp.down_proj(kernels.silu_mul(gate, up))
        following = self.following
        if following is None or not following.entered or following.hooked:
            return (x + change)[None]
        x, normed = following._add_norm(x, change, 0)
        result = x[None]
        following._normed = (result, normed)
        return result

    def join(self) -> None:
        """Make products of the same input one, where the linears are plain ones."""
        for owner, names in (
            (self._layer.attention, ("q_proj", "k_proj", "v_proj")),
            (self._layer.mlp, ("gate_proj", "up_proj")),
        ):
            joined = join_linears([owner._modules[name] for name in names])
            if joined is not None:
                self._joined[names] = joined

    def undo(self) -> None:
        """Give each linear a weight of its own."""
        for joined in self._joined.values():
            joined.undo()

    def _products(self, x: Tensor, owner: Any, names: tuple[str, ...]) -> Sequence[Tensor]:
        joined = self._joined.get(names)
        return [getattr(owner, name)(x) for name in names] if joined is None else joined(x)

    def _takes(self, x: Tensor, factors: tuple[Tensor, Tensor]) -> bool:
        cos, sin = factors
        return (
            x.shape[0] == 1
            and x.is_contiguous()
            and cos.shape[-1] == self._width
            and cos.is_contiguous()
            and sin.is_contiguous()
            and cos.dtype is sin.dtype is x.dtype
        )

    def _norm_of(self, hidden_states: Tensor) -> Tensor:
        """The first norm of the layer's input, which the layer before may have computed."""
        known, self._normed = self._normed, None
        if known is not None and known[0] is hidden_states:
            return known[1]
        return self._add_norm(hidden_states[0], None, 0)[1]

    def _add_norm(self, x: Tensor, change: Tensor | None, which: int) -> tuple[Tensor, Tensor]:
        weight: Any = self._layer.norms[which].weight
        return self._kernels.add_norm(x, change, weight, self._eps[which], early=self._early)


def _children(module: nn.Module) -> list[tuple[str, nn.Module | None]]:
    return list(module._modules.items())


class _OneForward:
    """A cache that holds the keys and values of one forward."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._keys, self._values = keys, values
        self.written = torch.arange(len(keys), device=keys.device)

    def flat(self, _: int) -> tuple[Tensor, Tensor]:
        return self._keys, self._values

    def read(self, _: int) -> tuple[Tensor, Tensor]:
        return self._keys.transpose(0, 1)[None], self._values.transpose(0, 1)[None]

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self._keys.copy_(key[0].transpose(0, 1))
        self._values.copy_(value[0].transpose(0, 1))
        return self.read(0)


def _agrees(layer: GpuLayer, attend: AttendTrees, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels compute what the layer does, for random rows and rotary factors."""
    generator = torch.Generator().manual_seed(0)
    modules = layer._layer
    attention: Any = modules.attention
    width: int = attention.head_dim
    hidden = len(next(modules.norms[0].parameters()))
    tree = tree_of(range(_NODES), [(node - 1) // 2 for node in range(_NODES)])

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, device="cpu").to(device, dtype)

    x, factors = drawn(1, _NODES, hidden), (drawn(1, _NODES, width), drawn(1, _NODES, width))
    found = []
    with torch.inference_mode():
        try:
            heads, kv_heads = (
                linear(x[0, :1]).shape[-1] // width
                for linear in (attention.q_proj, attention.k_proj)
            )
            trees = DeviceTrees(attend, (LayerKind("full"),), heads // kv_heads, dtype, device)
            _, plan = trees.build([0], [tree], [0])
            mask: Any = plan.stand_ins
            row = torch.zeros(1, dtype=torch.int64, device=device)
            numbers = torch.from_numpy(plan.numbers).to(device)
            step = plan.attention(plan.seen(numbers, row, row[None]))
            for forward in (layer, layer.own):
                cache = _OneForward(drawn(_NODES, kv_heads, width), drawn(_NODES, kv_heads, width))
                result = forward(
                    x,
                    attention_mask=mask,
                    position_embeddings=factors,
                    past_key_values=cache,
                    draftwood_visibility=step,
                )
                found.append([result, *cache.flat(0)])
        except (TypeError, RuntimeError, ValueError, AttributeError, KeyError, IndexError):
            return False
    if not all(isinstance(each, Tensor) and each.shape == x.shape for each, *_ in found):
        return False
    changes = [(found[1][0] - x).abs().max(), *(each.abs().max() for each in found[1][1:])]
    return all(
        bool((own - other).abs().max() <= _TOLERANCE[dtype] * change)
        for own, other, change in zip(*found, changes, strict=True)
    )

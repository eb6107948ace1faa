"""A two-token forward that finds the shapes of the model's cached keys and values.

Models whose layers cache anything else are refused.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import HeadGroups
from draftwood.runner.cache import Plane
from draftwood.runner.masks import LayerKind

OWN_ATTENTION = (
    "computes attention by itself and ignores set_attn_implementation; decode it without draftwood"
)


@dataclass(frozen=True)
class CacheLayout:
    """Shapes and dtypes of a model's cache and logits.

    Attributes:
        layers: planes of keys and of values, per layer.
        group: query heads per key head.
        vocab_size: width of the logits.
        dtype: of the keys, and so of masks.
        attended_as_cached: whether attention gets keys and values of these shapes. Models with
            latent attention cache less and expand it in each layer.
    """

    layers: tuple[tuple[Plane, Plane], ...]
    group: int
    vocab_size: int
    dtype: torch.dtype
    attended_as_cached: bool

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers."""
        planes = [plane for pair in self.layers for plane in pair]
        return sum(plane.heads * plane.width * plane.dtype.itemsize for plane in planes)


class _Recorder(Cache):
    """A cache that records the shapes of each layer's keys and values and stores nothing."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.seen: dict[int, tuple[Plane, Plane]] = {}

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen[layer_idx] = (_plane(key_states), _plane(value_states))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return 0


def _plane(states: torch.Tensor) -> Plane:
    return Plane(states.shape[1], states.shape[3], states.dtype, states.device)


def probe_cache(
    model: Any, kinds: tuple[LayerKind, ...], layers: int, device: torch.device
) -> CacheLayout:
    """Run two tokens through the model and record what it caches.

    Raises:
        DraftwoodError: some layer caches something other than keys and values.
    """
    recorder, groups = _Recorder(), HeadGroups()
    ids = torch.zeros((1, 2), dtype=torch.int64, device=device)
    mask = torch.zeros((1, 1, 2, 2), dtype=model.dtype, device=device)
    with torch.inference_mode():
        try:
            logits = model(
                input_ids=ids,
                position_ids=torch.arange(2, device=device)[None],
                attention_mask=mask if len(kinds) == 1 else {kind.name: mask for kind in kinds},
                past_key_values=recorder,
                use_cache=True,
                draftwood_visibility=groups,
            ).logits
        except DraftwoodError:
            raise
        except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError) as error:
            raise DraftwoodError(
                f"{type(model).__name__} does not run on a cache of keys and values with given "
                f"positions ({type(error).__name__}: {error}); decode it without draftwood"
            ) from error
    if sorted(recorder.seen) != list(range(layers)):
        raise DraftwoodError(
            f"{type(model).__name__} caches keys and values in {len(recorder.seen)} of its "
            f"{layers} layers; the state of the others cannot branch into a tree; "
            "decode it without draftwood"
        )
    if not groups.sizes:
        raise DraftwoodError(f"{type(model).__name__} {OWN_ATTENTION}")
    if len(groups.sizes) != 1:
        raise DraftwoodError(
            f"the layers of {type(model).__name__} group their heads in {len(groups.sizes)} "
            "different ways, which one mask cannot serve; decode it without draftwood"
        )
    found = tuple(recorder.seen[i] for i in range(layers))
    cached = [tuple((plane.heads, plane.width) for plane in planes) for planes in found]
    return CacheLayout(
        found,
        groups.sizes.pop(),
        logits.shape[-1],
        found[0][0].dtype,
        attended_as_cached=cached == groups.planes,
    )

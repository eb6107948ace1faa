"""A two-token forward that finds the shapes of the model's cached keys and values.

Models whose layers cache anything else are refused.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from draftwood.errors import DraftwoodError
from draftwood.runner.attention import HeadGroups, handed
from draftwood.runner.cache import Plane, WithoutStates
from draftwood.runner.masks import LayerKind, one_or_all

OWN_ATTENTION = (
    "computes attention by itself and ignores set_attn_implementation; decode it without draftwood"
)


@dataclass(frozen=True)
class CacheLayout:
    """Shapes and dtypes of a model's cache and logits.

    Attributes:
        layers: planes of keys and of values, per layer; of a layer that stores none, the index of
            the layer whose keys and values it reads; of one without attention, None.
        group: query heads per key head, in the layers that have most.
        vocab_size: width of the logits.
        dtype: of the keys, and so of masks.
        attended: query heads per key head, key heads, width of a key and of a value, of the layers.
        attended_as_cached: whether attention gets keys and values of the cached shapes. Models with
            latent attention cache less and expand it in each layer.
        drops_step: whether its layers drop the argument that tells attention how queries see keys
            (:func:`draftwood.runner.attention.handed`).
    """

    layers: tuple[tuple[Plane, Plane] | int | None, ...]
    group: int
    vocab_size: int
    dtype: torch.dtype
    attended: frozenset[tuple[int, int, int, int]]
    attended_as_cached: bool
    drops_step: bool

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values in all layers that store them."""
        planes = [plane for pair in self.layers if isinstance(pair, tuple) for plane in pair]
        return sum(plane.heads * plane.width * plane.dtype.itemsize for plane in planes)


class _Recorder(WithoutStates):
    """A cache that records the shapes of each layer's keys and values and stores nothing."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.seen: dict[int, tuple[Plane, Plane]] = {}
        self.states: set[tuple[int, int]] = set()

    def noted(self, layer: int, state: int) -> None:
        self.states.add((layer, state))

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
    model: Any,
    kinds: tuple[LayerKind, ...],
    layers: int,
    device: torch.device,
    served: Collection[tuple[int, int]] = (),
) -> CacheLayout:
    """Run two tokens through the model and record what it caches.

    Args:
        model: attends with our function.
        kinds: of its layers with attention.
        layers: their number, others included.
        device: the model's.
        served: recurrent states that are kept for their layers: index of the layer, and which of
            its states.

    Raises:
        DraftwoodError: some other layer caches something else than keys and values.
    """
    recorder, logits = _probe(model, kinds, device, groups := HeadGroups())
    drops = not groups.sizes
    if drops:
        with handed(groups):
            recorder, logits = _probe(model, kinds, device, groups)
    kept = sorted(recorder.states.difference(served))
    if kept:
        raise DraftwoodError(
            f"{type(model).__name__} keeps a state in layer {kept[0][0]} that cannot branch "
            f"into a tree as transformers {transformers.__version__} computes it; decode it "
            "without draftwood"
        )
    found = _by_layer(recorder.seen, groups.read, layers, recurrent=bool(served))
    if found is None:
        raise DraftwoodError(
            f"{type(model).__name__} caches keys and values in {len(recorder.seen)} of its "
            f"{layers} layers; the state of the others cannot branch into a tree; "
            "decode it without draftwood"
        )
    if not groups.sizes:
        raise DraftwoodError(f"{type(model).__name__} {OWN_ATTENTION}")
    cached = [
        recorder.seen[each] if isinstance(each, int) else each for each in found if each is not None
    ]
    some = next(each for each in found if isinstance(each, tuple))
    return CacheLayout(
        found,
        max(groups.sizes),
        logits.shape[-1],
        some[0].dtype,
        frozenset(
            (group, key.shape[1], key.shape[3], value.shape[3])
            for group, (key, value) in zip(groups.sizes, groups.read, strict=True)
        ),
        attended_as_cached=[tuple(map(_plane, read)) for read in groups.read] == cached,
        drops_step=drops,
    )


def _probe(
    model: Any, kinds: tuple[LayerKind, ...], device: torch.device, groups: HeadGroups
) -> tuple[_Recorder, torch.Tensor]:
    """What a forward over two tokens caches, and its logits; fills ``groups``.

    Raises:
        DraftwoodError: there is no such forward.
    """
    recorder = _Recorder()
    ids = torch.zeros((1, 2), dtype=torch.int64, device=device)
    mask = torch.zeros((1, 1, 2, 2), dtype=model.dtype, device=device)
    with torch.inference_mode():
        try:
            logits = model(
                input_ids=ids,
                position_ids=torch.arange(2, device=device)[None],
                attention_mask=one_or_all({kind.name: mask for kind in kinds}),
                past_key_values=recorder,
                use_cache=True,
                draftwood_visibility=groups,
            ).logits
        except DraftwoodError:
            raise
        except (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError) as error:
            raise DraftwoodError(
                f"{type(model).__name__} does not run on a cache of keys and values with given "
                f"positions in transformers {transformers.__version__} ({type(error).__name__}: "
                f"{error}); decode it without draftwood"
            ) from error
    return recorder, logits


def _by_layer(
    stored: Mapping[int, tuple[Plane, Plane]],
    read: Sequence[tuple[torch.Tensor, torch.Tensor]],
    layers: int,
    *,
    recurrent: bool,
) -> tuple[tuple[Plane, Plane] | int | None, ...] | None:
    """What :attr:`CacheLayout.layers` holds; None if some layers keep another state.

    A layer that stores nothing must attend to the very keys that an earlier layer got from the
    cache.

    Args:
        stored: planes of the layers that store keys and values.
        read: what attention was given, call by call.
        layers: of the model.
        recurrent: other layers have no attention.
    """
    if not stored or max(stored) >= layers:
        return None
    found: list[tuple[Plane, Plane] | int | None] = []
    for layer in range(layers):
        if layer in stored:
            found.append(stored[layer])
            continue
        if recurrent:
            found.append(None)
            continue
        sources = [i for i in stored if i < layer and len(read) == layers]
        source = next((i for i in sources if read[i][0] is read[layer][0]), None)
        if source is None:
            return None
        found.append(source)
    return tuple(found)

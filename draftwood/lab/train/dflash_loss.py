"""Training loss of a DFlash drafter: blocks behind anchors, against the target's distributions.

Source: *DFlash: Block Diffusion for Flash Speculative Decoding* (z-lab, 2026). Every row of text
has blocks behind random anchors. A slot sees the context before its anchor and the slots of its own
block. All blocks of a row are one sequence with a mask.

Deviation: labels are the target's distributions along the text, not the text's tokens. The weights
of slots fall as those of an EAGLE-3 head's steps do.
"""

import torch
from torch import Tensor

from draftwood.drafters.dflash.network import DFlashNetwork
from draftwood.lab.train.head_loss import STEP_DECAY, DraftLabels
from draftwood.lab.train.loss import chunked_loss
from draftwood.lab.train.teacher import TargetStates, Teacher


class BlockLoss:
    """Weighted mean over slots of ``KL(target || drafter)``, in nats per drafted token.

    Implements :class:`draftwood.lab.train.trainer.Loss`. The anchors of a step are the same
    whenever it is computed.

    Args:
        network: the drafter that is trained, with an output of its own.
        teacher: the target.
        labels: of the draft vocabulary.
        anchors: blocks in a row of text, at most.
        mixed: whether matrix products run in bfloat16.
    """

    def __init__(
        self,
        network: DFlashNetwork,
        teacher: Teacher,
        labels: DraftLabels,
        anchors: int,
        mixed: bool = False,
    ) -> None:
        self._network, self._teacher, self._labels = network, teacher, labels
        self._anchors, self._mixed = anchors, mixed

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:
        """See :class:`draftwood.lab.train.trainer.Loss`; rows need a token per slot."""
        network, mixed = self._network, self._mixed
        tokens = torch.cat([given, wanted[:, -1:]], dim=1)
        reading = self._teacher.read(tokens, network.config.taps, mixed)
        places = random_anchors(tokens, network.config.block_size, self._anchors, step)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=mixed):
            found = drafted_blocks(network, reading.features.float(), tokens, places)
        found = found.bfloat16() if mixed else found
        drafted = found.shape[2]
        last = blocks_of(reading, places, drafted).flatten(0, 2)
        shares = STEP_DECAY ** torch.arange(drafted, device=tokens.device)
        weights = (shares / shares.sum() / places.numel()).repeat(places.numel())
        hidden = found.flatten(0, 2)[None]
        labels = self._labels.after(last, self._teacher)
        return chunked_loss(hidden, network.lm_head.weight, weights[None], labels)


def random_anchors(tokens: Tensor, block: int, most: int, seed: int) -> Tensor:
    """Positions of anchors, int64 ``[rows, anchors]``, ascending, each with a block behind it.

    Those of a row follow from the seed and its text, whichever rows are beside it.
    """
    count = tokens.shape[1] - block
    found = []
    for total in tokens.sum(1).tolist():
        generator = torch.Generator().manual_seed(seed * 1_000_003 + total)
        # An anchor has a position before it, whose hidden states are its context.
        drawn = torch.randperm(count, generator=generator)[: min(most, count)]
        found.append(1 + drawn.sort().values)
    return torch.stack(found).to(tokens.device)


def drafted_blocks(
    network: DFlashNetwork, features: Tensor, tokens: Tensor, places: Tensor
) -> Tensor:
    """Last hidden states ``[rows, anchors, B - 1, H]`` of the slots that draft.

    Args:
        network: with slots that are the tokens at their positions.
        features: the target's ``[rows, length, taps * H]``.
        tokens: int64 ``[rows, length]``.
        places: of the anchors, int64 ``[rows, anchors]``.
    """
    rows, anchors = places.shape
    block = network.config.block_size
    slots = network.embedded(tokens.gather(1, places).flatten(), block)
    slots = slots.view(rows, anchors * block, -1)
    steps = torch.arange(block, device=tokens.device)
    positions = (places[..., None] + steps).flatten(1)
    factors = network.rotary_emb(slots, positions)
    contexts = [network.read(each, 0) for each in features]
    masks = [_seen(each, features.shape[1], block) for each in places]
    for index, layer in enumerate(network.layers):
        slots = layer(slots, factors, [context[index] for context in contexts], masks)
    found: Tensor = network.norm(slots).view(rows, anchors, block, -1)
    return found[:, :, 1:]


def _seen(places: Tensor, length: int, block: int) -> Tensor:
    """What the slots of a row see, bool ``[anchors * B, length + anchors * B]``."""
    number = torch.arange(len(places), device=places.device).repeat_interleave(block)
    before = torch.arange(length, device=places.device) < places[number][:, None]
    return torch.cat([before, number[:, None] == number], dim=1)


def blocks_of(reading: TargetStates, places: Tensor, drafted: int) -> Tensor:
    """The target's last hidden states ``[rows, anchors, drafted, H]`` that say the slots' tokens.

    Slot j is the token at position j behind the anchor, which the state before it says.
    """
    where = places[..., None] + torch.arange(drafted, device=places.device)
    width = reading.last.shape[-1]
    flat = where.flatten(1)[..., None].expand(-1, -1, width)
    return reading.last.gather(1, flat).view(*where.shape, width)

"""Stand-ins that make the loop testable without a model: exact, instant, deterministic."""

import dataclasses
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.live import LiveCosts
from draftwood.costs.recall import CostsOf
from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.eagle3.config import Eagle3Config
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.drafters.gemma4.checkpoint import load_assistant
from draftwood.drafters.hydra.checkpoint import load_hydra
from draftwood.drafters.medusa.checkpoint import load_medusa
from draftwood.drafters.mtp.checkpoint import load_mtp
from draftwood.errors import DraftwoodError
from draftwood.protocols import (
    Computed,
    DraftDtype,
    DraftHead,
    DraftModel,
    Needs,
    SavedTokens,
    Target,
    TargetInfo,
    TargetOutput,
    Translation,
)
from draftwood.runner.attach import attach
from draftwood.tree import TokenTree, tree_of
from tests.factories.dflash_drafters import made_network
from tests.factories.gemma4_assistants import made_assistant
from tests.factories.hydra_heads import made_hydra
from tests.factories.medusa_heads import made_heads

T = TypeVar("T")
M = TypeVar("M", bound=torch.nn.Module)


def made_head(info: TargetInfo, seed: int, mask_token: int | None = None) -> Eagle3Head:
    torch.manual_seed(seed)
    config = Eagle3Config(
        vocab_size=info.vocab_size,
        draft_vocab_size=info.vocab_size,
        target_hidden_size=info.hidden_size,
        taps=(0,),
        hidden_size=8,
        intermediate_size=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        max_position_embeddings=info.context_limit,
        initializer_range=0.5,
        own_embedding=True,
        mask_token=mask_token,
        bos_token_id=None,
        eos_token_id=None,
    )
    head = Eagle3Head(config)
    head.train(mode=False)
    return head


_MADE: dict[Any, Callable[[TargetInfo, int], torch.nn.Module]] = {
    load_assistant: made_assistant,
    load_dflash: made_network,
    load_hydra: made_hydra,
    load_medusa: lambda info, seed: made_heads(3, info, seed=seed),
    # A layer, which the host makes a head of.
    load_mtp: lambda info, seed: torch.nn.ModuleList([torch.nn.Identity()]),
}
"""Random modules, by the function that loads such a module, for a target and a seed."""


def _seed(name: Any) -> int:
    """The seed of a model's random weights: the same wherever the checkout lies.

    With the letter before the name every method has some drafts accepted by the targets in use.
    """
    return zlib.crc32(f"d{Path(str(name)).name}".encode())


class SteadyCosts(LiveCosts):
    """What instant steps take says nothing."""

    def observe(self, *step: float | None) -> None: ...


@dataclass
class FakeHost:
    """Builds drafters beside a target that is only described; draft models are Markov chains.

    With ``reads`` a character of a text is a token.
    """

    info: TargetInfo
    reads: bool = dataclasses.field(default=False, kw_only=True)
    vocabulary = ""

    def model(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftModel, Translation | None]:
        chain = MarkovTarget(self.info.vocab_size, seed=_seed(name))
        # Any token serves as a mask.
        chain.info = dataclasses.replace(chain.info, config={"pard_token": 0})
        return chain, None

    def head(self, name: Any, dtype: DraftDtype = "auto") -> tuple[DraftHead, DraftModel]:
        # Only heads of EAGLE-3 have a default name.
        mask = None if "eagle3" in str(name) else 0
        head = made_head(self.info, _seed(name), mask)
        return head, attach(head, packing=False, self_test=False)

    def loaded(
        self, load: Callable[[str, Target, torch.dtype], M], name: Any, dtype: DraftDtype = "auto"
    ) -> M:
        return cast(M, _MADE[load](self.info, _seed(name)))

    @property
    def target(self) -> Target:
        found = MarkovTarget(self.info.vocab_size)
        found.info = self.info
        return found

    def encode(self, text: str) -> Sequence[int]:
        if not self.reads:
            raise DraftwoodError("a drafter that reads text needs the target's tokenizer")
        return [ord(each) % self.info.vocab_size for each in text]

    def identity(self, name: Any, dtype: DraftDtype = "auto") -> str:
        return ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        return cast(T, self.costs(key)) if isinstance(key, CostsOf) else make()

    def costs(self, key: CostsOf) -> LiveCosts:
        """A token in a tree costs a hundredth of a forward, a draft level a tenth of one."""
        level = Curve((1, 64), (0.1, 0.2))
        levels = {source: level for source, _ in key.drafters}
        return SteadyCosts(StepCosts(Curve((1, 101), (1.0, 2.0)), levels))


class MarkovTarget:
    """A target whose next-token logits depend on the last two tokens only.

    Implements :class:`draftwood.protocols.Target` over plain lists, so that what an engine decodes
    can be compared with a three-line reference (:meth:`greedy`).
    """

    #: Whether forwards over trees take pieces of prompts.
    reads_within = True

    def __init__(
        self, vocab_size: int = 13, seed: int = 0, context_limit: int = 256, sharpness: float = 3.0
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (vocab_size, vocab_size, vocab_size)
        self.table = torch.randn(shape, generator=generator) * sharpness
        self.info = TargetInfo(vocab_size, context_limit, 1, 1, torch.device("cpu"), torch.float32)
        self.cached: dict[int, list[int]] = {}
        self.forwards = 0
        self.pieces: list[int] = []
        self._last: dict[int, TokenTree] = {}

    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Raw logits ``[V]`` after ``tokens``."""
        before = tokens[-2] if len(tokens) > 1 else 0
        return self.table[before, tokens[-1]]

    def greedy(self, prompt: Sequence[int], count: int) -> tuple[int, ...]:
        """What plain greedy decoding yields."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.logits(tokens).argmax()))
        return tuple(tokens[len(prompt) :])

    def allocate(self, tokens: int) -> None: ...

    def trim(self) -> None: ...

    def open(self, capacity: int) -> int:
        slot = next(i for i in range(len(self.cached) + 1) if i not in self.cached)
        self.cached[slot] = []
        return slot

    def prefill(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        needs: Needs,
        hidden: Sequence[torch.Tensor] = (),
    ) -> list[TargetOutput]:
        assert not hidden
        found = []
        for slot, prompt in zip(slots, prompts, strict=True):
            before = len(self.cached[slot])
            text = self.cached[slot] = [*self.cached[slot], *prompt]
            first = before + 1 if needs.prompt_rows else len(text)
            logits = torch.stack([self.logits(text[:n]) for n in range(first, len(text) + 1)])
            rows = self._rows(logits, needs)
            features = self._features([text[:n] for n in range(before + 1, len(text) + 1)], needs)
            found.append(
                TargetOutput(logits[-1:], rows.argmax, rows.top_tokens, rows.top_probs, features)
            )
        return found

    def prefill_piece(
        self,
        slots: Sequence[int],
        pieces: Sequence[Sequence[int]],
        needs: Needs,
        prompts: Sequence[int],
    ) -> list[TargetOutput]:
        assert all(n > 0 for n in prompts)
        self.pieces += [len(piece) for piece in pieces]
        return self.prefill(slots, pieces, needs)

    most_within = 512

    def readable(self, slot: int, tokens: int) -> bool:
        return self.reads_within

    def submit_with_pieces(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        pieces: Mapping[int, Sequence[int]],
    ) -> Computed:
        self.pieces += [len(piece) for piece in pieces.values()]
        chains = [tree_of(ids, range(-1, len(ids) - 1), "prompt") for ids in pieces.values()]
        found = self.forward([*slots, *pieces], [*trees, *chains], needs)
        for i in range(len(trees), len(found)):
            rows, features = found[i], found[i].features
            if not needs.prompt_rows:
                last = TargetOutput(
                    *(rows.logits[-1:], rows.argmax[-1:], rows.top_tokens[-1:], rows.top_probs[-1:])
                )
                found[i] = dataclasses.replace(last, features=features)
        return Computed(found)

    def savable(self, slot: int, length: int) -> int:
        return length

    def saved(self, slot: int, length: int) -> SavedTokens:
        return SavedTokens(length, (torch.tensor(self.cached[slot][:length]),))

    def restore(self, slot: int, saved: SavedTokens, length: int) -> None:
        assert not self.cached[slot]
        self.cached[slot] = saved.tensors[0][:length].tolist()

    def lend(self, lender: int, slot: int, length: int) -> None:
        assert not self.cached[slot]
        self.cached[slot] = self.cached[lender][:length]

    remembered_bytes = 0
    weights_version: Hashable = 0

    def remember(self, slot: int) -> None: ...

    def submit(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        numbers: NDArray[np.int64] | None = None,
    ) -> Computed:
        return Computed(self.forward(slots, trees, needs))

    def forward(
        self,
        slots: Sequence[int],
        trees: Sequence[TokenTree],
        needs: Needs,
        done: Sequence[int] = (),
        hidden: Sequence[torch.Tensor] = (),
        unread: Sequence[int] = (),
    ) -> list[TargetOutput]:
        assert not hidden
        self.forwards += 1
        found = []
        done, unread = done or [0] * len(trees), unread or [0] * len(trees)
        for slot, tree, first, skipped in zip(slots, trees, done, unread, strict=True):
            # Nodes that are done must be those that were forwarded before, in the same order.
            before = self._last.get(slot)
            assert not first or before is not None
            if first and before is not None:
                assert before.tokens[:first].tolist() == tree.tokens[:first].tolist()
                assert before.parents[:first].tolist() == tree.parents[:first].tolist()
                assert first == len(before) < len(tree)
            prefix = [*self.cached[slot], int(tree.tokens[0])]
            nodes = range(first + skipped, len(tree))
            texts = [[*prefix, *tree.path_tokens(i)] for i in nodes]
            rows = self._rows(torch.stack([self.logits(text) for text in texts]), needs)
            found.append(dataclasses.replace(rows, features=self._features(texts, needs)))
            self._last[slot] = tree
        return found

    def commit(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        for slot, path in zip(slots, paths, strict=True):
            tree = self._last.pop(slot)
            self.cached[slot] += [int(tree.tokens[i]) for i in (0, *path)]

    def length(self, slot: int) -> int:
        return len(self.cached[slot])

    def release(self, slot: int) -> None:
        del self.cached[slot]
        self._last.pop(slot, None)

    def keys_values(self, slots: Sequence[int], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        raise DraftwoodError(f"a Markov chain has no layer {layer} for slots {slots}")

    def embedding(self) -> torch.nn.Module:
        return torch.nn.Embedding(self.info.vocab_size, self.info.hidden_size)

    def lm_head(self) -> torch.nn.Module | None:
        return None

    def _features(self, texts: Sequence[Sequence[int]], needs: Needs) -> torch.Tensor | None:
        """One channel a tap, a function of the last two tokens."""
        if not needs.taps:
            return None
        seen = [[len(needs.taps) * self.logits(text)[0].item()] for text in texts]
        return torch.tensor(seen).expand(-1, len(needs.taps))

    @staticmethod
    def _rows(logits: torch.Tensor, needs: Needs) -> TargetOutput:
        k = min(needs.top_k, logits.shape[-1])
        top = logits.softmax(-1).topk(k)
        return TargetOutput(
            logits,
            logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1).numpy(),
            top.indices.numpy().astype(np.int64),
            top.values.numpy(),
        )

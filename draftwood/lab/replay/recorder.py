"""Plain decoding that keeps every row of the target: how a recording is made.

The rows are gathered by a drafter that offers nothing, because drafters are who the engine shows
them to. An answer that ends by itself is decoded some tokens further (``PAST_END``), which changes
none of its tokens: random numbers are keyed by position.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from draftwood.engine.engine import Engine
from draftwood.engine.request import Completion, Request
from draftwood.errors import DraftwoodError
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.recording import PAST_END, Asked, RecordedPrompt, Text
from draftwood.lab.replay.rows import Paths, Ranked
from draftwood.methods import method
from draftwood.methods.recipe import Method
from draftwood.protocols import (
    Candidates,
    Continuation,
    Drafter,
    Expand,
    Host,
    Needs,
    Outcome,
    Prefill,
    Target,
    TargetOutput,
)
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import Draw


class Recorder:
    """Decodes prompts plainly, one after another, and keeps what the target said.

    Args:
        target: the model, attached.
        tokenizer: the target's.
        asked: of it; ``width`` is cut to the vocabulary.
    """

    def __init__(self, target: Target, tokenizer: PreTrainedTokenizerBase, asked: Asked) -> None:
        if asked.width < 1:
            raise DraftwoodError(f"rows of {asked.width} tokens say nothing: keep at least 1")
        width = min(asked.width, target.info.vocab_size)
        self.asked = replace(asked, width=width)
        self._rows = _Rows(width)
        plain = method("ar")
        watched = Method(plain.name, plain.policy, {"rows": self._rows}, plain.verifier)
        self._engine = Engine(target, watched)
        self._contexts = Contexts(
            tokenizer,
            target.info.context_limit,
            asked.max_new_tokens,
            chat=asked.chat,
            truncate=asked.truncate,
        )

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Refuse prompts that may outgrow the context."""
        self._contexts.check(prompts)

    def record(self, number: int, prompt: Prompt) -> RecordedPrompt:
        """All turns of a prompt, the run's ``number``-th from 0."""
        seed = (self.asked.seed + number) % SEED_LIMIT
        texts: list[Text] = []
        while len(texts) < len(prompt.turns):
            context = self._contexts.after(prompt, [text.tokens for text in texts])
            texts.append(self._text(context.ids, seed))
        return RecordedPrompt(prompt.id, prompt.task, prompt.set, seed, texts)

    def _text(self, ids: Sequence[int], seed: int) -> Text:
        asked = self.asked
        sampling = SamplingParams(
            temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p, seed=seed
        )
        end = _past_end(frozenset(asked.eos))
        request = Request(ids, asked.max_new_tokens, sampling, should_stop=end)
        completion: Completion = self._engine.generate([request])[0].checked()
        tokens, values = self._rows.taken()
        rows = Ranked(self.asked.width)
        rows.put(range(len(tokens)), self.asked.width, tokens, values)
        found = completion.tokens
        answer = next((i for i, t in enumerate(found, start=1) if t in asked.eos), len(found))
        return Text(len(ids), answer, Paths([*ids, *found]), rows)


def _past_end(eos: frozenset[int]) -> Callable[[torch.Tensor], bool]:
    """Whether enough tokens have followed the first one that ends the answer."""
    beyond = -1

    def stop(ids: torch.Tensor) -> bool:
        nonlocal beyond
        if beyond >= 0 or int(ids[0, -1]) in eos:
            beyond += 1
        return beyond >= PAST_END

    return stop


@dataclass(eq=False)
class _Rows:
    """Spec of a drafter that keeps the rows of one request at a time, and the drafter itself."""

    width: int

    draws: ClassVar = frozenset({Draw.ONE_HOT})
    model: ClassVar = None
    forwards: ClassVar = 0

    def build(self, host: Host) -> Drafter:  # noqa: ARG002
        return self

    @property
    def needs(self) -> Needs:
        return Needs(top_k=self.width, prompt_rows=True)

    def backlog(self, slot: int) -> int:  # noqa: ARG002
        return 0

    def begin(self, slot: int, prefill: Prefill) -> None:  # noqa: ARG002
        self._kept = [prefill.rows]

    def observe(self, slot: int, outcome: Outcome) -> None:  # noqa: ARG002
        self._kept.append(outcome.rows)

    def taken(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Tokens and probabilities ``[n, width]`` of all positions but the last."""
        kept: list[TargetOutput] = self._kept
        return (
            np.concatenate([rows.top_tokens for rows in kept]),
            np.concatenate([rows.top_probs for rows in kept]),
        )

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        return [() for _ in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        raise DraftwoodError(f"{len(queries)} queries to a drafter that only listens, in {slots}")

    def proposals(self, slot: int, q_rows: Sequence[int]) -> torch.Tensor:
        raise DraftwoodError(f"nothing was sampled in slot {slot}, {len(q_rows)} rows asked for")

    def release(self, slot: int) -> None:
        pass

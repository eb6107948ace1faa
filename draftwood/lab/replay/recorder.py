"""Makes recordings: plain decoding that stores the target's output at every token.

A drafter without candidates collects the rows, because the engine passes rows to drafters. An
answer that ends with an end token is decoded ``PAST_END`` tokens further. This changes none of its
tokens: random numbers are keyed by position.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.lab.bench.contexts import Contexts
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay.recording import (
    PAST_END,
    ModelFacts,
    RecordedPrompt,
    RecordingSettings,
    Text,
)
from draftwood.lab.replay.rows import PathTrie, RankedRows
from draftwood.methods import method
from draftwood.models import Loaded
from draftwood.protocols import (
    Drafter,
    DrafterSpec,
    Host,
    Needs,
    Outcome,
    Prefill,
    Target,
    TargetInfo,
    TargetOutput,
)
from draftwood.sampling.noise import SEED_LIMIT
from draftwood.sampling.sampler import SamplingParams


def model_facts(loaded: Loaded, digest: str, info: TargetInfo) -> ModelFacts:
    """Facts of a loaded and attached model.

    Args:
        loaded: the model.
        digest: see :func:`draftwood.lab.replay.file.digest`; attaching may change it.
        info: of the attached model.
    """
    return ModelFacts(
        name=loaded.name,
        revision=getattr(loaded.model.config, "_commit_hash", None),
        dtype=str(info.dtype).removeprefix("torch."),
        digest=digest,
        vocab_size=info.vocab_size,
        context_limit=info.context_limit,
        layers=info.layers,
        hidden_size=info.hidden_size,
        fingerprint=info.fingerprint,
    )


class Recorder:
    """Records prompts one after another.

    Args:
        target: the model, attached.
        tokenizer: the target's tokenizer.
        settings: decoding settings; ``width`` is reduced to the size of the vocabulary.
    """

    def __init__(
        self, target: Target, tokenizer: PreTrainedTokenizerBase, settings: RecordingSettings
    ) -> None:
        width = min(settings.width, target.info.vocab_size)
        self.settings = replace(settings, width=width)
        self._rows = _RowCollector(width)
        plain = method("ar")
        self._engine = Engine(target, replace(plain, drafters={"rows": self._rows}))
        self._contexts = Contexts(
            tokenizer,
            target.info.context_limit,
            settings.max_new_tokens,
            chat=settings.chat,
            truncate=settings.truncate,
        )

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Refuse prompts that may exceed the context limit."""
        self._contexts.check(prompts)

    def record(self, number: int, prompt: Prompt) -> RecordedPrompt:
        """Record all turns of a prompt; ``number`` is its index in the run."""
        seed = (self.settings.seed + number) % SEED_LIMIT
        texts: list[Text] = []
        while len(texts) < len(prompt.turns):
            context = self._contexts.after(prompt, [text.tokens for text in texts])
            texts.append(self._text(context.ids, seed))
        return RecordedPrompt(prompt.id, prompt.task, prompt.set, seed, texts)

    def _text(self, ids: Sequence[int], seed: int) -> Text:
        settings = self.settings
        sampling = SamplingParams(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            seed=seed,
        )
        eos = frozenset(settings.eos)
        past = _past_end(eos)  # the engine is not to stop at the end itself
        request = Request(ids, settings.max_new_tokens, sampling, eos=(), should_stop=past)
        answer = self._engine.generate([request])[0].checked().tokens
        tokens, probs = self._rows.collected()
        rows = RankedRows(settings.width)
        rows.put(range(len(tokens)), settings.width, tokens, probs)
        length = next((i for i, t in enumerate(answer, start=1) if t in eos), len(answer))
        return Text(len(ids), length, PathTrie([*ids, *answer]), rows)


def _past_end(eos: frozenset[int]) -> Callable[[torch.Tensor], bool]:
    """Stop condition: ``PAST_END`` tokens have followed the first end token."""
    beyond = -1

    def stop(ids: torch.Tensor) -> bool:
        nonlocal beyond
        if beyond >= 0 or int(ids[0, -1]) in eos:
            beyond += 1
        return beyond >= PAST_END

    return stop


@dataclass(frozen=True, eq=False)
class _RowCollector(DrafterSpec, Drafter):
    """Settings and drafter in one: no candidates, it collects the rows of one request at a time."""

    width: int

    _outputs: list[TargetOutput] = field(default_factory=list, init=False)

    def build(self, host: Host) -> Drafter:  # noqa: ARG002
        return self

    @property
    def needs(self) -> Needs:
        return Needs(top_k=self.width, prompt_rows=True)

    def begin(self, slot: int, prefill: Prefill) -> None:  # noqa: ARG002
        self._outputs[:] = [prefill.rows]

    def observe(self, slot: int, outcome: Outcome) -> None:  # noqa: ARG002
        self._outputs.append(outcome.rows)

    def collected(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Tokens and probabilities ``[n, width]`` of all positions except the last."""
        outputs = self._outputs
        return (
            np.concatenate([output.top_tokens for output in outputs]),
            np.concatenate([output.top_probs for output in outputs]),
        )

"""What a recording holds: a target's texts, its rows along them, and what drafters said.

The text of a turn is its context, the answer and, where the answer ended by itself, some tokens
beyond its end: a draft may reach past an end and be right. Knows nothing of files and models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.rows import Paths, Ranked
from draftwood.protocols import TargetInfo

PAST_END = 64
"""Tokens that are recorded beyond the end of an answer, at most."""


class MissingRowError(DraftwoodError):
    """A method asked about a path of which the recording knows nothing."""


@dataclass(frozen=True)
class ModelFacts:
    """The target.

    Attributes:
        name: what it was loaded as.
        revision: commit of the checkpoint, if known.
        dtype: of its weights, e.g. ``"float32"``.
        digest: see :func:`draftwood.lab.replay.file.digest`.
        vocab_size: logits in a row.
        context_limit: longest sequence in tokens.
        layers: of its decoder.
        hidden_size: of its hidden states.
    """

    name: str
    revision: str | None
    dtype: str
    digest: str
    vocab_size: int
    context_limit: int
    layers: int
    hidden_size: int

    def info(self) -> TargetInfo:
        """As drafters are told; on the CPU, where a recording is."""
        return TargetInfo(
            self.vocab_size,
            self.context_limit,
            self.layers,
            self.hidden_size,
            torch.device("cpu"),
            getattr(torch, self.dtype),
        )


@dataclass(frozen=True)
class Asked:
    """What every prompt was asked for.

    Attributes:
        max_new_tokens: longest answer.
        eos: token ids that end one.
        temperature: 0 is greedy.
        top_k: 0 is off.
        top_p: 1 is off.
        seed: of the first prompt; each further one has the next.
        width: tokens of every row.
        chat: see :class:`draftwood.lab.bench.contexts.Contexts`.
        truncate: likewise.
    """

    max_new_tokens: int
    eos: tuple[int, ...]
    temperature: float
    top_k: int
    top_p: float
    seed: int
    width: int
    chat: bool | None = None
    truncate: int | None = None


@dataclass(eq=False)
class Text:
    """One answered turn.

    Attributes:
        context: tokens of the context, the first ones of the text.
        answer: tokens of the answer; those beyond its end are not counted.
        paths: the text, and what was drafted beside it.
        rows: the target's, by node: its likeliest tokens and their probabilities.
        drafts: rows of drafters, by :func:`draft_name`: their likeliest tokens and natural logs of
            their probabilities. Keys are nodes or, if the drafter is rooted, roots and nodes
            (:func:`rooted_key`).
    """

    context: int
    answer: int
    paths: Paths
    rows: Ranked
    drafts: dict[str, Ranked] = field(default_factory=dict)

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the context."""
        return tuple(self.paths.main[: self.context])

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of the answer."""
        return tuple(self.paths.main[self.context : self.context + self.answer])


@dataclass(eq=False)
class RecordedPrompt:
    """A prompt's name, task, set and seed as in a benchmark, and its turns in order."""

    id: str
    task: str
    set: str
    seed: int
    texts: list[Text]

    def by_context(self) -> Mapping[tuple[int, ...], Text]:
        """The turns by what was continued."""
        return {text.prompt: text for text in self.texts}


@dataclass(eq=False)
class Recording:
    """See the module.

    Attributes:
        model: the target.
        asked: of it.
        prompts: in order.
        rooted: of each drafter with a model, whether its rows depend on where the tree began, as
            those of a head on the target's hidden states do.
    """

    model: ModelFacts
    asked: Asked
    prompts: list[RecordedPrompt]
    rooted: dict[str, bool] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Rows in it; what grows when it learns."""
        texts = [text for prompt in self.prompts for text in prompt.texts]
        return sum(sum(map(len, (t.rows, *t.drafts.values()))) for t in texts)


def draft_name(drafter: str, temperature: float) -> str:
    """Under which a drafter's rows at a temperature are kept."""
    return drafter if temperature == 1 else f"{drafter} at temperature {temperature!r}"


def rooted_key(root: int, node: int) -> int:
    """One key of a root's position in the text and a node."""
    return root << 32 | node

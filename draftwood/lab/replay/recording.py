"""A recording: a target's answers, its output at each of their tokens, and its drafters' output.

The text of a turn is its context, the answer and, if the answer ended with an end token, up to
``PAST_END`` tokens beyond it, because a draft may continue correctly past the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.rows import PathTrie, RankedRows
from draftwood.protocols import Fingerprint, TargetInfo

PAST_END = 64
"""Most tokens recorded beyond the end of an answer."""


class MissingRowError(DraftwoodError):
    """A method needs a row of a path that the recording does not have."""


@dataclass(frozen=True)
class ModelFacts:
    """The recorded target.

    Attributes:
        name: name or directory it was loaded from.
        revision: commit of the checkpoint, if known.
        dtype: dtype of the weights, e.g. ``"float32"``.
        digest: see :func:`draftwood.lab.replay.file.digest`.
        vocab_size: logits in a row.
        context_limit: longest sequence in tokens.
        layers: number of decoder layers.
        hidden_size: size of the hidden states.
        fingerprint: of the weights; None if they cannot be read.

    Raises:
        DraftwoodError: there is no such dtype.
    """

    name: str
    revision: str | None
    dtype: str
    digest: str
    vocab_size: int
    context_limit: int
    layers: int
    hidden_size: int
    fingerprint: Fingerprint | None = None

    def __post_init__(self) -> None:
        if not isinstance(getattr(torch, self.dtype, None), torch.dtype):
            raise DraftwoodError(f"there is no dtype {self.dtype!r}: name one of torch's")

    def info(self) -> TargetInfo:
        """The same facts for drafters, on the CPU."""
        return TargetInfo(
            self.vocab_size,
            self.context_limit,
            self.layers,
            self.hidden_size,
            torch.device("cpu"),
            getattr(torch, self.dtype),
            fingerprint=self.fingerprint,
        )


@dataclass(frozen=True)
class RecordingSettings:
    """Settings that all prompts were decoded with.

    Attributes:
        max_new_tokens: longest answer.
        eos: token ids that end an answer.
        temperature: 0 is greedy.
        top_k: 0 is off.
        top_p: 1 is off.
        seed: seed of the first prompt; each further prompt has the next one.
        width: tokens in every row.
        chat: see :class:`draftwood.lab.bench.contexts.Contexts`.
        truncate: see :class:`draftwood.lab.bench.contexts.Contexts`.
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
    """A turn and its recorded rows.

    Attributes:
        context: length of the context, the first tokens of the text.
        answer: length of the answer, without tokens beyond its end.
        paths: the text and the drafted paths that branch off it.
        rows: the target's likeliest tokens and their probabilities, by node.
        drafts: drafters' likeliest tokens and their log probabilities (natural), by
            :func:`draft_name`. Keys are nodes or, for a rooted drafter, :func:`rooted_key`.
    """

    context: int
    answer: int
    paths: PathTrie
    rows: RankedRows
    drafts: dict[str, RankedRows] = field(default_factory=dict)

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the context."""
        return tuple(self.paths.main[: self.context])

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of the answer."""
        return tuple(self.paths.main[self.context : self.context + self.answer])


Texts: TypeAlias = Mapping[tuple[int, ...], Text]
"""Turns, by the token ids of their context."""


@dataclass(eq=False)
class RecordedPrompt:
    """A prompt's name, task, set and seed as in a benchmark, and its turns in order."""

    id: str
    task: str
    set: str
    seed: int
    texts: list[Text]

    def by_context(self) -> Texts:
        """The turns by the token ids of their context."""
        return {text.prompt: text for text in self.texts}


@dataclass(eq=False)
class Recording:
    """Recorded prompts of one target.

    Attributes:
        model: the target.
        settings: settings of all prompts.
        prompts: in order.
        rooted: by drafter, whether its rows depend on the tree's root, as those of a head on the
            target's hidden states do.
    """

    model: ModelFacts
    settings: RecordingSettings
    prompts: list[RecordedPrompt]
    rooted: dict[str, bool] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of rows of the target and of drafters."""
        texts = [text for prompt in self.prompts for text in prompt.texts]
        return sum(sum(map(len, (t.rows, *t.drafts.values()))) for t in texts)


def draft_name(drafter: str, temperature: float) -> str:
    """Name of the table with a drafter's rows at a temperature."""
    return drafter if temperature == 1 else f"{drafter} at temperature {temperature!r}"


def rooted_key(root: int, node: int) -> int:
    """Key of a rooted drafter's row: the root's position in the text, and the node."""
    return root << 32 | node

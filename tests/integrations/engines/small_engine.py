"""A stand-in for an inference engine: it verifies packed trees greedily with a given model."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from draftwood.integrations.engines import EngineDrafts, PackedTree, TopRows, packed
from draftwood.methods import method
from draftwood.tree import TokenTree, tree_of

VOCAB, CONTEXT = 50, 400
Next: TypeAlias = Callable[[Sequence[int]], int]


def drafts(text: str = "auto:verifier=walk:budget=7", **named: object) -> EngineDrafts:
    """Drafts for a small vocabulary."""
    return EngineDrafts(method(text), vocab_size=VOCAB, context=CONTEXT, **named)  # type: ignore[arg-type]


def follows(seed: int) -> Next:
    """A model that mostly goes on as the token before was gone on with, and now and then not."""
    after = np.random.default_rng(seed).permutation(VOCAB).tolist()

    def next_token(text: Sequence[int]) -> int:
        surprise = (text[-1] * 31 + len(text) * 7 + seed) % 11 == 0
        return int((after[text[-1]] + surprise) % VOCAB)

    return next_token


def plain(model: Next, prompt: Sequence[int], count: int) -> list[int]:
    """Tokens of plain greedy decoding."""
    text = [*prompt]
    for _ in range(count):
        text.append(model(text))
    return text[len(prompt) :]


def rows_of(model: Next, text: Sequence[int], tree: TokenTree) -> TopRows:
    """The likeliest tokens after all nodes of a tree that follows a text; the root ends it."""
    best = []
    for node in range(len(tree)):
        token = model([*text, *tree.path_tokens(node)])
        best.append([token, (token + 1) % VOCAB])
    chances = np.tile(np.array([0.9, 0.05], dtype=np.float32), (len(tree), 1))
    return TopRows(np.array(best, dtype=np.int64), chances)


class Letters:
    """A tokenizer whose tokens are letters."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The letters of a text."""
        assert not add_special_tokens, "text of a file does not begin a prompt"
        return [ord(letter) % VOCAB for letter in text]

    def get_vocab(self) -> dict[str, int]:
        """Some letters and their ids."""
        return {chr(i): i for i in range(VOCAB)}


@dataclass
class SmallEngine:
    """Decodes requests with drafts, as an engine does.

    Attributes:
        drafts: drafts for it.
        model: says which token follows a text.
        nodes: of every tree.
        rows: whether it gives the likeliest tokens of its rows.
        texts: prompt and tokens of each request.
        steps: steps of requests.
        scattered: accepted paths that are not the first nodes of their trees.
    """

    drafts: EngineDrafts
    model: Next
    nodes: int = 8
    rows: bool = True
    texts: dict[Hashable, list[int]] = field(default_factory=dict)
    steps: int = 0
    scattered: int = 0

    def add(self, request: Hashable, prompt: Sequence[int]) -> None:
        """Read a prompt, and generate its first token."""
        text = [*prompt, self.model(prompt)]
        self.texts[request] = text
        self.drafts.begin(request, text)

    def step(self) -> list[PackedTree]:
        """Draft, verify and commit once for all requests."""
        trees = self.drafts.draft([*self.texts])
        given = []
        for (request, text), tree in zip(self.texts.items(), trees, strict=True):
            known = tree_of([text[-1]], [-1]) if tree is None else tree
            given.append(packed(known, self.nodes))
            rows = rows_of(self.model, text, known) if self.rows else None
            path = self._accepted(text, known)
            tokens = [*(int(known.tokens[i]) for i in path)]
            tokens.append(self.model([*text, *tokens]))
            self.steps += 1
            self.scattered += path != list(range(1, len(path) + 1))
            text += tokens
            self.drafts.commit(request, tokens, rows)
        return given

    def _accepted(self, text: Sequence[int], tree: TokenTree) -> list[int]:
        node, path = 0, list[int]()
        while (below := tree.child(node, self.model([*text, *tree.path_tokens(node)]))) is not None:
            path.append(below)
            node = below
        return path

"""A chat model's own answers to prompts: on-policy training text for its drafts.

A draft that is trained on a model's own answers sees the text that it will draft (Li et al.,
*EAGLE-3* (2025), section 4, train on answers that the target generates).
"""

import gzip
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.files import decode, encode, read_json, write_bytes, write_json, write_text
from draftwood.lab.bench.sources import load as load_rows
from draftwood.lab.text import check_text
from draftwood.lab.train.answer_recipe import AnswerRecipe
from draftwood.lab.train.corpus import SEPARATOR
from draftwood.models.chat_template import apply_template
from draftwood.sampling.params import SamplingParams

logger = logging.getLogger(__name__)

RECIPE_FILE = "recipe.json"
"""What the answers in a directory depend on."""


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation that ends with a user's turn.

    Attributes:
        id: unique among the prompts.
        task: kind of prompt.
        messages: as chat templates take them.
    """

    id: str
    task: str
    messages: list[dict[str, str]]

    @property
    def text(self) -> str:
        """The content of all turns."""
        return "\n".join(each["content"] for each in self.messages)


@dataclass(frozen=True)
class Answer:
    """The answer to a prompt: its text, its number of tokens, and the reason for its end."""

    id: str
    answer: str
    tokens: int
    reason: str


def read_prompts(path: Path) -> list[ChatPrompt]:
    """Read prompts: JSON Lines with ``id``, ``task`` and ``messages``.

    Raises:
        DraftwoodError: the file cannot be read, has no rows, a row is no prompt or has no message,
            or an id occurs twice.
    """
    found: dict[str, ChatPrompt] = {}
    for row in load_rows(path).rows:
        prompt = decode(ChatPrompt, dict(row.values), row.where)
        _check_messages(prompt, row.where)
        if prompt.id in found:
            raise DraftwoodError(f"{row.where}: the id {prompt.id!r} occurs twice; rename one")
        found[prompt.id] = prompt
    if not found:
        raise DraftwoodError(f"{path} has no prompts: write one JSON object per line")
    return [*found.values()]


def answer(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[ChatPrompt],
    out: Path,
    recipe: AnswerRecipe,
    part: tuple[int, int] = (0, 1),
) -> Iterator[Path]:
    """Answer prompts in shards, each a JSON Lines file of :class:`Answer`.

    A shard is written when it is complete. A run that was interrupted resumes at the first shard
    that is missing.

    Args:
        engine: decodes plainly or losslessly; the answers do not depend on how.
        tokenizer: the model's, with a chat template.
        prompts: all prompts of the run.
        out: directory of the shards.
        recipe: lengths and sampling; a directory with shards of another recipe, model or list of
            prompts is refused.
        part: number of this process and of all processes; each answers its own shards.

    Yields:
        The files, in order.

    Raises:
        DraftwoodError: a prompt does not suit the chat template or the context, the directory has
            another run, or a request failed.
    """
    most = engine.target.info.context_limit
    for prompt in prompts:  # before hours of work
        ids = tokenizer.encode(rendered(tokenizer, prompt), add_special_tokens=False)
        if len(ids) >= most:
            raise DraftwoodError(
                f"prompt {prompt.id!r} has {len(ids)} tokens, and the model's context holds "
                f"{most}: shorten it, or leave it out"
            )
    out.mkdir(parents=True, exist_ok=True)
    _check_same(out / RECIPE_FILE, _identity(engine, prompts, recipe))
    for start in range(part[0] * recipe.shard, len(prompts), part[1] * recipe.shard):
        path = out / f"answers-{start // recipe.shard:04d}.jsonl"
        if not path.exists():
            found = _shard(engine, tokenizer, prompts, start, recipe)
            lines = [json.dumps(vars(each), ensure_ascii=False) + "\n" for each in found]
            write_text(path, "".join(lines))
            logger.info("%s: %d tokens", path.name, sum(each.tokens for each in found))
        yield path


def _shard(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[ChatPrompt],
    start: int,
    recipe: AnswerRecipe,
) -> list[Answer]:
    some = prompts[start : start + recipe.shard]
    encoded = [
        tokenizer.encode(rendered(tokenizer, prompt), add_special_tokens=False) for prompt in some
    ]
    # Prompts of one length share a batch, because a batch is padded to its longest prompt.
    order = sorted(range(len(some)), key=lambda i: len(encoded[i]))
    requests = [
        Request(encoded[i], recipe.max_new_tokens, sampling=_sampling(recipe, start + i))
        for i in order
    ]
    done = dict(zip(order, engine.generate(requests), strict=True))
    return [
        Answer(prompt.id, done[i].checked().text, len(done[i].tokens), done[i].reason)
        for i, prompt in enumerate(some)
    ]


def write_documents(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[ChatPrompt],
    answers: Sequence[Answer],
    path: Path,
) -> None:
    """Write prompts with their answers as a domain of training text, ``<domain>.txt.gz``.

    A document is the rendered prompt and the answer. Equal answers give equal bytes.

    Raises:
        DraftwoodError: an answer has no prompt, or the file cannot be written.
    """
    known = {prompt.id: prompt for prompt in prompts}
    texts = []
    for each in answers:
        if each.id not in known:
            raise DraftwoodError(f"there is an answer to {each.id!r}, which is no prompt's id")
        texts.append(rendered(tokenizer, known[each.id]) + each.answer + SEPARATOR)
    write_bytes(path, gzip.compress("".join(texts).encode(), compresslevel=9, mtime=0))


def read_answers(path: Path) -> list[Answer]:
    """Read a shard, or several in one file, gzipped or not.

    Raises:
        DraftwoodError: it cannot be read, or a row is no answer.
    """
    return [decode(Answer, dict(row.values), row.where) for row in load_rows(path).rows]


def rendered(tokenizer: PreTrainedTokenizerBase, prompt: ChatPrompt) -> str:
    """The text of a prompt up to where the answer begins.

    Raises:
        DraftwoodError: the tokenizer has no chat template, or one that refuses the prompt.
    """
    if tokenizer.chat_template is None:
        raise DraftwoodError("the tokenizer has no chat template: answers need a chat model")
    try:
        return str(
            apply_template(tokenizer, prompt.messages, tokenize=False, add_generation_prompt=True)
        )
    except DraftwoodError as error:
        raise DraftwoodError(
            f"prompt {prompt.id!r}: {error}; repair its messages, or leave the prompt out"
        ) from error


def _check_messages(prompt: ChatPrompt, where: str) -> None:
    if not prompt.messages:
        raise DraftwoodError(f"{where}: messages is empty: write a user's turn")
    for number, message in enumerate(prompt.messages):
        for name in ("role", "content"):
            if name not in message:
                raise DraftwoodError(f"{where}: messages[{number}].{name} is missing")
            check_text(message[name], f"{where}: messages[{number}].{name}")


def _sampling(recipe: AnswerRecipe, index: int) -> SamplingParams:
    """Greedy for prompts of even index; the others are sampled, each with its own seed."""
    if index % 2 == 0:
        return SamplingParams()
    return SamplingParams(
        temperature=recipe.temperature, top_p=recipe.top_p, seed=recipe.seed + index
    )


def _identity(
    engine: Engine, prompts: Sequence[ChatPrompt], recipe: AnswerRecipe
) -> dict[str, Any]:
    """All that the answers depend on."""
    info = engine.target.info
    return {
        **vars(recipe),
        "prompts": _digest([vars(each) for each in prompts]),
        "model": _digest(encode(info.fingerprint)),
        "dtype": str(info.dtype).removeprefix("torch."),
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _check_same(path: Path, facts: dict[str, Any]) -> None:
    if not path.exists():
        write_json(path, facts)
        return
    known = read_json(path)
    if differing := [name for name in facts if known.get(name) != facts[name]]:
        raise DraftwoodError(
            f"{path.parent} has answers of another run: {', '.join(differing)} differ from "
            f"{path.name}. Repeat its settings, or use another --out"
        )

"""A model's own answers: the same in one run, in parts and resumed; what is refused."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from draftwood import models
from draftwood.cli.train import train
from draftwood.engine.engine import Engine
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.lab.train import answers as module
from draftwood.lab.train.answer_recipe import AnswerRecipe
from draftwood.lab.train.answers import (
    Answer,
    ChatPrompt,
    answer,
    read_answers,
    read_prompts,
    rendered,
    write_documents,
)
from draftwood.lab.train.corpus import find_sources, read_documents
from draftwood.models import Loaded
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

RECIPE = AnswerRecipe(max_new_tokens=5, shard=2)
PROMPTS = [
    ChatPrompt(f"p{i}", "talk", [{"role": "user", "content": "abc" * (5 - i)}]) for i in range(5)
]


def engine(batch: int = 2) -> Engine:
    return Engine(tiny_llama(), "ar", tiny_tokenizer(), max_batch=batch)


def answered(out: Path, **options: Any) -> list[Answer]:
    paths = answer(engine(), tiny_tokenizer(), PROMPTS, out, RECIPE, **options)
    return [each for path in paths for each in read_answers(path)]


def test_answers_are_those_of_each_prompt_alone(tmp_path: Path) -> None:
    found = answered(tmp_path)
    assert [each.id for each in found] == [each.id for each in PROMPTS]
    sampled = 0
    for index, (each, prompt) in enumerate(zip(found, PROMPTS, strict=True)):
        text = rendered(tiny_tokenizer(), prompt)
        sampling = module._sampling(RECIPE, index)
        ids = tiny_tokenizer().encode(text, add_special_tokens=False)
        (alone,) = engine(1).generate([Request(ids, 5, sampling=sampling)])
        assert (each.answer, each.tokens) == (alone.text, len(alone.tokens))
        sampled += sampling.temperature > 0
    assert sampled == 2


def test_parts_and_resumed_runs_give_the_same_files(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    answered(whole)
    for number in (1, 0):
        answered(parts, part=(number, 2))
    (parts / "answers-0001.jsonl").unlink()
    kept = (parts / "answers-0000.jsonl").stat().st_mtime_ns
    answered(parts)
    assert (parts / "answers-0000.jsonl").stat().st_mtime_ns == kept
    names = sorted(path.name for path in whole.iterdir())
    assert names == sorted(path.name for path in parts.iterdir())
    assert all((whole / name).read_bytes() == (parts / name).read_bytes() for name in names)


def test_another_recipe_model_or_list_of_prompts_is_refused(tmp_path: Path) -> None:
    answered(tmp_path)
    tokenizer, other = tiny_tokenizer(), Engine(tiny_llama(seed=9), "ar", tiny_tokenizer())
    asked = [replace(PROMPTS[0], messages=[{"role": "user", "content": "b"}]), *PROMPTS[1:]]
    for given, prompts, recipe, differing in (
        (engine(), PROMPTS, replace(RECIPE, seed=2), "seed"),
        (other, PROMPTS, RECIPE, "model"),
        (engine(), asked, RECIPE, "prompts"),
    ):
        with pytest.raises(DraftwoodError, match=f"answers of another run: {differing} differ"):
            next(answer(given, tokenizer, prompts, tmp_path, recipe))


def test_documents_are_prompts_and_answers(tmp_path: Path) -> None:
    given = [Answer("p1", " yes", 1, "length"), Answer("p0", " no", 1, "length")]
    write_documents(tiny_tokenizer(), PROMPTS, given, tmp_path / "answers.txt.gz")
    (source,) = find_sources(tmp_path)
    first, second = read_documents(source)
    assert first == rendered(tiny_tokenizer(), PROMPTS[1]) + " yes"
    assert second == rendered(tiny_tokenizer(), PROMPTS[0]) + " no"
    before = (tmp_path / "answers.txt.gz").read_bytes()
    write_documents(tiny_tokenizer(), PROMPTS, given, tmp_path / "answers.txt.gz")
    assert (tmp_path / "answers.txt.gz").read_bytes() == before
    with pytest.raises(DraftwoodError, match="'p9', which is no prompt's id"):
        write_documents(
            tiny_tokenizer(), PROMPTS, [Answer("p9", "", 0, "stop")], tmp_path / "x.txt.gz"
        )
    assert not (tmp_path / "x.txt.gz").exists()


def test_a_model_without_a_chat_template_is_refused() -> None:
    with pytest.raises(DraftwoodError, match="no chat template"):
        rendered(tiny_tokenizer(chat=False), PROMPTS[0])


def test_a_prompt_that_the_template_refuses_is_named_before_any_is_answered(
    tmp_path: Path,
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'robot' %}{{ raise_exception('no robots') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
    )
    bad = ChatPrompt("p9", "talk", [{"role": "robot", "content": "abc"}])
    with pytest.raises(DraftwoodError, match=r"prompt 'p9': .*no robots; repair its messages"):
        next(answer(engine(), tokenizer, [*PROMPTS, bad], tmp_path / "out", RECIPE))
    assert not (tmp_path / "out").exists()


def test_a_prompt_beyond_the_context_is_named_before_any_is_answered(tmp_path: Path) -> None:
    asked = engine()
    long = "a" * (asked.target.info.context_limit + 1)
    bad = ChatPrompt("p9", "talk", [{"role": "user", "content": long}])
    with pytest.raises(
        DraftwoodError, match=r"prompt 'p9' has \d+ tokens, and the model's context"
    ):
        next(answer(asked, tiny_tokenizer(), [*PROMPTS, bad], tmp_path / "out", RECIPE))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no prompts"),
        ([{"id": "a", "task": "t"}], "messages"),
        ([vars(PROMPTS[0]), vars(PROMPTS[0])], "'p0' occurs twice"),
        ([{"id": "a", "task": "t", "messages": []}], ":1: messages is empty"),
        (
            [{"id": "a", "task": "t", "messages": [{"role": "user"}]}],
            r":1: messages\[0\]\.content is missing",
        ),
        (
            [{"id": "a", "task": "t", "messages": [{"role": "user", "content": "\ud800"}]}],
            r":1: messages\[0\]\.content has half a surrogate pair",
        ),
    ],
)
def test_files_that_are_no_prompts_are_refused(
    lines: list[Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DraftwoodError, match=message):
        read_prompts(path)


def run(prompts: Path, out: Path, *more: str) -> Result:
    words = ["answers", "--prompts", str(prompts), "--out", str(out), *more]
    return CliRunner().invoke(train, [*words, "--max-new-tokens", "4", "--shard", "2"])


def test_the_command_writes_the_text_with_the_last_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Loaded("tiny", tiny_llama(), tiny_tokenizer(), frozenset({256}))
    monkeypatch.setattr(models, "load_quietly", lambda *args, **options: loaded)
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    prompts.write_text("".join(json.dumps(vars(each)) + "\n" for each in PROMPTS))
    assert run(prompts, out, "--part", "2/2").exit_code == 0
    assert not (out / "answers.txt.gz").exists()
    result = run(prompts, out, "--part", "1/2")
    assert result.exit_code == 0, result.output
    assert "5 answers" in result.output
    assert gzip.decompress((out / "answers.txt.gz").read_bytes()).count(b"<|endoftext|>") == 5
    shared = tmp_path / "shared.jsonl"
    shared.write_text(json.dumps({"prompt": "abc" * 4}) + "\n")
    refused = run(prompts, tmp_path / "other", "--not-in", str(shared))
    assert isinstance(refused.exception, DraftwoodError)
    assert "prompt p1" in str(refused.exception)
    (other,) = read_answers(out / "answers-0002.jsonl")
    shared.write_text(json.dumps({"prompt": "one two three"}) + "\n")
    path = out / "answers-0002.jsonl"
    path.write_text(json.dumps({**vars(other), "answer": "Zero, one two three."}) + "\n")
    result = run(prompts, out, "--not-in", str(shared))
    assert "4 answers" in result.output
    assert "1 overlap" in result.output
    assert gzip.decompress((out / "answers.txt.gz").read_bytes()).count(b"<|endoftext|>") == 4
    for part in ("0/2", "3/2", "1", "a/b"):
        assert run(prompts, out, "--part", part).exit_code == 2

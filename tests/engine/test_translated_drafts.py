"""Draft models with another tokenizer: the target's tokens, and drafts of the text as it is.

Text models (:mod:`tests.factories.text_models`) say the same in any vocabulary. So a draft model
that reads the right text and proposes the right tokens is always right.
"""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from draftwood.costs.measure import Grid, measure_levels
from draftwood.drafters._rollout.model_drafter import ModelDrafter
from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion, Request
from draftwood.engine.translation import TokenTranslation
from draftwood.engine.vocabulary import Vocabulary, translation_of
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.model import ModelCheck
from draftwood.methods import method
from draftwood.protocols import Candidates, Expand, Outcome, Prefill, Translation
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.noise import RequestNoise
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import ROOT, Draw, TreeBuilder
from tests.factories.given_costs import drafting_pays
from tests.factories.path_logits import plain_logits
from tests.factories.small_tokenizers import byte_level, metaspace, named_ids
from tests.factories.text_models import TextHost, TextModel
from tests.factories.tiny_llama import tiny_llama

OURS = byte_level()
ROWS = len(OURS)
SHIFT = 7
SHIFTED = byte_level(shift=SHIFT)
PROMPTS = ["the thing", "ab ab the ab", "tön", "sing the A"]
ANY_ROWS: Any = None


def token(name: str) -> int:
    """The target's id of a token."""
    return named_ids(OURS, name)[0]


def made(rows: int, **settings: Any) -> Any:
    return tiny_llama(vocab_size=rows, eos_token_id=None, bos_token_id=None, **settings)


def saved(directory: Path, tokenizer: Any, model: Any = None, **settings: Any) -> str:
    """A checkpoint of a model with this tokenizer, by default a tiny one."""
    (model or made(len(tokenizer), **settings)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


@torch.no_grad()
def permuted(model: Any) -> Any:
    """A model for :data:`OURS` as one for :data:`SHIFTED`."""
    order = (torch.arange(ROWS) - SHIFT) % ROWS
    for module in (model.get_input_embeddings(), model.get_output_embeddings()):
        module.weight[:] = module.weight[order].clone()
    return model


@pytest.fixture(autouse=True)
def _given_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    drafting_pays(monkeypatch)


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(made(ROWS), self_test=False)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A draft model with other weights and words with leading spaces."""
    return saved(tmp_path_factory.mktemp("other"), metaspace(), seed=3, layers=1)


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A draft model that lacks most bytes and letters: it reads texts with gaps."""
    tokenizer = metaspace(byte_tokens=False)
    return saved(tmp_path_factory.mktemp("gaps"), tokenizer, seed=3, layers=1)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The target itself as a draft model, with its own ids and with permuted ones."""
    return (
        saved(tmp_path_factory.mktemp("same"), OURS),
        saved(tmp_path_factory.mktemp("permuted"), SHIFTED, permuted(made(ROWS))),
    )


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A draft model that agrees with the target to some extent, with permuted ids."""
    model, far = made(ROWS), dict(made(ROWS, seed=3).named_parameters())
    for name, weight in model.named_parameters():
        weight.data.lerp_(far[name].data, 0.15)
    return saved(tmp_path_factory.mktemp("near"), SHIFTED, permuted(model))


def decoded(
    target: Runner, name: str, temperature: float = 0.0, max_batch: int = 4
) -> list[Completion]:
    engine = Engine(target, method(name), OURS, max_batch=max_batch)
    requests = [
        Request(text, 30, SamplingParams(temperature, seed=i), eos=())
        for i, text in enumerate(PROMPTS)
    ]
    return [done.checked() for done in engine.generate(requests)]


def with_model(done: list[Completion]) -> bool:
    """Whether the draft model was asked, and tokens were drafted."""
    return all(each.tally.draft_calls > 0 and each.tally.drafted > 0 for each in done)


METHODS = ["sd", "talon", "dynatree", "fixed-tree", "opt-tree", "goose:adjacency=model", "auto"]
SAMPLED = ["traversal", "block", "specinfer", "goose-sampled", "mixed"]


@pytest.mark.parametrize("max_batch", [1, 4])
@pytest.mark.parametrize("name", [*METHODS, *SAMPLED])
def test_greedy_tokens_are_those_of_plain_decoding(
    target: Runner, other: str, name: str, max_batch: int
) -> None:
    plain = [done.tokens for done in decoded(target, "ar")]
    found = decoded(target, f"{name}:draft={other}", max_batch=max_batch)
    assert [done.tokens for done in found] == plain
    assert with_model(found)


@pytest.mark.parametrize("name", [*METHODS, *SAMPLED])
def test_drafts_that_are_often_right_are_accepted(target: Runner, near: str, name: str) -> None:
    found = decoded(target, f"{name}:draft={near}")
    assert [done.tokens for done in found] == [done.tokens for done in decoded(target, "ar")]
    assert with_model(found)
    for done in found:
        assert 0 < done.tally.accepted < done.tally.drafted


@pytest.mark.parametrize("name", ["sd", "talon", "goose:adjacency=model", "traversal"])
def test_texts_with_gaps_change_no_token(target: Runner, gaps: str, name: str) -> None:
    plain = [done.tokens for done in decoded(target, "ar")]
    found = decoded(target, f"{name}:draft={gaps}")
    assert [done.tokens for done in found] == plain
    assert with_model(found)


@pytest.mark.parametrize("name", METHODS)
def test_sampled_tokens_are_those_of_plain_decoding(target: Runner, other: str, name: str) -> None:
    plain = [done.tokens for done in decoded(target, "ar", 0.9)]
    found = decoded(target, f"{name}:draft={other}", 0.9)
    assert [done.tokens for done in found] == plain
    assert with_model(found)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("name", ["sd", "talon", "goose:adjacency=model"])
def test_a_permuted_draft_model_drafts_the_same(
    target: Runner, twins: tuple[str, str], name: str, temperature: float
) -> None:
    own, other_ids = (decoded(target, f"{name}:draft={draft}", temperature) for draft in twins)
    for one, two in zip(own, other_ids, strict=True):
        assert one.tokens == two.tokens
        assert one.tally.steps == two.tally.steps
        assert one.tally.drafted == two.tally.drafted
        assert one.tally.accepted == two.tally.accepted
    if name == "sd" and temperature == 0:
        # The target itself: all that is drafted is accepted, but for what is cut off at the end.
        for done in other_ids:
            assert done.tally.accepted == done.tally.drafted > 0


def test_q_is_the_draft_models_own_on_the_tokens_of_both(target: Runner, other: str) -> None:
    host = ModelHost(target, OURS)
    model, translation = host.model(other, "float32")
    assert translation is not None
    drafter = ModelDrafter(model, host.info, translation)
    prompt = OURS("the thing")["input_ids"]
    drafter.begin(0, Prefill(np.array(prompt), token("ab"), ANY_ROWS))
    tree = TreeBuilder(token("ab"))
    node = tree.add(ROOT, token("Ġthe"), "draft")
    query = Expand("draft", tree, [ROOT, node], 3, Draw.WITHOUT_REPLACEMENT, (), 0.7)
    query = dataclasses.replace(query, noise=RequestNoise(1))
    [answer] = drafter.expand([0], [query])
    assert answer.q_rows is not None
    found = drafter.proposals(0, answer.q_rows.tolist())
    theirs = metaspace()
    names = [*theirs.tokenize("the thing"), "<0x61>", "<0x62>"]
    runner: Any = model
    to_target = translation.to_target
    mapped = np.flatnonzero(to_target >= 0)
    paths: list[list[str]] = [[], ["▁the"]]
    for row, path in zip(found, paths, strict=True):
        logits = plain_logits(runner.model, named_ids(theirs, *names, *path))[-1]
        wanted = torch.zeros(ROWS)
        wanted[to_target[mapped]] = (logits[mapped] / 0.7).softmax(-1)
        torch.testing.assert_close(row, wanted, atol=1e-5, rtol=0)


def check(target: Runner) -> ModelCheck:
    return ModelCheck(target, OURS, OURS("ab the")["input_ids"], SamplingParams(1.0, 4, seed=2))


@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_the_distribution_is_the_targets(target: Runner, near: str, name: str) -> None:
    found = check(target).check_sampled(name, method(f"{name}:draft={near}"), 600)
    assert found.passed, str(found)
    assert found.accepted > 100


def test_a_wrong_q_is_found(target: Runner, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = VocabularyMap.target_rows
    monkeypatch.setattr(VocabularyMap, "target_rows", lambda *given: rows(*given).roll(SHIFT, 1))
    found = check(target).check_sampled("wrong", method(f"specinfer:draft={near}"), 600)
    assert not found.passed


def best(runner: Any, ids: list[int], translation: Translation) -> list[int]:
    """The target's tokens that the plain draft model finds likeliest after some of its own."""
    to_target = translation.to_target
    order = plain_logits(runner.model, ids)[-1].argsort(descending=True).tolist()
    return [int(to_target[each]) for each in order if to_target[each] >= 0][:3]


def test_a_root_that_reads_as_nothing_yet(target: Runner, tmp_path: Path) -> None:
    """Half a character, for a draft model without bytes: what is read is the text before it."""
    theirs = metaspace(byte_tokens=False)
    host = ModelHost(target, OURS)
    model, translation = host.model(saved(tmp_path, theirs, seed=3, layers=1), "float32")
    assert translation is not None
    drafter = ModelDrafter(model, host.info, translation)
    bytes_of_han = named_ids(OURS, "í", "ķ", "ľ")
    text = named_ids(theirs, "▁the", "▁the")
    drafter.begin(0, Prefill(np.array(OURS("the the")["input_ids"]), bytes_of_han[0], ANY_ROWS))
    for root, bonus in pairwise(bytes_of_han):
        for _ in range(2):
            # The second tree is grown instead of the first.
            tree = TreeBuilder(root)
            [answer] = drafter.expand([0], [Expand("draft", tree, [ROOT], 3)])
            assert answer.tokens[0].tolist() == best(model, text, translation)
        drafter.observe(0, Outcome(tree.build(), (), (bonus,), ANY_ROWS))
    text += named_ids(theirs, "한")
    tree = TreeBuilder(bytes_of_han[2])
    unread = tree.add(ROOT, bytes_of_han[0], "context")
    [answer] = drafter.expand([0], [Expand("draft", tree, [ROOT, unread], 3)])
    assert answer.tokens.tolist() == [best(model, text, translation)] * 2
    the = tree.add(unread, token("Ġthe"), "context")
    [answer] = drafter.expand([0], [Expand("draft", tree, [the], 3)])
    text += named_ids(theirs, "▁the")
    assert answer.tokens[0].tolist() == best(model, text, translation)
    assert drafter.backlog(0) == 0


def test_the_draft_models_context_is_counted_in_its_own_tokens(
    target: Runner, tmp_path: Path
) -> None:
    host = ModelHost(target, OURS)
    name = saved(tmp_path, byte_level((), shift=3), layers=1, context=10)
    model, translation = host.model(name)
    drafter = ModelDrafter(model, host.info, translation)
    the = token("Ġthe")
    drafter.begin(0, Prefill(np.array([the]), the, ANY_ROWS))
    tree = TreeBuilder(the)
    node = tree.add(ROOT, token("ab"), "context")
    below = tree.add(node, token("A"), "context")
    # Eight letters and two for the first node: there is no room for a third.
    found = [drafter.expand([0], [Expand("draft", tree, [each], 1)])[0] for each in (node, below)]
    assert [int(each.tokens[0, 0]) >= 0 for each in found] == [True, False]


# A target with merged tokens, and the same model of text in a vocabulary without them.
MERGED = byte_level((("a", "b"), ("c", "d"), ("Ġ", "a"), ("Ġa", "b")))
LETTERS = byte_level((), shift=3)


def outcomes_of(name: str) -> list[Outcome]:
    """The greedy steps of two requests in a batch."""
    target = TextModel(MERGED)
    host = TextHost(target.info, TextModel(LETTERS), translation_between(MERGED, LETTERS))
    engine = Engine(target, method(name), MERGED, max_batch=2, host=host)
    seen: list[Any] = []
    requests = [Request(text, 60, eos=(), observer=seen.append) for text in ("ab cd", "dc ba")]
    assert [done.tokens for done in engine.generate(requests)] == [
        target.greedy(MERGED(request.prompt)["input_ids"], 60) for request in requests
    ]
    return [each for each in seen if isinstance(each, Outcome)]


def translation_between(ours: Any, theirs: Any) -> Translation | None:
    target, draft = (Vocabulary(len(each), None, each) for each in (ours, theirs))
    return translation_of(target, draft, "draft")


def wrong_steps(outcomes: list[Outcome]) -> int:
    """Steps with a drafted token that was wrong though the right one could be drafted."""
    short = [each for each in outcomes if len(each.path) < each.tree.drafted]
    return sum(not outside(each.committed[-1]) for each in short)


def outside(number: int) -> bool:
    return MERGED.convert_ids_to_tokens(number) not in LETTERS.get_vocab()


@pytest.mark.parametrize("name", ["sd:budget=3", "talon:budget=1"])
def test_drafts_are_right_but_for_tokens_that_cannot_be_drafted(name: str) -> None:
    outcomes = outcomes_of(name)
    assert wrong_steps(outcomes) == 0
    after = [each for each in outcomes if outside(int(each.tree.tokens[0])) and each.path]
    assert len(after) > 3, "right also after a bonus that could not be drafted"


def test_a_text_that_is_read_with_gaps_gives_wrong_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenTranslation, "_pieces", lambda *_: ([], b""))
    assert wrong_steps(outcomes_of("sd:budget=3")) > 3


def test_a_level_is_timed_with_tokens_that_are_drafted(
    target: Runner, gaps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ModelHost(target, OURS)
    model, translation = host.model(gaps, "float32")
    assert translation is not None
    drafter = ModelDrafter(model, host.info, translation)
    read: set[int] = set()
    expand = drafter.expand

    def noted(slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        for query in queries:
            read.update(query.tree.tokens[node] for node in query.nodes if node != ROOT)
        return expand(slots, queries)

    monkeypatch.setattr(drafter, "expand", noted)
    grid = Grid((1, 4), (16,), seconds=0.1)
    assert {found.tokens for found in measure_levels(drafter, "draft", target, grid)} == {1, 4}
    assert len(read) >= 4
    assert read <= set(translation.to_target.tolist())
    assert not set(range(4)) & set(translation.to_target.tolist()), "any tokens would not do"


def test_users_are_told_once_which_share_is_drafted(
    target: Runner, near: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = ModelHost(target, OURS)
    found = host.model(near)
    assert host.model(near) is found
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "has another tokenizer: it proposes 263 of the target's 263 tokens" in caplog.text


def test_a_loaded_draft_model_is_known_by_the_tokenizers_beside_it(
    target: Runner, gaps: str
) -> None:
    draft = AutoModelForCausalLM.from_pretrained(gaps)
    _, translation = ModelHost(target, OURS).model(draft)
    assert translation is not None


def test_too_few_tokens_of_both_are_refused(target: Runner, tmp_path: Path) -> None:
    words = tuple(f"▁{i}x" for i in range(300))
    draft = saved(tmp_path, metaspace(words, byte_tokens=False))
    host = ModelHost(target, OURS)
    with pytest.raises(DraftwoodError, match=r"share only 0 tokens: 0\.0% of the smaller vocab"):
        host.model(draft)

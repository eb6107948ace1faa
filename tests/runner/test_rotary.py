"""Every type of rotary factors gives the tokens of ``generate``, across the length where it turns.

``generate`` is asked for one sequence at a time, on a model that has seen none before: its dynamic
factors remember the longest text.
"""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from draftwood.engine.engine import Engine
from draftwood.engine.memory import Size
from draftwood.engine.request import Request
from draftwood.errors import DraftwoodError
from draftwood.methods import method as make_method
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.recompute import RecomputingRunner
from draftwood.runner.rotary import Regime, context_limit_of, patch_rotary, position_limits
from draftwood.runner.runner import Runner
from draftwood.tree import tree_of
from tests.factories.model_families import SMALL, VOCAB, make_model
from tests.factories.path_logits import random_prompts

TURN, CONTEXT, NEW = 32, 128, 14
VERSION = tuple(map(int, hf.__version__.split(".")[:2]))
_SMALL = SMALL | {"max_position_embeddings": CONTEXT, "bos_token_id": None, "eos_token_id": None}
_BASE = {"rope_theta": 100.0, "original_max_position_embeddings": TURN}
_LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.5, 3.0, 5.0, 9.0],
    "factor": 4.0,
    **_BASE,
}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}


def _model(kind: type[Any], config: type[Any], rope: dict[str, Any], **more: Any) -> Any:
    return make_model(kind, config, **(_SMALL | {"rope_parameters": rope} | more))


def _llama(rope: dict[str, Any], **more: Any) -> Callable[[], Any]:
    return lambda: _model(hf.LlamaForCausalLM, hf.LlamaConfig, rope, **more)


TURNING: dict[str, Callable[[], Any]] = {
    "longrope": _llama(_LONG),
    "dynamic": _llama(_DYNAMIC, max_position_embeddings=TURN),
    "phi3": lambda: _model(
        hf.Phi3ForCausalLM, hf.Phi3Config, _LONG, original_max_position_embeddings=TURN
    ),
    "phi3_sliding": lambda: _model(
        hf.Phi3ForCausalLM,
        hf.Phi3Config,
        _LONG,
        original_max_position_embeddings=TURN,
        sliding_window=24,
    ),
    "phimoe": lambda: _model(
        hf.PhimoeForCausalLM,
        hf.PhimoeConfig,
        _LONG | {"short_mscale": 1.1, "long_mscale": 1.4},
        num_local_experts=4,
    ),
}


def _by_layer() -> Any:
    return _model(
        hf.Gemma3ForCausalLM,
        hf.Gemma3TextConfig,
        {"sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
        | {"full_attention": _LONG},
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
    )


if VERSION >= (5, 21):  # in others, the second text that outgrows the limit is an error
    TURNING["by_layer"] = _by_layer
STEADY: dict[str, Callable[[], Any]] = {
    "default": _llama({"rope_type": "default", "rope_theta": 100.0}),
    "linear": _llama({"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}),
    "yarn": _llama({"rope_type": "yarn", "factor": 4.0, **_BASE}),
    "llama3": _llama(
        {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            **_BASE,
        }
    ),
    "proportional": _llama({"rope_type": "proportional", "rope_theta": 100.0, "factor": 4.0}),
}
MODELS = TURNING | STEADY
LENGTHS = (TURN - 6, TURN, TURN + 9)
"""Lengths of prompts below the limit, at it and beyond it."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """transformers warns of the factors of these small configurations."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


def generated(model: Any, prompt: Sequence[int]) -> tuple[list[int], torch.Tensor]:
    """The tokens and float ``[n, V]`` logits of a fresh model's own ``generate``."""
    if VERSION < (5, 20) and model.config.model_type.startswith("phi"):
        return from_whole_texts(model, prompt)
    ids = torch.tensor([prompt])
    found = copy.deepcopy(model).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return found.sequences[0, len(prompt) :].tolist(), torch.cat(found.logits)


def from_whole_texts(model: Any, prompt: Sequence[int]) -> tuple[list[int], torch.Tensor]:
    """The same where ``generate`` forgets the text with the cache that it drops."""
    text, logits = list(prompt), []
    for _ in range(NEW):
        with torch.no_grad():
            found = copy.deepcopy(model)(torch.tensor([text]), use_cache=False).logits[0, -1:]
        logits.append(found)
        text.append(int(found.argmax()))
    return text[len(prompt) :], torch.cat(logits)


@cache
def expected_of(name: str) -> list[tuple[list[int], torch.Tensor]]:
    """The same for each of the three prompts."""
    return [generated(MODELS[name](), prompt) for prompt in prompts_of(LENGTHS)]


def decoded(runner: Runner, prompts: Sequence[Sequence[int]], method: str) -> list[list[int]]:
    engine = Engine(runner, make_method(method))
    requests = [Request(tuple(prompt), NEW) for prompt in prompts]
    return [list(found.tokens) for found in engine.generate(requests)]


def prompts_of(lengths: Sequence[int]) -> list[list[int]]:
    """Prompts that repeat themselves, so that there is something to draft."""
    rng = np.random.default_rng(3)
    return [(random_prompts(rng, (7,), VOCAB)[0] * 20)[:length] for length in lengths]


def test_every_type_is_here() -> None:
    def types(rope: dict[str, Any]) -> set[str]:
        if "rope_type" in rope:
            return {rope["rope_type"]}
        return set().union(*map(types, rope.values()))

    found = set().union(*(types(make().config.rope_parameters) for make in MODELS.values()))
    assert found == {"default", *ROPE_INIT_FUNCTIONS}


@pytest.mark.parametrize("chunk", [5, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [*TURNING, *(pytest.param(name, marks=pytest.mark.slow) for name in STEADY)]
)
def test_tokens_are_those_of_generate(name: str, chunk: int) -> None:
    """In batch 1 and 3, with prompts in chunks and at once, by three methods."""
    model = MODELS[name]()
    prompts = prompts_of(LENGTHS)
    expected = [tokens for tokens, _ in expected_of(name)]
    runner = attach(model, chunk=chunk)
    for method in ("ar", "goose:budget=12", "tr:budget=12"):
        assert decoded(runner, prompts, method) == expected
        for prompt, tokens in zip(prompts, expected, strict=True):
            assert decoded(runner, [prompt], method) == [tokens]
    runner.detach()


@pytest.mark.parametrize("name", TURNING)
def test_logits_are_those_of_generate(name: str) -> None:
    """Along a tree that crosses the turn, beside one that does not and one that has."""
    model = TURNING[name]()
    prompts = prompts_of(LENGTHS)
    expected = expected_of(name)
    runner = attach(model, chunk=5)
    slots = [runner.open(64) for _ in prompts]
    rows = runner.prefill(slots, prompts, Needs())
    for found, (_, logits) in zip(rows, expected, strict=True):
        torch.testing.assert_close(found.logits[0], logits[0], atol=1e-4, rtol=1e-4)
    # The path, with a sibling below every node of it.
    parents = [-1]
    for node in range(NEW - 2):
        parents += [2 * node - 1 if node else 0] * 2
    for start in (0, 1):
        trees = []
        for tokens, _ in expected:
            path = tokens[start : NEW - 1]
            below = [t for token in path[1:] for t in (token, (token + 1) % VOCAB)]
            trees.append(tree_of([path[0], *below], parents[: 1 + len(below)]))
        for found, tree, (_, logits) in zip(
            runner.forward(slots, trees, Needs()), trees, expected, strict=True
        ):
            on_path = [0, *range(1, len(tree), 2)]
            torch.testing.assert_close(
                found.logits[on_path],
                logits[1 + start : 1 + start + len(on_path)],
                atol=1e-4,
                rtol=1e-4,
            )
        runner.commit(slots, [()] * 3)
    runner.detach()


def test_a_tree_that_grows_level_by_level_may_cross_the_limit() -> None:
    """Level by level, like a draft model: cached nodes are not forwarded again."""
    for make in TURNING.values():
        runner = attach(make(), chunk=7)
        slots = [runner.open(60), runner.open(60)]
        texts = prompts_of((TURN - 3, TURN - 9))
        runner.prefill(slots, texts, Needs())
        trees = [tree_of(range(8, 18), [-1, 0, 0, 1, 3, 4, 5, 6, 7, 8]) for _ in slots]
        whole = runner.forward(slots, trees, Needs(top_k=2))
        done, parts = [0, 0], []
        for size in (2, 5, 6, 10):
            grown = [tree_of(t.tokens[:size].tolist(), t.parents[:size].tolist()) for t in trees]
            parts.append(runner.forward(slots, grown, Needs(top_k=2), done))
            done = [size, size]
        for i in range(2):
            found = torch.cat([part[i].logits for part in parts])
            torch.testing.assert_close(found, whole[i].logits, atol=1e-4, rtol=1e-4)
            assert np.concatenate([p[i].argmax for p in parts]).shape == (10,)
        runner.detach()


def test_text_may_be_added_and_rolled_back_across_the_limit() -> None:
    for name in ("longrope", "phi3"):
        model = TURNING[name]()
        [text] = prompts_of((TURN + 8,))
        runner = attach(model)
        one, other = runner.open(60), runner.open(60)
        runner.prefill([one], [text[: TURN - 2]], Needs())
        [added] = runner.prefill([one], [text[TURN - 2 :]], Needs())
        runner.prefill([other], [text[: TURN - 2]], Needs())
        for token in text[TURN - 2 :]:
            [stepped] = runner.forward([other], [tree_of([token], [-1])], Needs())
            runner.commit([other], [()])
        torch.testing.assert_close(added.logits, stepped.logits, atol=1e-4, rtol=1e-4)
        for slot in (one, other):
            runner.roll_back(slot, TURN - 2)
        again = [
            runner.forward([slot], [tree_of(text[TURN - 2 : TURN], [-1, 0])], Needs())[0].logits
            for slot in (one, other)
        ]
        torch.testing.assert_close(*again, atol=1e-4, rtol=1e-4)
        runner.release(one)
        runner.release(other)
        assert runner.cache.slots == 0
        runner.detach()


def test_a_tree_across_the_limit_may_stay_on_the_device() -> None:
    runner = attach(TURNING["longrope"]())
    [text] = prompts_of((TURN + 8,))
    slot = runner.open(60)
    runner.prefill([slot], [text[: TURN - 2]], Needs())
    tree = tree_of(text[TURN - 2 : TURN + 4], [-1, 0, 1, 2, 3, 4])
    [read] = runner.forward([slot], [tree], Needs(top_k=3))
    [unread] = runner.forward([slot], [tree], Needs(host=False))
    assert torch.equal(unread.logits, read.logits)
    assert (len(read.argmax), len(unread.argmax)) == (6, 0)
    runner.detach()


@pytest.mark.parametrize("draft", TURNING)
def test_a_draft_model_may_cross_the_limit_too(draft: str) -> None:
    prompts = prompts_of(LENGTHS)
    target = _llama(_LONG)()
    expected = [tokens for tokens, _ in expected_of("longrope")]
    other = TURNING[draft]()
    method = make_method("sd", draft=other)
    runner = attach(target)
    found = Engine(runner, method).generate([Request(tuple(p), NEW) for p in prompts])
    assert [list(completion.tokens) for completion in found] == expected
    if draft == "longrope":  # the target's own weights
        drafted = sum(completion.tally.drafted for completion in found)
        assert sum(completion.tally.accepted for completion in found) == drafted > 0
    runner.detach()


@pytest.mark.parametrize("name", TURNING)
def test_without_the_patch_the_self_test_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftwood.runner.attach.patch_rotary", lambda *_: [])
    with pytest.raises(DraftwoodError, match=r"self-test failed from position \d+ on"):
        attach(TURNING[name]())


@pytest.mark.parametrize("name", ["phi3", "phimoe"])
def test_without_recomputing_the_self_test_fails(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwood.runner.attach.recompute_limit", lambda *_: None)
    with pytest.raises(DraftwoodError, match=r"self-test failed from position \d+ on"):
        attach(TURNING[name]())


@pytest.mark.parametrize("name", MODELS)
def test_the_models_own_calls_are_unchanged(name: str) -> None:
    model = MODELS[name]()
    [short, long] = prompts_of((9, TURN + 9))
    expected = generated(model, long)
    plain = [type(module.forward) for module in model.modules()]
    runner = attach(model)
    assert isinstance(runner, RecomputingRunner) == name.startswith("phi")
    slots = [runner.open(64), runner.open(64)]
    runner.prefill(slots, [short, long], Needs())
    tokens, logits = generated(model, long)
    assert tokens == expected[0]
    torch.testing.assert_close(logits, expected[1])
    runner.detach()
    assert [type(module.forward) for module in model.modules()] == plain
    tokens, logits = generated(model, long)
    assert torch.equal(logits, expected[1])


class _OfItsOwnKind(nn.Module):
    """Rotary factors as a model's own code may compute them: none of transformers' names."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = [module]

    def forward(self, x: torch.Tensor, where: torch.Tensor | None = None, **named: Any) -> Any:
        return self.inner[0](x, named["position_ids"] if where is None else where)


def test_an_unknown_rotary_module_fails_the_self_test() -> None:
    model = TURNING["longrope"]()
    model.model.rotary_emb = _OfItsOwnKind(model.model.rotary_emb)
    with pytest.raises(DraftwoodError, match=r"self-test failed from position \d+ on"):
        attach(model)


def test_regimes_of_rotary_modules() -> None:
    found = {}
    for name, make in MODELS.items():
        model = make()
        found[name] = [
            patch.regimes for patch in patch_rotary(model, position_limits(model.config))
        ]
    turns = {None: Regime(TURN, grows=False)}
    expected = {
        "longrope": [turns],
        "dynamic": [{None: Regime(TURN, grows=True)}],
        "phi3": [turns],
        "phi3_sliding": [turns],
        "phimoe": [turns],
        "by_layer": [{"full_attention": Regime(TURN, grows=False)}],
    } | {name: [] for name in STEADY}
    assert found == {name: expected[name] for name in MODELS}


@pytest.mark.parametrize(
    ("config", "limits", "context"),
    [
        (_by_layer().config, (TURN, CONTEXT), CONTEXT),
        (TURNING["dynamic"]().config, (TURN,), 4 * TURN),
        (STEADY["default"]().config, (CONTEXT,), CONTEXT),
        (hf.GPT2Config(), (), 1024),
        (SimpleNamespace(), (), None),
    ],
)
def test_limits_and_context_of_a_config(
    config: Any, limits: tuple[int, ...], context: int | None
) -> None:
    assert position_limits(config) == limits
    assert context_limit_of(config) == context


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"rope_type": "dynamic"}, 64),
        ({"type": "dynamic", "factor": 2}, 128),
        ({"type": "linear", "factor": 2.0}, 64),
        ({"rope_type": "yarn", "factor": 4.0}, 256),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 128),
        ({"rope_type": "yarn", "factor": 1.5, "original_max_position_embeddings": 32}, 64),
        ({"rope_type": "yarn", "factor": None}, 64),
    ],
)
def test_the_context_of_any_spelling(rope: dict[str, Any], context: int) -> None:
    older = SimpleNamespace(rope_scaling=rope, max_position_embeddings=64)
    assert context_limit_of(older) == context
    original = rope.get("original_max_position_embeddings", 64)
    assert position_limits(older) == tuple(sorted({original, 64}))


def test_a_text_that_is_cached_twice_for_a_while_takes_memory_twice() -> None:
    runner = attach(TURNING["phi3"](), self_test=False)
    assert runner.info.recomputed_above == TURN
    [prompt] = prompts_of((TURN - 12,))
    request = Request(prompt, max_new_tokens=30, eos=())
    plain = Engine(runner, "ar")
    assert [plain._size(len(prompt), new).slots for new in (2, 30)] == [1, 2]
    assert plain._size(TURN + 1, 30).slots == 1
    once = plain._memory._entries(Size(len(prompt), 30)) * runner.info.token_bytes
    with pytest.raises(DraftwoodError, match=r"needs .* for keys and values, and memory is"):
        Engine(runner, "ar", memory=once + 1).add(request)
    engine = Engine(runner, "ar", memory=2 * once)
    engine.add(request)
    most = 0
    while engine.busy:
        engine.step()
        most = max(most, runner.cache.size * runner.info.token_bytes)
    assert once < most <= 2 * once
    runner.detach()

"""A model is attached once, stays itself meanwhile, and can be given back."""

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import pytest
import torch

import draftwood
from draftwood import Engine, Request
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import custom_generate, generate
from draftwood.integrations.transformers.attachment import attachment_of
from draftwood.runner.attach import detach
from draftwood.runner.attached_models import find_attached
from tests.factories.path_logits import greedy_tokens
from tests.factories.tiny_llama import tiny_llama

IDS = torch.tensor([[5, 17, 44, 5, 17]])
KWARGS: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": None}


def plain(model: Any) -> list[int]:
    return greedy_tokens(model, IDS, 12)


def ours(model: Any, method: str = "goose", **kwargs: Any) -> list[int]:
    tokens = generate(model, IDS, method, **KWARGS, **kwargs)
    assert isinstance(tokens, torch.Tensor)
    return list(tokens[0].tolist())


def test_attach_and_generate_share_one_attachment_in_either_order() -> None:
    model = tiny_llama()
    expected = plain(model)
    runner = draftwood.attach(model)
    assert ours(model) == expected
    assert attachment_of(model).runner is runner
    draftwood.detach(model)
    ours(model)
    after = draftwood.attach(model)
    assert after is attachment_of(model).runner
    assert after is not runner
    draftwood.detach(model)
    assert not model.config._attn_implementation.startswith("draftwood")
    # A runner's own detach is as good.
    draftwood.attach(model).detach()
    ours(model)
    draftwood.attach(model).detach()
    assert ours(model) == expected
    draftwood.detach(model)


def test_attach_with_other_settings_serves_generate() -> None:
    model = tiny_llama()
    expected = plain(model)
    runner = draftwood.attach(model, packing=False, chunk=2)
    assert ours(model) == expected
    assert attachment_of(model).runner is runner


def test_another_attention_is_refused_until_the_model_is_detached() -> None:
    model = tiny_llama()
    expected = plain(model)
    ours(model)
    model.set_attn_implementation("eager")
    with pytest.raises(DraftwoodError, match=r"attention was set to 'eager' .*detach\(model\)"):
        ours(model)
    draftwood.detach(model)
    model.set_attn_implementation("eager")
    assert ours(model) == expected
    draftwood.detach(model)
    assert model.config._attn_implementation == "eager"


def test_an_engine_notices_that_its_model_was_moved() -> None:
    model = tiny_llama()
    engine = Engine(model, "goose")
    assert engine.generate([Request([5, 17, 44], 3)])
    model.double()
    with pytest.raises(DraftwoodError, match=r"is torch\.float64 on cpu with .* now"):
        engine.generate([Request([5, 17, 44], 3)])


def test_an_engine_ends_where_the_model_does_now() -> None:
    model: Any = tiny_llama()
    first = ours(model)[len(IDS[0]) + 2]
    model.generation_config.eos_token_id = [first]
    [done] = Engine(model, "goose").generate([Request(IDS[0].tolist(), 12)])
    assert done.reason == "eos"
    assert done.tokens[-1] == first


def test_an_attachment_does_not_keep_its_model() -> None:
    model = tiny_llama()
    ours(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_copies_and_pickles_are_not_attached() -> None:
    model = tiny_llama()
    ours(model)
    held = find_attached(model)
    assert held is not None
    assert copy.deepcopy(held) is None
    assert pickle.loads(pickle.dumps(held)) is None


def test_a_model_that_was_moved_must_be_detached() -> None:
    model: Any = tiny_llama()
    ours(model)
    model.to(torch.float64)
    with pytest.raises(
        DraftwoodError, match=r"float32 on cpu .* is torch\.float64 on cpu with .* now"
    ):
        ours(model)
    detach(model)
    expected = plain(model)
    assert len(expected) == 17
    assert ours(model) == expected


def test_a_call_inside_a_call_is_refused() -> None:
    model = tiny_llama()
    with pytest.raises(DraftwoodError, match="already generating"):
        ours(model, on_tokens=lambda delta: ours(model))
    assert ours(model) == plain(model)


def test_threads_take_turns() -> None:
    model = tiny_llama()
    expected = plain(model)
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(ours(model))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_settings_are_not_mixed_up() -> None:
    model: Any = tiny_llama()
    steps: list[int] = []
    for budget in (1, 16, 1):
        model.generate(
            IDS,
            custom_generate=custom_generate("goose", budget=budget),
            on_finish=lambda done: steps.append(done[0].tally.drafted),
            **KWARGS,
        )
    assert steps[0] == steps[2] != steps[1]


def test_later_calls_compute_only_what_is_new() -> None:
    model = tiny_llama(context=256)
    text = torch.tensor([[5, *range(9, 59)]])
    for turn in range(3):
        expected = greedy_tokens(model, text, 12)
        runner = attachment_of(model)
        tokens: Any = generate(model, text, "goose", **KWARGS, prefix_cache="1MB")
        assert tokens[0].tolist() == expected
        [(engine, _)] = runner._engines.values()
        assert engine.prefix_tokens[1] == sum(51 + 14 * t - 3 for t in range(1, turn + 1))
        text = torch.cat([tokens, torch.tensor([[11, 12]])], dim=1)


def test_a_setting_of_several_values_may_be_a_list() -> None:
    model = tiny_llama()
    for given in (["memory"], ("memory",)):
        tokens: Any = generate(model, IDS, custom_generate("auto", also=given), **KWARGS)
        assert tokens[0].tolist() == plain(model)

"""A model is attached once, stays itself meanwhile, and can be given back."""

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import pytest
import torch

from draftwood.errors import DraftwoodError
from draftwood.integrations import attachment
from draftwood.integrations.transformers import custom_generate, detach, generate
from draftwood.requests import Delta
from draftwood.target.attach import attach
from draftwood.target.runner import Runner
from tests.tiny import tiny_llama

IDS = torch.tensor([[5, 17, 44, 5, 17]])
KWARGS: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": None}


def plain(model: Any) -> list[int]:
    tokens: list[int] = model.generate(IDS, attention_mask=torch.ones_like(IDS), **KWARGS)[
        0
    ].tolist()
    return tokens


def ours(model: Any, method: str = "goose", **kwargs: Any) -> list[int]:
    tokens = generate(model, IDS, method, **KWARGS, **kwargs)
    assert isinstance(tokens, torch.Tensor)
    return list(tokens[0].tolist())


def test_an_attached_model_is_still_itself() -> None:
    model = tiny_llama()
    before, state = plain(model), {k: v.clone() for k, v in model.state_dict().items()}
    logits = model(IDS).logits
    kinds = [type(module) for module in model.modules()]
    assert ours(model) == before
    assert plain(model) == before
    torch.testing.assert_close(model(IDS).logits, logits)
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    detach(model)
    assert [type(module) for module in model.modules()] == kinds
    assert torch.equal(model(IDS).logits, logits)
    assert plain(model) == before
    assert ours(model) == before
    detach(model)
    detach(model)  # there is nothing left to undo


def test_a_model_is_attached_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(model: Any) -> Runner:
        made.append(model)
        return attach(model)

    monkeypatch.setattr(attachment, "attach", counted)
    model = tiny_llama()
    for method in ("goose", "pld", "goose", "ar"):
        ours(model, method)
    assert len(made) == 1
    detach(model)
    ours(model)
    assert len(made) == 2


def test_an_attachment_does_not_keep_its_model() -> None:
    model = tiny_llama()
    ours(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_copies_and_pickles_are_not_attached() -> None:
    held = attachment.attachment_of(tiny_llama())
    assert copy.deepcopy(held) is None
    assert pickle.loads(pickle.dumps(held)) is None


def test_a_model_that_was_moved_must_be_detached() -> None:
    model: Any = tiny_llama()
    ours(model)
    model.to(torch.float64)
    with pytest.raises(DraftwoodError, match=r"float32 on cpu .* is torch\.float64 on cpu now"):
        ours(model)
    detach(model)
    assert len(ours(model)) == 17


def test_a_failed_call_leaves_the_model_usable() -> None:
    model = tiny_llama()
    expected = ours(model)

    def fail(delta: Delta) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ours(model, on_tokens=fail)
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

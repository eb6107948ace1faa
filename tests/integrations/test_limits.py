"""Unsupported arguments are refused by name, and no others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    MambaConfig,
    MambaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation.configuration_utils import CompileConfig

from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import custom_generate
from draftwood.runner.attach import attach, runner_of
from tests.factories.model_families import make_model
from tests.factories.tiny_llama import tiny_llama

IDS = torch.tensor([[5, 17, 44, 5, 17]])
INPUTS: dict[str, Any] = {"input_ids": IDS, "max_new_tokens": 4, "pad_token_id": 0}
MODEL: Any = tiny_llama()
PLAIN: Any = tiny_llama()
"""The same weights; it is never attached."""


def run(**kwargs: Any) -> torch.Tensor:
    found: torch.Tensor = MODEL.generate(
        **INPUTS | kwargs, custom_generate=custom_generate("goose")
    )
    return found


def filled_cache() -> Any:
    return MODEL(IDS[:, :2], use_cache=True).past_key_values


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("output_attentions", {"output_attentions": True}),
        ("output_hidden_states", {"output_hidden_states": True}),
        ("num_beams", {"num_beams": 2}),
        ("penalty_alpha", {"penalty_alpha": 0.6, "top_k": 4}),
        ("dola_layers", {"dola_layers": "low"}),
        ("prompt_lookup_num_tokens", {"prompt_lookup_num_tokens": 3}),
        ("assistant_early_exit", {"assistant_early_exit": 1}),
        ("cache_implementation", {"cache_implementation": "static"}),
        ("use_cache", {"use_cache": False}),
        ("prefill_chunk_size", {"prefill_chunk_size": 2}),
        ("compile_config", {"compile_config": CompileConfig()}),
        ("past_key_values", {"past_key_values": DynamicCache()}),
        ("past_key_values", {"past_key_values": filled_cache()}),
        ("position_ids", {"position_ids": torch.arange(3, 8)[None]}),
        ("inputs_embeds", {"inputs_embeds": torch.zeros(1, 5, 32), "input_ids": None}),
        ("attention_mask", {"attention_mask": torch.tensor([[1, 1, 0, 1, 1]])}),
        ("attention_mask", {"attention_mask": torch.tensor([[1, 1, 1, 1, 0]])}),
        (
            "row 1 has no tokens",
            {
                "input_ids": IDS.repeat(2, 1),
                "attention_mask": torch.tensor([[1] * 5, [0] * 5]),
            },
        ),
        ("outside 0..259", {"input_ids": torch.tensor([[5, 260]])}),
    ],
)
def test_refused_by_name(name: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(DraftwoodError, match=name):
        run(**kwargs)


def test_unknown_arguments_are_transformers_own_to_refuse() -> None:
    with pytest.raises(ValueError, match="budget"):
        run(budget=4)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_beams": 1},
        {"output_attentions": False},
        {"attention_mask": torch.ones_like(IDS)},
        {"position_ids": torch.arange(5)[None]},
        {"logits_processor": LogitsProcessorList()},
        {"use_cache": True},
        {"attention_mask": torch.tensor([[0, 0, 1, 1, 1]])},
    ],
)
def test_harmless_settings_pass(kwargs: dict[str, Any]) -> None:
    found = run(**kwargs)
    assert found.shape == (1, 9)
    assert torch.equal(found, PLAIN.generate(**INPUTS | kwargs))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: make_model(
                T5ForConditionalGeneration, T5Config, vocab_size=32, d_model=8, num_layers=1
            ),
            "encoder-decoder",
        ),
        (
            lambda: make_model(
                MambaForCausalLM, MambaConfig, vocab_size=32, hidden_size=8, num_hidden_layers=1
            ),
            "MambaForCausalLM keeps a recurrent state",
        ),
    ],
)
def test_the_model_is_checked_before_its_arguments(make: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(DraftwoodError, match=complaint):
        make().generate(
            IDS % 32,
            max_new_tokens=3,
            decoder_start_token_id=0,
            custom_generate=custom_generate("ar"),
        )


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_adapters_that_begin_in_the_middle_of_a_text_are_refused() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", alora_invocation_tokens=[40, 41])
    model: Any = peft.get_peft_model(tiny_llama(), config).eval()
    kwargs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "max_new_tokens": 3}
    with pytest.raises(DraftwoodError, match="is an activated LoRA"):
        model.generate(**kwargs, pad_token_id=0, custom_generate=custom_generate("goose"))
    with pytest.raises(DraftwoodError, match="is an activated LoRA"):
        attach(model)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("rows", [1, 2])
def test_adapters_chosen_by_row_are_refused(rows: int) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=4, init_lora_weights=False)
    model: Any = peft.get_peft_model(tiny_llama(), config)
    model.add_adapter("other", config)
    model.eval()
    ids = IDS.repeat(rows, 1)
    kwargs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "max_new_tokens": 8}
    kwargs |= {"pad_token_id": 0, "adapter_names": ["other"] * rows}
    expected = model.generate(**kwargs)
    ours = {"custom_generate": custom_generate("goose")}
    if rows == 1:
        assert model.generate(**kwargs, **ours).tolist() == expected.tolist()
        return
    with pytest.raises(DraftwoodError, match="call generate once for each row"):
        model.generate(**kwargs, **ours)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PrefixTuningConfig"])
def test_adapters_that_put_virtual_tokens_before_the_text_are_refused(kind: str) -> None:
    peft = pytest.importorskip("peft")
    config = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=4)
    base: Any = tiny_llama()
    base.generate(IDS, max_new_tokens=2, pad_token_id=0, custom_generate=custom_generate("goose"))
    model: Any = peft.get_peft_model(base, config).eval()
    kwargs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "max_new_tokens": 3}
    with pytest.raises(DraftwoodError, match="puts virtual tokens before every text"):
        model.generate(**kwargs, pad_token_id=0, custom_generate=custom_generate("goose"))
    for take in (attach, runner_of):
        with pytest.raises(DraftwoodError, match="puts virtual tokens before every text"):
            take(model)

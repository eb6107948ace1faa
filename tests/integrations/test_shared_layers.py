"""Targets whose last layers read the keys and values of earlier ones.

``generate`` with a method returns what plain ``generate`` returns.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from draftwood.engine.request import Completion
from draftwood.integrations.transformers import custom_generate
from draftwood.runner.attach import attach, detach
from tests.factories.given_costs import drafting_pays
from tests.factories.model_families import FAMILIES, VOCAB, WINDOW, gemma3n
from tests.factories.path_logits import TOLERANCE

PHRASE = [5, 17, 8, 33, 71, 20]
"""Repeated beyond the window, so that drafts are copied."""
PROMPTS = ([PHRASE], [PHRASE[:4] * 2, PHRASE * 4, [90, 3, 22] * 11])


def tokens(model: Any, prompts: Sequence[Sequence[int]], **settings: Any) -> torch.Tensor:
    """The greedy continuations of left-padded prompts."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    found: torch.Tensor = model.generate(
        torch.tensor(ids),
        attention_mask=torch.tensor(mask),
        max_new_tokens=2 * WINDOW,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        **settings,
    )
    return found


@pytest.mark.parametrize("made", [gemma3n, FAMILIES["gemma4"]])
def test_generate_returns_the_tokens_of_plain_decoding(
    made: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting_pays(monkeypatch)
    model = made()
    plain = [tokens(model, prompts) for prompts in PROMPTS]
    for method in ("goose", "auto"):
        ours = custom_generate(method)
        for prompts, expected in zip(PROMPTS, plain, strict=True):
            done: list[Completion] = []
            given: Any = {"custom_generate": ours, "on_finish": done.extend}
            assert torch.equal(tokens(model, prompts, **given), expected)
            assert sum(each.tally.accepted for each in done) > 0
    assert torch.equal(tokens(model, PROMPTS[1]), plain[1])
    detach(model)
    assert torch.equal(tokens(model, PROMPTS[1]), plain[1])


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3", "gemma4"])
def test_an_attached_model_decodes_plainly_with_a_static_cache(name: str) -> None:
    """Its keys are longer than the text, which no mask says."""
    model = FAMILIES[name]()
    with torch.no_grad():  # so that what a token sees decides what follows it
        for parameter in model.parameters():
            parameter.mul_(3)
    settings: Any = {"cache_implementation": "static", "disable_compile": True}
    expected = tokens(model, [PHRASE], **settings)
    attach(model)
    assert torch.equal(tokens(model, [PHRASE], **settings), expected)


@pytest.mark.parametrize("rows", [1, 4])
def test_an_attached_model_computes_the_last_rows_as_before(rows: int) -> None:
    """Its last layers get only the rows that are read."""
    model = FAMILIES["gemma4"]()
    ids = torch.randint(VOCAB, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = model(ids, logits_to_keep=rows).logits
        attach(model)
        found = model(ids, logits_to_keep=rows).logits
    assert found.shape == (1, rows, VOCAB)
    assert float((found - expected).abs().max()) < TOLERANCE

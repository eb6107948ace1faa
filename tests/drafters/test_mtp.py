"""The MTP drafter against transformers' own layers, and its output against plain decoding."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import cache_utils

from draftwood.drafters._rollout.head_drafter import HeadDrafter
from draftwood.drafters.mtp.drafter import Mtp
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Request
from draftwood.methods import method
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.sampling.sampler import SamplingParams
from draftwood.tree import ROOT
from tests.drafters.decoded_text import DecodedText
from tests.drafters.expand_and_check import drive
from tests.factories.model_families import SMALL, VOCAB
from tests.factories.mtp_targets import (
    LAYERS,
    RECURRENT,
    WEIGHTS,
    loaded_target,
    needs_mtp,
    saved_target,
    transformers_layers,
)

pytestmark = needs_mtp

PROMPTS = ([5, 3, 8, 1], [2, 2, 2, 7, 5, 3, 8], [9, 4])
GREEDY, WARM = SamplingParams(), SamplingParams(temperature=0.8, top_p=0.95, seed=4)


def target_of(directory: Path) -> Runner:
    return attach(loaded_target(directory), chunk=16, self_test=False)


def drafter_of(target: Runner) -> HeadDrafter:
    return Mtp().build(ModelHost(target))


class LayerText(DecodedText):
    """A request of a target that decodes, and transformers' layers run over every path anew.

    A node at depth d is answered by layer d, whose tokens are d places further on than those of the
    first layer. Below the last layer, that one is given its own output.
    """

    def __init__(
        self, target: Runner, plain: tuple[Any, Any], drafter: HeadDrafter, slot: int, prompt: Any
    ) -> None:
        self.model, self.layers = plain
        super().__init__(target, drafter, slot, prompt)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        before = torch.tensor([self.tokens[:-1]])
        vectors = self.model.model(input_ids=before).last_hidden_state
        ids, count = [*self.tokens[1:], *self.path(node)], len(self.tokens) - 1
        found = vectors
        for depth in range(len(ids) - count + 1):
            layer = min(depth, self.layers.num_mtp_layers - 1)
            vectors = found if layer == depth else torch.cat([vectors, found[:, -1:]], dim=1)
            taken = torch.tensor([ids[layer : layer + vectors.shape[1]]])
            places = torch.arange(layer + 1, layer + 1 + taken.shape[1])[None]
            cache = cache_utils.MtpCache(config=self.layers.config)
            found = self.layers.forward_layer(layer, vectors, places, cache, input_ids=taken)
        row: torch.Tensor = self.layers._project_to_logits(found)[0, -1]
        return row


@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("glm4_moe", 1),
        ("glm4_moe", 2),
        ("glm4_moe", 3),
        ("deepseek_v3", 1),
        ("deepseek_v3", 2),
        ("glm4_moe_lite", 1),
        ("mellum", 1),
        *((family, 1) for family in RECURRENT),
    ],
)
def test_every_answer_is_that_of_transformers_layers(
    tmp_path: Path, family: str, count: int
) -> None:
    directory = saved_target(tmp_path, family, count)
    target, plain = target_of(directory), transformers_layers(directory, family, count)
    drafter = drafter_of(target)
    assert drafter.needs == Needs(taps=(LAYERS,))
    rng = np.random.default_rng(0)
    # Several layers have the numbers of transformers' after a prompt with more tokens than layers.
    shortest = 1 if count == 1 else count + 1
    texts = [
        LayerText(target, plain, drafter, slot, rng.integers(VOCAB, size=n).tolist())
        for slot, n in ((4, 9), (0, 21), (2, shortest))
    ]
    assert drive(drafter, texts, rng, 5, VOCAB) == drafter.forwards
    for text in texts:
        drafter.release(text.slot)


@torch.no_grad()
def test_drafts_are_those_of_generate(tmp_path: Path) -> None:
    """``MtpModel.forward`` is what ``generate(use_mtp=True)`` drafts with."""
    directory = saved_target(tmp_path, count=2)
    model, layers = transformers_layers(directory, "glm4_moe", 2)
    target = target_of(directory)
    text = LayerText(target, (model, layers), drafter_of(target), 0, [5, 3, 8, 1, 7])
    ids = torch.tensor([text.tokens])
    states = model.model(input_ids=ids[:, :-1]).last_hidden_state
    places = torch.arange(1, ids.shape[1])[None]
    cache = cache_utils.MtpCache(config=layers.config)
    tokens, logits, _ = layers(ids[:, 1:], states, None, places, cache)
    node = ROOT
    for depth in range(2):
        answer = text.ask([node], 1)
        expected = logits[0, depth].log_softmax(-1)
        assert answer.tokens[0, 0] == tokens[0, depth]
        assert answer.logq[0, 0] == pytest.approx(float(expected.max()), abs=1e-4)
        node = text.builder.add(node, int(tokens[0, depth]), "draft")


@torch.no_grad()
def test_a_detail_that_is_wrong_would_be_noticed(tmp_path: Path) -> None:
    directory = saved_target(tmp_path)
    model, layers = transformers_layers(directory, "glm4_moe", 1)
    target = target_of(directory)
    text = LayerText(target, (model, layers), drafter_of(target), 0, [5, 3, 8, 1, 7])
    right = text.logits(ROOT)
    layer = layers.layers[0]
    layer.enorm, layer.hnorm = layer.hnorm, layer.enorm
    assert float((text.logits(ROOT) - right).abs().max()) > 1e-2
    with pytest.raises(AssertionError):
        text.ask([ROOT], VOCAB)


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("glm4_moe", 1),
        ("glm4_moe", 2),
        ("deepseek_v3", 1),
        ("deepseek_v3", 2),
        ("qwen3_next", 1),
        ("qwen3_5_text", 1),
    ],
)
def test_tokens_are_those_of_plain_decoding(
    tmp_path: Path,
    family: str,
    count: int,
    size: int,
    sampling: SamplingParams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of so few tokens that random layers often agree with the target.
    monkeypatch.setitem(SMALL, "vocab_size", 10)
    target = target_of(saved_target(tmp_path, family, count))
    host = ModelHost(target)
    requests = [Request(prompt, 20, sampling, eos=()) for prompt in PROMPTS]
    plain = Engine(target, method("ar"), host=host, max_batch=size).generate(requests)
    for name in ("mtp", "talon:drafter=mtp", "goose:adjacency=mtp", "sd:drafter=mtp"):
        found = Engine(target, method(name), host=host, max_batch=size).generate(requests)
        assert [each.tokens for each in found] == [each.tokens for each in plain], name
        source = "adjacency" if "adjacency=mtp" in name else "draft"
        assert sum(each.tally.accepted_by_source[source] for each in found) > 0, name


def test_tokens_are_those_of_generate_with_mtp(tmp_path: Path) -> None:
    directory = saved_target(tmp_path)
    model, _ = transformers_layers(directory, "glm4_moe", 1)
    asked = {"max_new_tokens": 16, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(torch.tensor([PROMPTS[0]]), use_mtp=True, **asked)
    target = target_of(directory)
    [found] = Engine(target, method("mtp"), host=ModelHost(target)).generate(
        [Request(PROMPTS[0], 16)]
    )
    assert [*PROMPTS[0], *found.tokens] == expected[0].tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_layers_that_know_the_target_have_everything_accepted(tmp_path: Path, count: int) -> None:
    """A target whose next token depends on the last one alone, which the layers repeat."""
    directory = saved_target(tmp_path, count=count, copies=True)
    chain = "sd:drafter=mtp:budget=3"
    assert accepted(directory, chain) == 1
    # The same layers with the two halves of their projection swapped are one token behind.
    tensors = load_file(directory / WEIGHTS)
    for name in [name for name in tensors if "eh_proj" in name]:
        tensors[name] = tensors[name].roll(tensors[name].shape[0], dims=1)
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    assert accepted(directory, chain) < 0.5


def accepted(directory: Path, name: str) -> float:
    """The share of drafted tokens that is accepted."""
    target = target_of(directory)
    requests = [Request(prompt, 17) for prompt in PROMPTS]
    found = Engine(target, method(name), host=ModelHost(target)).generate(requests)
    drafted = sum(each.tally.drafted for each in found)
    return sum(each.tally.accepted for each in found) / drafted


def test_drafters_of_one_host_share_the_layers(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path))
    host = ModelHost(target)
    first, second = Mtp().build(host), Mtp().build(host)
    assert first._model is second._model
    assert first._model is not target
    assert first._head.get_input_embeddings() is target.embedding()  # type: ignore[attr-defined]


def test_layers_may_be_those_of_another_directory(tmp_path: Path) -> None:
    with_layers = saved_target(tmp_path / "with")
    target = target_of(saved_target(tmp_path / "without"))
    found = method(f"talon:head={with_layers}").drafters["draft"]
    assert found == Mtp(str(with_layers))
    assert isinstance(found.build(ModelHost(target)), HeadDrafter)
    for name in ("mtp", "talon:drafter=mtp", "auto:drafter=mtp"):
        assert method(name).drafters["draft"] == Mtp()
        assert method(name).in_target
    assert not method("talon:drafter=eagle3").in_target


def test_all_memory_is_counted_and_given_back(tmp_path: Path) -> None:
    target = target_of(saved_target(tmp_path, count=2))
    drafter = drafter_of(target)
    one = drafter_of(target_of(saved_target(tmp_path / "one"))).token_bytes
    assert drafter.token_bytes == 2 * one > 0
    layers: Any = drafter._model
    caches = [model.cache for model in layers._models]
    text = LayerText(target, (None, None), drafter, 0, [5, 3, 8, 1])
    drafter.expand([0], [text.query([ROOT], 2)])
    assert [cache.slots for cache in caches] == [1, 1]
    drafter.release(text.slot)
    assert [cache.slots for cache in caches] == [0, 0]
    assert not layers._texts
    assert all(cache.size > 0 for cache in caches)
    drafter.trim()
    assert [cache.size for cache in caches] == [0, 0]
    assert not any(cache.tensors for cache in caches)

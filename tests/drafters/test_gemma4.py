"""Gemma 4 assistants: transformers' own drafts, and the tokens of plain decoding."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.generation import candidate_generator

from draftwood.drafters._rollout.vocabulary import VocabularyMap
from draftwood.drafters.gemma4.checkpoint import built, load_assistant
from draftwood.drafters.gemma4.drafter import AssistantDrafter, Gemma4Assistant
from draftwood.engine.host import ModelHost
from draftwood.errors import DraftwoodError
from draftwood.methods import method
from draftwood.methods.binding import kind_of
from draftwood.protocols import Needs, Prefill
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner
from draftwood.tree import ROOT
from tests.drafters.expand_and_check import Text, drive
from tests.drafters.small_target import VOCAB as FEW
from tests.drafters.small_target import check_law, check_tokens, model_check
from tests.factories.gemma4_assistants import saved_assistant, target_model
from tests.factories.model_families import VOCAB, WINDOW
from tests.factories.tiny_llama import tiny_llama


@pytest.fixture(scope="module")
def target() -> Runner:
    return attach(target_model(), chunk=16, self_test=False)


def plain_assistant(directory: str) -> Any:
    """transformers' module with the checkpoint's weights."""
    model = built(hf.AutoConfig.from_pretrained(directory), torch.float32)
    left = model.load_state_dict(load_file(f"{directory}/model.safetensors"), strict=False)
    assert left.missing_keys == ["lm_head.weight"]  # the embedding
    assert not left.unexpected_keys
    return model.eval()


class AssistedText(Text):
    """A request of a target that decodes, and transformers' modules run over every path anew."""

    def __init__(
        self, target: Runner, drafter: AssistantDrafter, plain: Any, prompt: list[int]
    ) -> None:
        self.target, self.plain, self.needs = target, plain, drafter.needs
        slot = target.open(len(prompt) + 64)
        rows = target.prefill([slot], [prompt], self.needs)[0]
        ids = np.array(prompt, dtype=np.int64)
        super().__init__(drafter, slot, Prefill(ids, int(rows.argmax[-1]), rows))

    def finish(self, *path: int, bonus: int = 3, rows: Any = None) -> None:
        rows = self.target.forward([self.slot], [self.builder.build()], self.needs)[0]
        self.target.commit([self.slot], [path])
        super().finish(*path, bonus=bonus, rows=rows)

    @torch.no_grad()
    def logits(self, node: int) -> torch.Tensor:
        model: Any = self.target.model
        read = model(
            torch.tensor([self.tokens[:-1]]),
            output_hidden_states=True,
            return_shared_kv_states=True,
        )
        vector = read.hidden_states[-1][:, -1:]
        for token in [self.tokens[-1], *self.path(node)]:
            embedded = model.get_input_embeddings()(torch.tensor([[token]]))
            found = self.plain(
                inputs_embeds=torch.cat([embedded, vector], dim=-1),
                position_ids=torch.tensor([[len(self.tokens) - 1]]),
                shared_kv_states=dict(read.shared_kv_states),
            )
            vector = found.last_hidden_state
        row: torch.Tensor = found.logits[0, 0]
        return row


def drafter_of(target: Runner, directory: str) -> AssistantDrafter:
    return Gemma4Assistant(directory).build(ModelHost(target))


@pytest.mark.parametrize("ordered", [False, True])
def test_every_answer_is_that_of_transformers_modules(
    target: Runner, tmp_path: Path, ordered: bool
) -> None:
    directory = saved_assistant(tmp_path, ordered)
    drafter, plain = drafter_of(target, directory), plain_assistant(directory)
    assert drafter.needs == Needs(taps=(target.info.layers,))
    rng = np.random.default_rng(0)
    texts = [
        AssistedText(target, drafter, plain, rng.integers(VOCAB, size=n).tolist())
        for n in (9, 3 * WINDOW, WINDOW, 1)
    ]
    assert drive(drafter, texts, rng, 5, VOCAB) == drafter.forwards
    assert drafter.token_bytes == 0
    for text in texts:
        drafter.release(text.slot)
        target.release(text.slot)


_REFERENCE: Any = candidate_generator.SinglePositionMultiTokenCandidateGenerator


@pytest.mark.skipif(
    "input_ids" in inspect.signature(_REFERENCE.__init__).parameters,
    reason="this transformers builds its generator of candidates in another way",
)
@torch.no_grad()
@pytest.mark.parametrize("length", [5, 3 * WINDOW])
def test_drafts_are_those_of_assisted_generation(
    target: Runner, tmp_path: Path, length: int
) -> None:
    directory = saved_assistant(tmp_path)
    plain, model = plain_assistant(directory), target.model
    plain.generation_config.num_assistant_tokens = 4
    prompt = ([5, 3, 8, 1, 7] * 10)[:length]
    text = AssistedText(target, drafter_of(target, directory), plain, prompt)
    generation: Any = hf.GenerationConfig(max_length=200)  # type: ignore[no-untyped-call]
    reference = _REFERENCE(plain, model.get_input_embeddings(), generation)
    ids = torch.tensor([text.tokens])
    read = model(ids[:, :-1], output_hidden_states=True, return_shared_kv_states=True)
    drafted, logits = reference.get_candidates(ids, {}, read, False, 0)
    node = ROOT
    for depth, token in enumerate(drafted[0, ids.shape[1] :].tolist()):
        answer = text.ask([node], 3)
        assert answer.tokens[0, 0] == token
        expected = logits[0, depth].log_softmax(-1).topk(3).values
        torch.testing.assert_close(torch.tensor(answer.logq[0]), expected, atol=1e-4, rtol=0)
        node = text.builder.add(node, token, "draft")
    assert node == 4


@pytest.mark.parametrize("wrong", ["layer", "window", "embedding", "vector"])
def test_the_comparison_sees_what_is_wrong(target: Runner, tmp_path: Path, wrong: str) -> None:
    directory = saved_assistant(tmp_path)
    drafter = drafter_of(target, directory)
    text = AssistedText(target, drafter, plain_assistant(directory), [5, 3, 8, 1] * WINDOW)
    text.builder.add_chain([11], "context")
    network = drafter._assistant
    if wrong == "layer":
        network._layers["sliding_attention"] = 0
    elif wrong == "window":
        network._window -= 1
    elif wrong == "embedding":
        network._embedding = (torch.nn.Embedding(VOCAB, 32),)
    else:
        drafter._texts[text.slot].state *= 0.5
    with pytest.raises(AssertionError):
        text.ask([1], 5)


def test_a_node_whose_parents_were_not_asked_about(target: Runner, tmp_path: Path) -> None:
    directory = saved_assistant(tmp_path)
    drafter = drafter_of(target, directory)
    text = AssistedText(target, drafter, plain_assistant(directory), [1, 2, 3])
    text.builder.add_chain([11, 12, 13], "context")
    text.ask([3], 4)
    assert drafter.forwards == 4
    text.ask([1, 3, ROOT], 4)
    assert drafter.forwards == 4, "known nodes are not computed again"


def test_a_released_request_is_forgotten(target: Runner, tmp_path: Path) -> None:
    drafter = drafter_of(target, saved_assistant(tmp_path))
    text = AssistedText(target, drafter, None, [1, 2, 3])
    drafter.release(text.slot)
    with pytest.raises(KeyError):
        drafter.expand([text.slot], [text.query([ROOT], 2)])
    drafter.release(text.slot)


def test_a_head_option_finds_it(tmp_path: Path) -> None:
    name = saved_assistant(tmp_path)
    assert kind_of("head", name) == "gemma4"
    for text in ("talon", "eagle3", "auto", "goose-eagle3"):
        assert method(f"{text}:head={name}").drafters["draft"] == Gemma4Assistant(name)
    assert method("talon:drafter=gemma4").missing == ("head",)


@pytest.mark.parametrize(
    ("settings", "changes", "complaint"),
    [
        ({"vocab_size": 95}, {}, "of width 32 with 95 tokens, and this one has width 32 and 96"),
        ({"head_dim": 12}, {}, "4 heads of width 12 in layers of type 'sliding_attention'"),
        ({"global_head_dim": 8}, {}, "heads of width 8 in layers of type 'full_attention'"),
        ({}, {"pre_projection.weight": None}, "lacks pre_projection.weight"),
        ({}, {"post_projection.weight": torch.zeros(2, 2)}, r"post_projection.weight is \[2, 2\]"),
        ({}, {"more": torch.zeros(2)}, "has more besides"),
    ],
)
def test_what_does_not_fit_is_refused(
    target: Runner,
    tmp_path: Path,
    settings: dict[str, Any],
    changes: dict[str, Any],
    complaint: str,
) -> None:
    name = saved_assistant(tmp_path, **settings)
    file = tmp_path / "model.safetensors"
    tensors = {n: t for n, t in (load_file(file) | changes).items() if t is not None}
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DraftwoodError, match=complaint):
        load_assistant(name, target, torch.float32)


def test_other_models_are_refused(target: Runner, tmp_path: Path) -> None:
    target_model().save_pretrained(tmp_path / "model")
    with pytest.raises(DraftwoodError, match="a model of type 'gemma4_text'; give a Gemma 4 ass"):
        load_assistant(str(tmp_path / "model"), target, torch.float32)
    llama = attach(tiny_llama(vocab_size=VOCAB), self_test=False)
    with pytest.raises(DraftwoodError, match="layers of type 'sliding_attention', and this target"):
        load_assistant(saved_assistant(tmp_path / "assistant"), llama, torch.float32)


@pytest.fixture(scope="module")
def small() -> Runner:
    return attach(target_model(vocab_size=FEW), chunk=16, self_test=False)


def head_of(directory: Path) -> str:
    return saved_assistant(directory, vocab_size=FEW)


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("name", ["eagle3", "talon", "traversal", "auto"])
def test_the_tokens_are_those_of_plain_decoding(
    small: Runner, tmp_path: Path, name: str, max_batch: int
) -> None:
    spelt = f"{name}:drafter=gemma4:head={head_of(tmp_path)}"
    check_tokens(small, spelt, max_batch, 1)


@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_the_distribution_is_the_targets(small: Runner, tmp_path: Path, name: str) -> None:
    chosen = method(f"{name}:drafter=gemma4:head={head_of(tmp_path)}")
    check_law(small, chosen, 400, 50)


def test_a_wrong_q_is_found(small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = VocabularyMap.target_rows
    monkeypatch.setattr(VocabularyMap, "target_rows", lambda *given: rows(*given).roll(5, 1))
    chosen = method(f"specinfer:drafter=gemma4:head={head_of(tmp_path)}")
    assert not model_check(small).check_sampled("wrong", chosen, 400).passed

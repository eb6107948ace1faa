"""Models that are divided among processes, as far as a single process shows it."""

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from draftwood import Engine, Request
from draftwood.costs.recall import _clock
from draftwood.engine.host import ModelHost
from draftwood.engine.thread import EngineThread
from draftwood.errors import DraftwoodError
from draftwood.policies.auto.tuner import AutoTuner
from draftwood.protocols import Prediction, StepReport, StepTimes, shared
from draftwood.runner.attach import attach
from draftwood.runner.attached_models import find_attached
from draftwood.runner.ranks import Ranks, ranks_of
from tests.factories.given_costs import drafting_pays
from tests.factories.hybrid_families import hybrid
from tests.factories.markov_target import MarkovTarget
from tests.factories.tiny_llama import VOCAB, tiny_llama

CPU = torch.device("cpu")


class Divided(MarkovTarget):
    """A target of two processes, of which the first always reads 7 from its clock."""

    ranks = 2

    def of_first(self, numbers: Sequence[float]) -> list[float]:
        return [7.0] * len(numbers)


@pytest.fixture
def one() -> Iterator[None]:
    """This process, as all the processes there are."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def divide(module: nn.Module, *names: str) -> None:
    """Replace the weight of a module by one that is divided among the processes of some axes."""
    mesh = init_device_mesh("cpu", (1,) * len(names), mesh_dim_names=names)
    whole = module.get_parameter("weight").detach()
    weight = distribute_tensor(whole, mesh, [Shard(0)] * len(names))
    module.register_parameter("weight", nn.Parameter(weight))


def divided(*names: str) -> Any:
    model: Any = tiny_llama()
    divide(model.lm_head, *names)
    model._tp_size = 1
    return model


def test_a_whole_model_has_no_others(one: None) -> None:
    assert ranks_of(tiny_llama(), CPU) is None
    assert attach(tiny_llama(), self_test=False).ranks == 1
    assert shared(attach(tiny_llama(), self_test=False)) is None


def test_a_divided_model_is_recognised(one: None) -> None:
    ranks = ranks_of(divided("tp"), CPU)
    assert ranks is not None
    assert ranks.size == 1
    assert ranks.of_first([0.5, 1e-9]) == [0.5, 1e-9]
    ranks.compare([b"same"])


@pytest.mark.parametrize("names", [("ep",), ("fsdp", "tp")])
def test_other_divisions_are_refused(one: None, names: tuple[str, ...]) -> None:
    with pytest.raises(DraftwoodError, match=r"in another way than .* load it with tp_plan='auto'"):
        attach(divided(*names))
    unknown = divided("tp")
    unknown._tp_size = None
    with pytest.raises(DraftwoodError, match="in another way than"):
        attach(unknown)


def test_quantised_and_recurrent_models_are_refused(one: None) -> None:
    quantised = divided("tp")
    quantised.is_quantized = True
    with pytest.raises(DraftwoodError, match="is quantised and divided among processes"):
        attach(quantised)
    recurrent = hybrid("qwen3_5_text")
    divide(recurrent.lm_head, "tp")
    recurrent._tp_size = 1
    with pytest.raises(DraftwoodError, match="has recurrent layers and is divided"):
        attach(recurrent)


def test_divided_weights_are_gathered_once(one: None) -> None:
    model = tiny_llama(tie_word_embeddings=True)
    whole = model.lm_head.weight.detach().clone()
    x = torch.randn(2, 32)
    expected = model.lm_head(x)
    divide(model.lm_head, "tp")
    model.model.embed_tokens.register_parameter("weight", model.lm_head.weight)
    model.lm_head.forward = None
    assert dist.group.WORLD is not None
    ranks = Ranks(dist.group.WORLD, CPU)
    head, embedding = ranks.whole(model.lm_head), ranks.whole(model.model.embed_tokens)
    assert torch.equal(head.weight, whole)
    assert type(head.weight.data) is torch.Tensor
    assert torch.equal(head(x), expected)
    assert head is ranks.whole(model.lm_head)
    assert embedding.weight is head.weight, "tied weights are gathered once"
    assert ranks.whole(model.model.norm) is model.model.norm


def test_drafts_of_a_divided_target_are_not_packed() -> None:
    draft = tiny_llama(seed=1, layers=1)
    ModelHost(Divided(vocab_size=VOCAB)).model(draft)
    known = find_attached(draft)
    assert known is not None
    assert known.settings == "packing=False, chunk=None"


def test_the_tuner_gets_the_times_of_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StepTimes] = []
    observe = AutoTuner.observe

    def watched(self: AutoTuner, report: StepReport) -> list[Prediction | None]:
        seen.append(report.times)
        return observe(self, report)

    drafting_pays(monkeypatch)
    monkeypatch.setattr(AutoTuner, "observe", watched)
    Engine(Divided(), "auto").generate([Request((1, 5, 2, 7, 1, 5), 8)])
    assert set(seen) == {StepTimes(7.0, 7.0, 7.0, 7.0, 7.0)}


def test_costs_are_measured_by_the_clock_of_the_first_process() -> None:
    assert _clock(Divided())() == 7.0
    assert _clock(MarkovTarget()) is perf_counter


def test_a_thread_takes_no_divided_model() -> None:
    with pytest.raises(DraftwoodError, match="use Engine in each process"):
        EngineThread(Engine(Divided(), "ar"))

"""Stateful processors are called through copies, with the calls of each path."""

import ast
import inspect
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from transformers import LogitsProcessor
from transformers.generation import logits_process

from draftwood.errors import DraftwoodError
from draftwood.sampling.processors import _STATELESS, may_keep_state
from draftwood.sampling.sampler import Sampler
from draftwood.sampling.stateful import PathProcessor
from tests.factories.tiny_llama import tiny_llama, tiny_tokenizer

PROMPT = [7, 3]


def ids(*tokens: int) -> torch.Tensor:
    return torch.tensor([[*PROMPT, *tokens]])


def asked(path_processor: PathProcessor, *tokens: int) -> list[float]:
    found: list[float] = path_processor(ids(*tokens), torch.zeros(1, 4))[0].tolist()
    return found


class Telling(LogitsProcessor):
    """Answers with what it was shown last, call by call."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.seen.append(int(input_ids[0, -1]))
        return scores + torch.tensor([sum(self.seen), len(self.seen), *self.seen[:1], 0.0])


class InPlace(Telling):
    """Keeps its state in a tensor."""

    def __init__(self) -> None:
        self.total = torch.zeros(2)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.total += torch.tensor([float(input_ids[0, -1]), 1.0])
        return scores + torch.tensor([*self.total.tolist(), float(PROMPT[-1]), 0.0])


class Late(Telling):
    """Keeps nothing until it sees a token 2."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids[0, -1] == 2:
            self.seen.append(2)
        return scores + len(self.seen)


@pytest.mark.parametrize("kind", [Telling, InPlace])
def test_each_path_has_the_calls_that_lead_to_it(kind: Callable[[], LogitsProcessor]) -> None:
    path_processor = PathProcessor(kind())
    assert asked(path_processor) == [3, 1, 3, 0]
    assert asked(path_processor, 1) == [4, 2, 3, 0]
    assert asked(path_processor, 2) == [5, 2, 3, 0]
    assert asked(path_processor, 1, 4) == [8, 3, 3, 0]
    assert asked(path_processor, 2, 4) == [9, 3, 3, 0]
    assert asked(path_processor, 1) == [4, 2, 3, 0], "again"
    path_processor.keep_path(ids(2, 4))
    assert asked(path_processor, 2, 4) == [9, 3, 3, 0]
    with pytest.raises(DraftwoodError, match="was called for a path before its prefix"):
        asked(path_processor, 1, 4)
    assert asked(path_processor.fresh()) == [3, 1, 3, 0]


def test_state_that_begins_late_is_tracked() -> None:
    path_processor = PathProcessor(Late())
    assert asked(path_processor)[0] == 0
    assert asked(path_processor, 1)[0] == 0
    assert asked(path_processor, 2)[0] == 1
    assert asked(path_processor, 1, 2)[0] == 1
    assert asked(path_processor, 2, 2)[0] == 2
    assert asked(path_processor, 3)[0] == 0
    path_processor.keep_path(ids(2, 2))
    assert asked(path_processor, 2, 2)[0] == 2
    assert asked(path_processor, 2, 1)[0] == 1


def test_the_processor_given_is_never_called() -> None:
    given = Telling()
    asked(PathProcessor(given))
    assert not given.seen


class Large:
    """Counts how often it is copied."""

    copies: ClassVar[list[int]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Large":
        self.copies.append(1)
        return self


class Function(LogitsProcessor):
    """A caller's own, which keeps nothing, with something large in it and a tensor."""

    def __init__(self) -> None:
        self.large = Large()
        self.bias = {1: torch.ones(4)}

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + self.bias[1] * input_ids.sum()


def test_a_stateless_processor_is_copied_once() -> None:
    path_processor = PathProcessor(Function())
    made = len(Large.copies)
    for tokens in ((), (1,), (2,), (2, 2), (1, 3), (3, 1, 2)):
        assert asked(path_processor, *tokens)[0] == 10 + sum(tokens)
    assert len(Large.copies) == made


def test_a_processor_with_keeps_state_false_is_called_itself() -> None:
    function = Function()
    function.keeps_state = False  # type: ignore[attr-defined]
    assert may_keep_state(Function())
    assert not may_keep_state(function)
    assert not Sampler.from_processors([function], temperature=1.0).stateful


def test_models_and_tokenizers_are_shared() -> None:
    telling: Any = Telling()
    telling.model, telling.tokenizer = tiny_llama(), tiny_tokenizer()
    seen: list[object] = []

    def note(self: Any, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        seen.extend((self.model, self.tokenizer))
        return Telling.__call__(self, input_ids, scores)

    telling.__class__ = type("Noting", (Telling,), {"__call__": note})
    path_processor = PathProcessor(telling)
    asked(path_processor)
    asked(path_processor, 1)
    assert seen[::2] == [telling.model] * 2
    assert all(each is telling.tokenizer for each in seen[1::2])


def test_random_numbers_are_state() -> None:
    class Shaken(LogitsProcessor):
        def __init__(self) -> None:
            self.random = random.Random(4)

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores + self.random.random()

    expected = random.Random(4)
    first, second = expected.random(), expected.random()
    path_processor = PathProcessor(Shaken())
    assert asked(path_processor)[0] == pytest.approx(first)
    assert asked(path_processor, 1)[0] == pytest.approx(second)
    assert asked(path_processor, 2)[0] == pytest.approx(second)


def endless() -> Iterator[int]:
    yield from iter(int, 1)


@pytest.mark.parametrize("part", [threading.Lock(), endless()], ids=["lock", "generator"])
def test_processors_that_cannot_be_copied_are_refused_by_name(part: object) -> None:
    telling: Any = Telling()
    telling.part = part
    with pytest.raises(DraftwoodError, match=r"Telling cannot be applied.*cannot pickle"):
        Sampler.from_processors([telling], temperature=0.0)


def test_state_in_a_closure_is_refused_by_name() -> None:
    calls: list[int] = []

    def counting(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return scores

    with pytest.raises(DraftwoodError, match="function keeps state where its copies share it"):
        asked(PathProcessor(counting))


def test_a_function_is_a_processor() -> None:
    def doubled(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + 2

    path_processor = PathProcessor(doubled)
    assert asked(path_processor, 1, 2) == asked(path_processor, 3) == [2, 2, 2, 2]


def test_a_call_that_fails_leaves_no_trace() -> None:
    class Picky(Telling):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            found = super().__call__(input_ids, scores)
            if input_ids[0, -1] == 9:
                raise RuntimeError("a nine")
            return found

    path_processor = PathProcessor(Picky())
    for _ in range(2):
        with pytest.raises(RuntimeError):
            asked(path_processor, 9)
    assert asked(path_processor) == [3, 1, 3, 0]
    with pytest.raises(RuntimeError):
        asked(path_processor, 9)
    assert asked(path_processor, 1) == [4, 2, 3, 0]


def test_processors_of_transformers_that_are_called_directly_are_stateless() -> None:
    """What they assign to themselves while they are asked is on this list, and depends on their
    settings and on the size and device of what they are shown."""
    known = {
        ("ExponentialDecayLengthPenalty", "eos_token_id"),
        ("RepetitionPenaltyLogitsProcessor", "prompt_ignore_length"),
        ("SequenceBiasLogitsProcessor", "prepared_bias_variables"),
        ("SequenceBiasLogitsProcessor", "multi_token_biases"),
        ("SequenceBiasLogitsProcessor", "length_1_bias"),
    }
    found = set()
    for name in sorted(_STATELESS):
        tree = ast.parse(inspect.getsource(getattr(logits_process, name)))
        for method in ast.walk(tree):
            if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                found |= {(name, attribute) for attribute in _assigned(method)}
    # Not called while decoding.
    setters = {
        ("RepetitionPenaltyLogitsProcessor", "logits_indices"),
        ("RepetitionPenaltyLogitsProcessor", "cu_seq_lens_q"),
        ("SuppressTokensAtBeginLogitsProcessor", "begin_index"),
        ("SequenceBiasLogitsProcessor", "sequence_bias"),
    }
    assert found <= known | setters


def _assigned(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr

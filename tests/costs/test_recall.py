"""What costs are kept for: a target, its draft models and what their forwards are over."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

import pytest

from draftwood.costs import recall
from draftwood.costs.curve import Curve, StepCosts
from draftwood.costs.recall import places_of, recall_or_measure
from draftwood.drafters.context import Context
from draftwood.drafters.model import Model
from draftwood.drafters.pard import Pard
from draftwood.methods import method
from draftwood.protocols import Built, DraftDtype, DrafterSpec
from tests.factories.markov_target import FakeHost, MarkovTarget

T = TypeVar("T")


class SharingHost(FakeHost):
    """A host that shares all that is made, with models of known identities."""

    def __init__(self) -> None:
        super().__init__(MarkovTarget(8).info)
        self.made: dict[Hashable, Any] = {}

    def identity(self, name: Any, dtype: DraftDtype = "auto") -> str:
        return f"{name} {dtype}" if isinstance(name, str) else ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self.made:
            self.made[key] = make()
        return cast(T, self.made[key])


def place(spec: DrafterSpec) -> str:
    return places_of(SharingHost(), {"draft": spec})["draft"]


def test_costs_are_of_a_kind_of_drafter_and_its_settings() -> None:
    specs = [Pard(model="m"), Pard(model="m", ahead=64), Model(model="m"), Model(model="other")]
    specs.append(Model(model="m", dtype="bfloat16"))
    assert len({place(spec) for spec in specs}) == len(specs)
    assert place(Pard(model="m")) == place(Pard(model="m"))
    assert place(Model(model=cast(Any, object()))) == "", "a model that was loaded has no name"


def test_methods_share_what_was_measured_and_not_what_is_learnt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[Any] = []

    def measure(_: object, drafters: Any) -> StepCosts:
        measured.append(drafters)
        level = Curve((1, 2), (0.1, 0.1))
        return StepCosts(Curve((1, 64), (1.0, 1.1)), dict.fromkeys(drafters, level))

    monkeypatch.setattr(recall, "_measured", measure)
    host = SharingHost()
    built = {"context": Built(Context(), cast(Any, None))}
    first, second = method("auto").policy, method("auto", budget=8).policy
    mine = recall_or_measure(host, built, first)
    assert recall_or_measure(host, built, first) is mine
    others = [
        recall_or_measure(host, built, second),
        recall_or_measure(host, {"context": Built(Context(max_tokens=4), cast(Any, None))}, first),
    ]
    for _ in range(200):  # drafting is far behind
        for searched in (True, False):
            mine.compare(1, searched, 1, 4.0 if searched else 1.0)
    assert not mine.drafts(1)
    assert all(other.drafts(1) for other in others)
    assert len(measured) == 1
    draft = {"draft": Built(Model(model="m"), cast(Any, None))}
    assert recall_or_measure(host, draft, first).now(1).drafters.keys() == {"draft"}
    assert len(measured) == 2

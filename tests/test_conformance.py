"""Every registered part keeps its protocol's promises; nobody is listed here by name."""

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.engine.lockstep import draft
from draftwood.errors import DraftwoodError
from draftwood.lab.lossless.pairs import (
    check_pair,
    paired,
    registered_pairs,
    registered_policies,
)
from draftwood.methods import registry
from draftwood.methods.recipe import build
from draftwood.methods.settings import parse
from draftwood.protocols import (
    Bid,
    Branches,
    Candidates,
    Continuation,
    Continue,
    Descend,
    Describe,
    Drafter,
    DrafterSpec,
    Expand,
    Growth,
    LevelBids,
    Needs,
    Outcome,
    Policy,
    Prefill,
    Query,
    Recipe,
    TargetInfo,
)
from draftwood.protocols.settings import Setting
from draftwood.protocols.settings import settings as settings_of
from draftwood.sampling.noise import RequestNoise
from draftwood.tree import ROOT, TokenTree, TreeBuilder
from tests.factories.complete_methods import complete_spec
from tests.factories.enumerated_draws import Dice
from tests.factories.markov_target import FakeHost, MarkovTarget
from tests.factories.scripted_sources import Row, check_shape, distributions, offer

INFO = TargetInfo(13, 256, 1, 1, torch.device("cpu"), torch.float32)
PROMPT = [1, 5, 2, 7, 1, 5, 2, 7, 1, 5, 2]


def parts(kind: registry.Kind) -> list[Any]:
    return [pytest.param(registry.load(kind, name), id=name) for name in registry.names(kind)]


@pytest.mark.parametrize("part", [p for kind in registry.KINDS for p in parts(kind)])
def test_parts_are_frozen_dataclasses_with_explained_settings(part: type) -> None:
    assert dataclasses.is_dataclass(part)
    assert part.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert part.__doc__
    for setting in settings_of(part):
        assert setting.help, f"{part.__name__}.{setting.name} has no help"
        spelt = setting.default
        text = "+".join(map(str, spelt)) if isinstance(spelt, tuple) else str(spelt)
        assert parse(setting, text) == spelt


def outside(setting: Setting) -> Iterator[object]:
    """Values just outside of a setting's range."""
    is_tuple = typing.get_origin(setting.type) is tuple
    beyond = [
        *([] if setting.least is None else [setting.least - 1]),
        *([] if setting.most is None else [setting.most + 1]),
        *(bound for bound in (setting.above, setting.below) if bound is not None),
    ]
    if beyond and float in {setting.type, *typing.get_args(setting.type)}:
        beyond.append(math.nan)
    for bound in beyond:
        yield (bound,) if is_tuple else bound
    if typing.get_origin(setting.type) is Literal:
        yield "nonsense"


@pytest.mark.parametrize("part", [p for kind in registry.KINDS for p in parts(kind)])
def test_settings_out_of_range_are_refused(part: type) -> None:
    for setting in settings_of(part):
        numbers = {int, float} & {setting.type, *typing.get_args(setting.type)}
        bounded = setting.least is not None or setting.above is not None
        assert bounded or not numbers, f"{part.__name__}.{setting.name} has no lower bound"
        for wrong in outside(setting):
            with pytest.raises(DraftwoodError, match=f"^{setting.name} is .*; give "):
                part(**{setting.name: wrong})


@pytest.mark.parametrize("part", parts("policies"))
def test_a_policy_asks_the_sources_that_its_settings_name(part: type[Policy]) -> None:
    names = [setting.name for setting in settings_of(part) if setting.source]
    for name in names if part.sources is Policy.sources else ():
        assert "other" in part(**{name: "other"}).sources
    for first, second in pairwise(names):
        with pytest.raises(DraftwoodError, match=f'{first} and {second} are both "same"'):
            part(**{first: "same", second: "same"})


class Session:
    """A drafter that has seen a prompt and some steps of a chain-drafting run, slot by slot."""

    def __init__(self, spec: DrafterSpec) -> None:
        self.drafter: Drafter = spec.build(FakeHost(INFO, reads=True))

    def feed(self, slot: int, seed: int, steps: int = 5) -> None:
        target = MarkovTarget(seed=seed)
        needs = Needs(top_k=4, prompt_rows=True) | self.drafter.needs
        target.open(64)
        prompt = PROMPT[: 6 + seed]
        rows = target.prefill([0], [prompt], needs)[0]
        first = int(rows.argmax[-1])
        self.drafter.begin(slot, Prefill(np.array(prompt, dtype=np.int64), first, rows))
        anchor = first
        for step in range(steps):
            builder = TreeBuilder(anchor)
            builder.add_chain([(step + seed) % 13, step % 5], "given")
            builder.add(ROOT, (step + seed + 1) % 13, "given")
            tree = builder.build()
            rows = target.forward([0], [tree], needs)[0]
            path: tuple[int, ...] = (1,) if step % 2 else ()
            target.commit([0], [path])
            bonus = int(rows.argmax[path[-1] if path else 0])
            committed = (*(int(tree.tokens[i]) for i in path), bonus)
            self.drafter.observe(slot, Outcome(tree, path, committed, rows))
            anchor = bonus

    def answers(self, slots: Sequence[int]) -> list[tuple[Any, list[list[int]]]]:
        copies = self.drafter.continuations(slots)
        queries = [query(slot) for slot in slots]
        found = self.drafter.expand(slots, queries)
        return [(c, f.tokens.tolist()) for c, f in zip(copies, found, strict=True)]


def query(slot: int) -> Expand:
    builder = TreeBuilder(slot % 13)
    builder.add_chain([5, 2], "given")
    return Expand("any", builder, [ROOT, 1, 2], 3)


@pytest.mark.parametrize("part", parts("drafters"))
def test_drafters_answer_a_batch_as_they_answer_alone(part: type[DrafterSpec]) -> None:
    session = Session(complete_spec(part))
    for slot in range(3):
        session.feed(slot, seed=slot)
    together = session.answers([2, 0, 1])
    assert together == [session.answers([slot])[0] for slot in (2, 0, 1)]
    for copies, rows in together:
        firsts = [chain.tokens[0] for chain in copies]
        assert len(firsts) == len(set(firsts))
        for row in rows:
            offered = [token for token in row if token >= 0]
            assert len(offered) == len(set(offered))
            assert row == offered + [-1] * (len(row) - len(offered)), "candidates come first"


@pytest.mark.parametrize("part", parts("drafters"))
def test_drafters_forget_on_begin_and_release(part: type[DrafterSpec]) -> None:
    spec = complete_spec(part)
    session, fresh = Session(spec), Session(spec)
    session.feed(0, seed=1)
    session.feed(0, seed=2)
    fresh.feed(0, seed=2)
    assert session.answers([0]) == fresh.answers([0])
    session.drafter.release(0)
    if spec.remembers:
        return  # tests of the drafter itself say of whom it forgets what
    session.feed(0, seed=3)
    fresh = Session(spec)
    fresh.feed(0, seed=3)
    assert session.answers([0]) == fresh.answers([0])


class Dealer(Drafter):
    """A drafter over a random table: it ranks, draws and copies, and counts what it is asked."""

    def __init__(self, source: str, table: Mapping[int, Row], chain: Sequence[int]) -> None:
        self.sources = Dice(offer(*chain) if chain else (), table, copying=source, ranking=source)

    def continuations(self, slots: Sequence[int]) -> list[tuple[Continuation, ...]]:
        return [self.sources.continuations(Continue(self.sources.copying)) for _ in slots]

    def expand(self, slots: Sequence[int], queries: Sequence[Expand]) -> list[Candidates]:
        return [self.sources.expand(query) for query in queries]


POLICIES = registered_policies()
each_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def altered(policy: Policy) -> st.SearchStrategy[dict[str, Any]]:
    """Other values, in range, for up to three settings."""
    values = {setting.name: in_range(setting) for setting in settings_of(type(policy))}
    names = [name for name, strategy in values.items() if not strategy.is_empty]
    chosen = st.lists(st.sampled_from(names), max_size=3) if names else st.just([])
    return chosen.flatmap(
        lambda found: st.fixed_dictionaries({name: values[name] for name in found})
    )


def in_range(setting: Setting) -> st.SearchStrategy[Any]:
    kinds = {setting.type, *typing.get_args(setting.type)}
    if typing.get_origin(setting.type) is Literal:
        return st.sampled_from(typing.get_args(setting.type))
    if setting.type is bool:
        return st.booleans()
    if int in kinds and tuple not in kinds:
        least = int(setting.least or 0)
        return st.integers(least, int(setting.most or least + 12))
    if float in kinds:
        lowest = setting.least or setting.above or 0.0
        highest = min(9.0, setting.most or setting.below or 9.0)
        return st.floats(
            lowest,
            highest,
            exclude_min=lowest == setting.above,
            exclude_max=highest == setting.below,
        )
    return st.nothing()


@each_policy
@settings(max_examples=40)
@given(
    data=st.data(),
    seed=st.integers(0, 10**6),
    chain=st.lists(st.integers(0, 14), max_size=25),
    budget=st.sampled_from([-1, 0, 1, 2, 7, 15, 59, 80]),
    room=st.sampled_from([-1, 0, 1, 2, 3, 6, 100]),
    temperature=st.sampled_from([0.0, 0.0, 0.9]),
)
def test_policies_keep_to_their_bounds_and_are_pure(
    policy: Policy,
    data: st.DataObject,
    seed: int,
    chain: list[int],
    budget: int,
    room: int,
    temperature: float,
) -> None:
    with suppress(DraftwoodError):  # settings that contradict one another
        policy = dataclasses.replace(policy, **data.draw(altered(policy)))  # type: ignore[type-var]
    table = distributions(seed, vocab=15, most=8)
    growth = Growth(3, room, budget, temperature, RequestNoise(seed))
    tree, asked = grown(policy, growth, table, chain)
    check_shape(tree, min(budget, policy.budget), room)
    assert tree.tokens[0] == 3
    assert all(parent < node for node, parent in enumerate(tree.parents.tolist()))
    assert set(tree.draws.tolist()[1:]) <= set(policy.draws)
    assert set(tree.sources[1:]) <= {*policy.sources, *policy.own_sources}
    ranked = (Expand, Describe, Descend)
    kinds: dict[str, tuple[type, ...]] = {
        "chains": (Continue,),
        "trees": (Branches, Continue),
        "successors": ranked,
    }
    for query in asked:
        assert not isinstance(query, LevelBids | Bid), "these are not for a source"
        assert isinstance(query, kinds[policy.asks[query.source]])
    assert policy.branching or tree.parents.tolist() == list(range(-1, len(tree) - 1))
    if min(budget, policy.budget, room) < 1:
        assert not asked, "nothing is asked where nothing can be drafted"
    again, _ = grown(policy, growth, table, chain)
    for name in ("tokens", "parents", "logq", "draws"):
        assert getattr(tree, name).tolist() == getattr(again, name).tolist()
    assert policy.start() == policy.start()


@each_policy
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_policies_draft_nothing_where_the_drafters_have_nothing(
    policy: Policy, temperature: float
) -> None:
    tree, _ = grown(policy, Growth(3, 50, 59, temperature, RequestNoise(1)), {}, ())
    assert (tree.drafted, tree.route) == (0, "plain")


def grown(
    policy: Policy, growth: Growth, table: Mapping[int, Row], chain: Sequence[int]
) -> tuple[TokenTree, list[Query]]:
    """The tree and the queries."""
    drafters = {source: Dealer(source, table, chain) for source in policy.sources}
    [found] = draft(policy, drafters, [0], [growth], [policy.start()])
    if found.error is not None:
        raise found.error
    return found.tree, [query for each in drafters.values() for query in each.sources.asked]


PAIRS = list(registered_pairs())


@pytest.mark.parametrize(("name", "policy", "verifier"), PAIRS, ids=[name for name, *_ in PAIRS])
def test_a_policy_and_a_verifier_are_lossless_or_refused(
    name: str, policy: Policy, verifier: str
) -> None:
    """The exact distribution of the next tokens, by enumeration; see draftwood/lab/lossless."""
    check = check_pair(name, policy, verifier)
    assert check.passed, str(check)


def test_every_policy_and_every_verifier_has_a_pair() -> None:
    allowed = []
    for pair in PAIRS:
        with suppress(DraftwoodError):
            allowed.append(paired(*pair))
    verifiers = {registry.load("verifiers", name) for name in registry.names("verifiers")}
    assert {type(method.verifier) for method in allowed} == verifiers
    assert {id(method.policy) for method in allowed} == {id(policy) for _, policy, _ in PAIRS}


def test_a_third_partys_recipe_needs_no_list() -> None:
    mine = Recipe("mine", "a long chain", "-", "chain", {"context": "context"})
    assert build(mine, {"budget": 5}).policy.budget == 5

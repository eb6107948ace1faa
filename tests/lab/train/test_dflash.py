"""Training of a DFlash drafter: its blocks, its loss, its judgement, and what is written."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from draftwood.drafters.dflash.checkpoint import load_dflash
from draftwood.drafters.dflash.network import DFlashNetwork
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.dflash_loss import BlockLoss, drafted_blocks, random_anchors
from draftwood.lab.train.dflash_plan import DFlashPlan
from draftwood.lab.train.dflash_run import block_chains, new_dflash
from draftwood.lab.train.export import export_dflash
from draftwood.lab.train.head import frequent_tokens
from draftwood.lab.train.head_loss import DraftLabels
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import TextLoss
from draftwood.lab.train.trainer import Trainer
from draftwood.runner.attach import attach
from tests.factories.trainable_heads import EVERY_OTHER, teacher, text
from tests.lab.train.conftest import MIXTURE

PLAN = DFlashPlan(block=4, anchors=3, layers=2, taps=(1, 3))


def random_network(of: Teacher, drafted: list[int], plan: DFlashPlan = PLAN) -> DFlashNetwork:
    network = new_dflash(plan, of, np.array(drafted), seed=1)
    torch.manual_seed(2)
    for name, parameter in network.named_parameters():
        if name != "lm_head.weight":
            parameter.data = 0.3 * torch.randn(parameter.shape) + float("norm" in name)
    return network


def labels_of(network: DFlashNetwork, of: Teacher) -> DraftLabels:
    return DraftLabels(network.token_ids, of.vocab_size)


def alone(network: DFlashNetwork, features: torch.Tensor, anchor: int, place: int) -> torch.Tensor:
    """Logits ``[B - 1, Vd]`` of one block, computed as in drafting."""
    context = [network.read(features[:place], 0)]
    found: torch.Tensor = network(torch.tensor([anchor]), torch.tensor([place]), context, 4)
    return found[0, 1:]


def terms(
    target: Teacher, network: DFlashNetwork, tokens: torch.Tensor, place: int
) -> list[tuple[float, bool, int, int]]:
    """Per slot: KL(target || drafter), whether the row counts, and both's likeliest tokens."""
    drafted = network.token_ids.tolist()
    states = target.model(input_ids=tokens[None], output_hidden_states=True)
    features = torch.cat([states.hidden_states[tap][0] for tap in network.config.taps], dim=-1)
    logits = alone(network, features, int(tokens[place]), place)
    found = []
    for slot, row in enumerate(logits):
        scores = states.logits[0, place + slot]
        p, q = scores[drafted].softmax(0), row.softmax(0)
        gap = sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
        best = int(scores.argmax())
        found.append((gap, best in drafted, best, drafted[int(row.argmax())]))
    return found


@torch.no_grad()
def test_blocks_of_a_row_are_those_of_drafting() -> None:
    target = teacher()
    network = random_network(target, EVERY_OTHER)
    tokens = text(2, 12)
    features = target.read(tokens, network.config.taps).features
    places = torch.tensor([[1, 4, 8], [2, 3, 7]])
    found = network.lm_head(drafted_blocks(network, features, tokens, places))
    for row in range(2):
        for number, place in enumerate(places[row].tolist()):
            expected = alone(network, features[row], int(tokens[row, place]), place)
            torch.testing.assert_close(found[row, number], expected, atol=1e-4, rtol=1e-4)


def test_anchors_leave_room_for_a_context_and_a_block() -> None:
    tokens = text(3, 12)
    seen = set[int]()
    for seed in range(40):
        places = random_anchors(tokens, 4, 3, seed)
        assert places.shape == (3, 3)
        assert (places.diff(dim=1) > 0).all()
        seen |= set(places.flatten().tolist())
    assert seen == set(range(1, 9))
    assert torch.equal(random_anchors(tokens, 4, 3, 5), random_anchors(tokens, 4, 3, 5))
    assert random_anchors(tokens, 4, 99, 5).tolist() == [list(range(1, 9))] * 3


@pytest.mark.parametrize("drafted", [EVERY_OTHER, list(range(40))], ids=["half", "whole"])
@torch.no_grad()
def test_the_loss_is_the_decaying_mean_over_slots(drafted: list[int]) -> None:
    target = teacher()
    network = random_network(target, drafted)
    rows = text(2, 12)
    loss = BlockLoss(network, target, labels_of(network, target), PLAN.anchors)
    found = loss(rows[:, :-1], rows[:, 1:], 6)
    places = random_anchors(rows, 4, 3, 6)
    expected = 0.0
    for row in range(2):
        for place in places[row].tolist():
            gaps = [gap * counts for gap, counts, *_ in terms(target, network, rows[row], place)]
            expected += (gaps[0] + 0.8 * gaps[1] + 0.64 * gaps[2]) / 2.44 / 6
    assert found.item() == pytest.approx(expected, rel=1e-3)
    other = loss(rows[:, :-1], rows[:, 1:], 7)
    assert other.item() != found.item(), "another step has other anchors"
    mixed = BlockLoss(network, target, labels_of(network, target), PLAN.anchors, mixed=True)
    rounded = mixed(rows[:, :-1], rows[:, 1:], 6).item()
    assert rounded != found.item()
    assert rounded == pytest.approx(found.item(), rel=0.1)


def test_the_loss_reaches_every_parameter_but_the_output() -> None:
    target = teacher()
    network = random_network(target, EVERY_OTHER)
    rows = text(2, 12)
    loss = BlockLoss(network, target, labels_of(network, target), PLAN.anchors)
    trained = {name: each for name, each in network.named_parameters() if each.requires_grad}
    assert "lm_head.weight" not in trained
    slopes = torch.autograd.grad(loss(rows[:, :-1], rows[:, 1:], 0), [*trained.values()])
    assert all(slope.abs().max() > 0 for slope in slopes)


@torch.no_grad()
def test_acceptance_counts_chains() -> None:
    target = teacher(5)
    network = random_network(target, [0, 1, 3])
    tokens = text(1, 70)[0] % 5
    stream = tokens.numpy().astype(np.uint16)
    domain = Domain("a", stream, stream)
    found = block_chains(network, target, labels_of(network, target), domain).acceptance()
    chains = [terms(target, network, tokens, place) for place in range(1, 67)]
    assert found.chains == 67
    # The last chain ends with the text and beyond what the others need.
    for k in range(3):
        right = sum(chain[k][2] == chain[k][3] for chain in chains)
        assert right / 67 <= found.greedy[k] + 1e-4
        assert found.greedy[k] <= (right + 1) / 67 + 1e-4
        nats = sum(chain[k][0] * chain[k][1] for chain in chains) / 66
        assert found.nats_per_token[k] == pytest.approx(nats, rel=0.1)


def test_a_drafter_learns_to_draft_as_its_target(
    tmp_path: Path, domains: tuple[Domain, ...]
) -> None:
    rows, length, vocabulary = 4, 32, 320
    recipe = TrainingRecipe(
        tokens=40 * rows * length, length=length, rows=rows, warmup=2, short_share=0.7, seed=4
    )
    target = teacher(vocabulary, seed=3)
    target.model.requires_grad_(True)
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    loss = TextLoss(target.model, recipe)
    Trainer(tmp_path / "target", target.model, recipe, batches, {}, loss).run()
    target.model.requires_grad_(False)

    drafted = frequent_tokens(domains, MIXTURE, vocabulary, 100)
    network = new_dflash(replace(PLAN, anchors=8), target, drafted, seed=1)
    labels = labels_of(network, target)
    before = block_chains(network, target, labels, domains[0]).acceptance()
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    made = BlockLoss(network, target, labels, 8)
    Trainer(tmp_path / "dflash", network, recipe, batches, {}, made).run()
    after = block_chains(network, target, labels, domains[0]).acceptance()
    assert after.accepted_tokens > before.accepted_tokens
    assert all(a < b for a, b in zip(after.nats_per_token, before.nats_per_token, strict=True))


@torch.no_grad()
def test_an_export_is_read_as_a_drafter(tmp_path: Path) -> None:
    target = teacher()
    network = random_network(target, [3, 4, 9])
    export_dflash(network, {"finished": True}, tmp_path, raw=PLAN.raw(target))
    runner: Any = attach(target.model, packing=False, self_test=False)
    loaded = load_dflash(str(tmp_path), runner, torch.float32)
    runner.detach()
    assert loaded.token_ids.tolist() == [3, 4, 9]
    assert loaded.config.taps == (1, 3)
    features = torch.randn(6, 32)
    expected = alone(network, features, 5, 6)
    torch.testing.assert_close(alone(loaded, features, 5, 6), expected, atol=0.2, rtol=0.1)


def test_anchors_of_a_row_do_not_depend_on_the_rows_beside_it() -> None:
    tokens = torch.arange(4 * 12).view(4, 12) % 7
    whole = random_anchors(tokens, 4, 3, 5)
    halves = [random_anchors(each, 4, 3, 5) for each in (tokens[:2], tokens[2:])]
    assert torch.equal(whole, torch.cat(halves))

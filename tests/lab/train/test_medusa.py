"""Training of Medusa heads: their loss, their judgement, and what is written."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from draftwood.drafters.medusa.checkpoint import load_medusa
from draftwood.drafters.medusa.heads import MedusaHeads
from draftwood.lab.train.batches import Batches
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.export import export_medusa
from draftwood.lab.train.head import frequent_tokens
from draftwood.lab.train.head_loss import DraftLabels
from draftwood.lab.train.medusa_loss import MedusaLoss
from draftwood.lab.train.medusa_plan import MedusaPlan
from draftwood.lab.train.medusa_run import medusa_chains, new_medusa
from draftwood.lab.train.recipe import TrainingRecipe
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import TextLoss
from draftwood.lab.train.trainer import Trainer
from draftwood.runner.attach import attach
from tests.factories.trainable_heads import EVERY_OTHER, teacher, text
from tests.lab.train.conftest import MIXTURE

HEADS = 3


def random_medusa(of: Teacher, drafted: list[int]) -> MedusaHeads:
    heads = new_medusa(MedusaPlan(heads=HEADS), of, np.array(drafted))
    torch.manual_seed(2)
    for parameter in heads.blocks.parameters():
        parameter.data.normal_(std=0.3)
    return heads


def labels_of(heads: MedusaHeads, of: Teacher) -> DraftLabels:
    return DraftLabels(heads.token_ids, of.vocab_size)


def chain_terms(
    target: Teacher, heads: MedusaHeads, tokens: torch.Tensor, start: int
) -> list[tuple[float, bool, int, int]]:
    """Per head: KL(target || head), whether the row counts, and both's likeliest tokens."""
    drafted = heads.token_ids.tolist()
    states = target.model(input_ids=tokens[None], output_hidden_states=True)
    logits = heads(states.hidden_states[-1][0, start][None])[0]
    terms = []
    for k in range(min(HEADS, len(tokens) - 1 - start)):
        scores = states.logits[0, start + 1 + k]
        p, q = scores[drafted].softmax(0), logits[k].softmax(0)
        gap = sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
        best = int(scores.argmax())
        terms.append((gap, best in drafted, best, drafted[int(logits[k].argmax())]))
    return terms


@pytest.mark.parametrize("drafted", [EVERY_OTHER, list(range(40))], ids=["half", "whole"])
@torch.no_grad()
def test_the_loss_is_the_decaying_mean_over_heads(drafted: list[int]) -> None:
    target = teacher()
    heads = random_medusa(target, drafted)
    rows = text(2, 8)
    loss = MedusaLoss(heads, target, labels_of(heads, target))
    found = loss(rows[:, :-1], rows[:, 1:], 0)
    sums, counts = [0.0] * HEADS, [0] * HEADS
    for tokens in rows:
        for start in range(7):
            for k, (gap, counts_in, _, _) in enumerate(chain_terms(target, heads, tokens, start)):
                sums[k] += gap * counts_in
                counts[k] += 1
    assert counts == [14, 12, 10]
    means = [a / b for a, b in zip(sums, counts, strict=True)]
    expected = (means[0] + 0.8 * means[1] + 0.64 * means[2]) / 2.44
    assert found.item() == pytest.approx(expected, rel=1e-4)
    mixed = MedusaLoss(heads, target, labels_of(heads, target), mixed=True)
    rounded = mixed(rows[:, :-1], rows[:, 1:], 0).item()
    assert rounded != found.item()
    assert rounded == pytest.approx(found.item(), rel=0.05)


def test_the_loss_reaches_the_blocks_and_nothing_else() -> None:
    target = teacher()
    heads = random_medusa(target, EVERY_OTHER)
    rows = text(2, 8)
    found = MedusaLoss(heads, target, labels_of(heads, target))(rows[:, :-1], rows[:, 1:], 0)
    trained = [each for each in heads.parameters() if each.requires_grad]
    assert len(trained) == 2 * HEADS
    assert all(slope.abs().max() > 0 for slope in torch.autograd.grad(found, trained))


@torch.no_grad()
def test_new_heads_say_what_the_target_says_next() -> None:
    target = teacher()
    heads = new_medusa(MedusaPlan(heads=2, layers=2), target, np.array([3, 4, 9]))
    tokens = text(1, 5)
    reading = target.read(tokens, ())
    assert reading.features.shape == (1, 5, 0)
    logits = heads(reading.last[0])
    expected = target.model(input_ids=tokens).logits[0][:, [3, 4, 9]]
    for k in range(2):
        torch.testing.assert_close(logits[:, k], expected)


@torch.no_grad()
def test_acceptance_counts_chains() -> None:
    target = teacher(5)
    heads = random_medusa(target, [0, 1, 3])
    tokens = text(1, 60)[0] % 5
    stream = tokens.numpy().astype(np.uint16)
    domain = Domain("a", stream, stream)
    found = medusa_chains(heads, target, labels_of(heads, target), domain).acceptance()
    chains = [chain_terms(target, heads, tokens, i) for i in range(57)]
    assert found.chains == 57
    for k in range(HEADS):
        nats = sum(chain[k][0] * chain[k][1] for chain in chains) / 57
        right = sum(chain[k][2] == chain[k][3] for chain in chains) / 57
        assert found.nats_per_token[k] == pytest.approx(nats, abs=2e-3)
        assert found.greedy[k] == pytest.approx(right, abs=1e-4)


def test_heads_learn_to_draft_as_their_target(tmp_path: Path, domains: tuple[Domain, ...]) -> None:
    rows, length, vocabulary = 4, 32, 320
    recipe = TrainingRecipe(
        tokens=40 * rows * length, length=length, rows=rows, warmup=2, short_share=0.7, seed=4
    )
    target = teacher(vocabulary, seed=3)
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    target.model.requires_grad_(True)
    loss = TextLoss(target.model, recipe)
    Trainer(tmp_path / "target", target.model, recipe, batches, {}, loss).run()
    target.model.requires_grad_(False)

    drafted = frequent_tokens(domains, MIXTURE, vocabulary, 100)
    heads = new_medusa(MedusaPlan(heads=HEADS), target, drafted)
    labels = labels_of(heads, target)
    before = medusa_chains(heads, target, labels, domains[0]).acceptance()
    batches = Batches(domains, MIXTURE, recipe.length, recipe.seed)
    made = MedusaLoss(heads, target, labels)
    recipe = replace(recipe, tokens=2 * recipe.tokens)
    Trainer(tmp_path / "medusa", heads, recipe, batches, {}, made).run()
    after = medusa_chains(heads, target, labels, domains[0]).acceptance()
    assert after.accepted_tokens > before.accepted_tokens
    assert all(a < b for a, b in zip(after.nats_per_token, before.nats_per_token, strict=True))


@torch.no_grad()
def test_an_export_is_read_as_heads(tmp_path: Path) -> None:
    target = teacher()
    heads = random_medusa(target, [3, 4, 9])
    export_medusa(heads, {"finished": True}, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["medusa_num_heads"] == HEADS
    runner = attach(target.model, packing=False, self_test=False)
    loaded = load_medusa(str(tmp_path), runner, torch.float32)
    runner.detach()
    states = torch.randn(4, 16)
    assert loaded.token_ids.tolist() == [3, 4, 9]
    torch.testing.assert_close(loaded(states), heads(states), atol=0.1, rtol=0.05)

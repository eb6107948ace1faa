"""Models with recurrent layers: trees, batches, commits and draft models as on other models."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

import draftwood
from draftwood import Engine, Request, method
from draftwood.engine.request import Finished
from draftwood.errors import DraftwoodError
from draftwood.methods import recipes
from draftwood.protocols import Needs
from draftwood.runner.attach import attach
from draftwood.runner.recurrent import forwards, mixers, states
from draftwood.runner.recurrent.ancestry import Ancestry, ancestry
from draftwood.runner.recurrent.mixers import _names, find_mixers
from draftwood.runner.recurrent.torch_forms import torch_form
from draftwood.runner.runner import Runner
from draftwood.tree import TokenTree, tree_of
from tests.factories.eagle3_heads import tiny_head
from tests.factories.given_costs import drafting_pays
from tests.factories.hybrid_families import FEW, HYBRIDS, SMALL, VOCAB, hybrid, known
from tests.factories.model_families import FAMILIES
from tests.factories.path_logits import greedy_tokens, random_prompts, random_tree
from tests.factories.tiny_llama import tiny_llama
from tests.simulated_cuda import SimulatedCuda, to_simulated

ALL = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.slow, id=name) for name in HYBRIDS
]
CLOSE = 1e-4
"""Of float32 logits, relative to the largest one."""
NOTHING = Needs()


@pytest.mark.skipif("granitemoehybrid" not in HYBRIDS, reason="not in this transformers")
def test_a_hybrid_class_without_recurrent_layers_is_a_plain_model() -> None:
    """As Granite 4's dense models are."""
    made: Any = CONFIG_MAPPING["granitemoehybrid"]
    dense = {
        "num_hidden_layers": 2,
        "layer_types": ["full_attention"] * 2,
        "num_local_experts": 0,
        "shared_intermediate_size": 64,
        "position_embedding_type": "rope",
    }
    config = made(**(SMALL | dense))
    torch.manual_seed(3)
    automatic: Any = AutoModelForCausalLM
    model = automatic.from_config(config).eval()
    [prompt] = random_prompts(np.random.default_rng(0), [20], VOCAB)
    wanted = greedy_tokens(model, torch.tensor([prompt]), 24)[len(prompt) :]
    runner = attach(model)
    assert runner.recurrent is None
    [done] = Engine(runner, "goose:budget=8").generate([Request(prompt, 24, eos=())])
    assert list(done.tokens) == wanted
    runner.detach()


def test_a_request_without_memory_for_its_state_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = attach(HYBRIDS["qwen3_5_text"](), self_test=False)
    assert runner.recurrent is not None
    engine, prompts = Engine(runner, "ar"), random_prompts(np.random.default_rng(1), [9] * 4, VOCAB)
    alone = [engine.generate([Request(each, 12, eos=())])[0].tokens for each in prompts]
    numbers = [engine.add(Request(each, 12, eos=())) for each in prompts[:2]]
    engine.step()
    real, full = torch.Tensor.new_zeros, True

    def zeros(like: torch.Tensor, size: Any, **named: Any) -> torch.Tensor:
        if full and isinstance(size, tuple) and like.shape[1:] == tuple(size[1:]):
            raise torch.OutOfMemoryError("no memory for another slot")
        return real(like, size, **named)

    monkeypatch.setattr(torch.Tensor, "new_zeros", zeros)
    numbers += [engine.add(Request(each, 12, eos=())) for each in prompts[2:]]
    done: dict[int, tuple[int, ...]] = {}
    waited = False
    while engine.busy:
        waited |= engine.running == 2 and engine.waiting > 0
        for event in engine.step():
            if isinstance(event, Finished):
                done[event.request_id] = event.completion.checked().tokens
    assert waited
    assert [done[number] for number in numbers] == alone
    runner.detach()


def test_another_thread_may_run_the_model_between_two_layers() -> None:
    """A plain call beside a forward of ours has its own states, and ours keeps its own."""
    model = HYBRIDS["qwen3_5_text"]()
    runner = attach(model, self_test=False)
    mine, other = random_prompts(np.random.default_rng(2), [30, 17], VOCAB)
    engine = Engine(runner, "goose:budget=8")
    alone = engine.generate([Request(mine, 8, eos=())])[0].tokens
    with torch.no_grad():
        wanted = model(torch.tensor([other])).logits
    found: list[torch.Tensor] = []

    def plain() -> None:
        with torch.no_grad():
            found.append(model(torch.tensor([other])).logits)

    def beside(*_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=plain)
            thread.start()
            thread.join()

    layer = next(each.module for each in find_mixers(model))
    with layer.register_forward_pre_hook(beside):
        tokens = engine.generate([Request(mine, 8, eos=())])[0].tokens
    assert tokens == alone
    assert len(found) > 1
    assert all(torch.allclose(each, wanted, atol=1e-5) for each in found)
    runner.detach()


@torch.no_grad()
def decoded_logits(model: Any, prefix: Sequence[int], path: Sequence[int]) -> torch.Tensor:
    """``[n, V]``: what a plain model says after each token of a path, one token at a time."""
    found = model(torch.tensor([list(prefix)]), use_cache=True)
    rows = []
    for i, token in enumerate(path):
        found = model(
            torch.tensor([[token]]),
            position_ids=torch.tensor([[len(prefix) + i]]),
            past_key_values=found.past_key_values,
            use_cache=True,
        )
        rows.append(found.logits[0, -1])
    return torch.stack(rows)


def node_logits(model: Any, prefix: Sequence[int], tree: TokenTree) -> torch.Tensor:
    """``[n, V]`` of every node, each decoded along its own path."""
    return torch.stack(
        [
            decoded_logits(model, prefix, [int(tree.tokens[0]), *tree.path_tokens(node)])[-1]
            for node in range(len(tree))
        ]
    )


def off(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@contextmanager
def attached(model: Any, **settings: Any) -> Iterator[Runner]:
    runner = attach(model, self_test=False, **settings)
    yield runner
    runner.detach()


@pytest.mark.parametrize("name", ALL)
def test_every_node_is_its_path_decoded_token_by_token(name: str) -> None:
    """Alone and in a ragged batch, behind texts of one token to three chunks."""
    rng = np.random.default_rng(0)
    plain, texts = HYBRIDS[name](), random_prompts(rng, (1, 40, 9), VOCAB)
    trees = [random_tree(rng, nodes, VOCAB) for nodes in (6, 11, 1)]
    expected = [node_logits(plain, *each) for each in zip(texts, trees, strict=True)]
    with attached(HYBRIDS[name](), chunk=16) as runner:
        slots = [runner.open(64) for _ in texts]
        ends = runner.prefill(slots, texts, NOTHING)
        for text, end in zip(texts, ends, strict=True):
            if len(text) > 1:
                last = decoded_logits(plain, text[:-1], text[-1:])
                assert off(end.logits, last) < CLOSE
        for _ in range(2):  # a forward leaves the states as they are
            for rows, wanted in zip(runner.forward(slots, trees, NOTHING), expected, strict=True):
                assert off(rows.logits, wanted) < CLOSE
            [alone] = runner.forward(slots[1:2], trees[1:2], NOTHING)
            assert off(alone.logits, expected[1]) < CLOSE
        # Another order of slots, of which two are committed.
        runner.forward([slots[2], slots[0], slots[1]], [trees[2], trees[0], trees[1]], NOTHING)
        paths = [tree.path(int(tree.depths.argmax())) for tree in trees[:2]]
        runner.commit([slots[1], slots[0]], [paths[1], paths[0]])
        runner.release(slots[2])
        for i, path in enumerate(paths):
            text = texts[i] + [int(trees[i].tokens[node]) for node in (0, *path)]
            next_tree = random_tree(rng, 5, VOCAB)
            [rows] = runner.forward([slots[i]], [next_tree], NOTHING)
            assert off(rows.logits, node_logits(plain, text, next_tree)) < CLOSE


def with_small_time_steps() -> Any:
    """Zamba 2 raises time steps to a least one in forwards of several tokens, and only there."""
    model = HYBRIDS["zamba2"]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("dt_bias"):
                parameter.fill_(-12.0)
    return model


def test_the_self_test_compares_with_decoding_where_a_forward_of_several_tokens_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [5, 9, 13, 7, 22, 41, 3]
    plain = with_small_time_steps()
    with torch.no_grad():
        whole = plain(torch.tensor([ids]), use_cache=False).logits[0, -4:]
    assert off(whole, decoded_logits(plain, ids[:3], ids[3:])) > 0.01
    wanted = greedy_tokens(plain, torch.tensor([ids]), 20)[len(ids) :]
    model = with_small_time_steps()
    [found] = Engine(attach(model), "goose").generate([Request(ids, 20, eos=())])
    assert list(found.tokens) == wanted
    draftwood.detach(model)
    monkeypatch.setattr("draftwood.runner.selftest._noise", lambda *_: 0.0)
    with pytest.raises(DraftwoodError, match="self-test failed"):
        attach(with_small_time_steps())


@contextmanager
def entering(model: Any, taps: Sequence[int]) -> Iterator[dict[int, torch.Tensor]]:
    """The hidden states that entered some layers in the last forward, by layer."""
    count = model.config.num_hidden_layers
    lists = (each for each in model.modules() if isinstance(each, torch.nn.ModuleList))
    layers = next(each for each in lists if len(each) == count)
    found: dict[int, torch.Tensor] = {}

    def keep(tap: int, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        found[tap] = (given[0] if given else named["hidden_states"])[0]

    hooks = [
        layers[tap].register_forward_pre_hook(
            lambda _, given, named, tap=tap: keep(tap, given, named), with_kwargs=True
        )
        for tap in taps
    ]
    yield found
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("name", ALL)
def test_hidden_states_for_a_head_are_those_of_decoding(name: str) -> None:
    """At every token of a prompt in chunks, and at every node of a tree."""
    rng = np.random.default_rng(2)
    [text], tree = random_prompts(rng, (20,), VOCAB), random_tree(rng, 9, VOCAB)
    plain = HYBRIDS[name]()
    taps = (0, 1, plain.config.num_hidden_layers - 1)
    with entering(plain, taps) as seen:
        with torch.no_grad():
            plain(torch.tensor([text]), use_cache=False)
        prompt = torch.cat([seen[tap] for tap in taps], dim=-1)
        nodes = []
        for node in range(len(tree)):
            decoded_logits(plain, text, [int(tree.tokens[0]), *tree.path_tokens(node)])
            nodes.append(torch.cat([seen[tap][-1] for tap in taps]))
    needs = Needs(taps=taps)
    with attached(HYBRIDS[name](), chunk=8) as runner:
        slot = runner.open(64)
        [begun] = runner.prefill([slot], [text], needs)
        [rows] = runner.forward([slot], [tree], needs)
    assert begun.features is not None
    assert rows.features is not None
    assert off(begun.features, prompt) < CLOSE
    assert off(rows.features, torch.stack(nodes)) < CLOSE


def head_for_hybrids() -> Any:
    return tiny_head(
        vocab_size=VOCAB,
        draft_vocab_size=VOCAB,
        target_hidden_size=64,
        taps=(0, 1, 3),
        own_embedding=True,
    )


@pytest.mark.parametrize("name", ALL)
def test_a_head_drafts_for_a_model_with_recurrent_layers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, head = [5, 9, 13, 7, 22, 5, 9], head_for_hybrids()
    runner = attach(HYBRIDS[name]())
    request = Request(ids, max_new_tokens=16, eos=())
    [wanted] = Engine(runner, method("ar")).generate([request])
    for drafts in ("eagle3:budget=8", "auto"):
        found = Engine(runner, method(drafts, head=head)).generate([request] * 2)
        assert [each.tokens for each in found] == [wanted.tokens] * 2
        if drafts == "auto":  # whatever it has measured
            drafting_pays(monkeypatch)
            found = Engine(runner, method(drafts, head=head)).generate([request] * 2)
            assert [each.tokens for each in found] == [wanted.tokens] * 2
        assert sum(each.tally.drafted_by_source["draft"] for each in found) > 0
    runner.detach()


@pytest.mark.slow
@pytest.mark.parametrize("drafts", [name for name in recipes() if method(name).for_any_target])
def test_every_method_decodes_as_plainly(drafts: str) -> None:
    """All methods that need no checkpoint, or a draft model or EAGLE head of any family."""
    drafters, options = recipes()[drafts].drafters.values(), {}
    if "model" in drafters:
        options["draft"] = tiny_llama(seed=1, layers=1, vocab_size=VOCAB, eos_token_id=None)
    if "eagle3" in drafters:
        options["head"] = head_for_hybrids()
    prompts = ([5, 9, 13, 7, 22, 5, 9, 13], [3, 8, 3, 8, 3])
    requests = [Request(ids, max_new_tokens=24, eos=()) for ids in prompts]
    with attached(HYBRIDS["qwen3_5_text"]()) as runner:
        wanted = Engine(runner, method("ar")).generate(requests)
        found = Engine(runner, method(drafts, **options)).generate(requests)
    assert [each.tokens for each in found] == [each.tokens for each in wanted]
    if "head" in options:
        assert sum(each.tally.drafted for each in found) > 0


@pytest.mark.parametrize("name", ALL)
def test_greedy_tokens_are_those_of_generate(name: str) -> None:
    """Requests come and go, so that slots are used again."""
    rng = np.random.default_rng(1)
    plain = HYBRIDS[name]()
    prompts = [[5, 9, 13, 7, 22, 41, 3, 5, 9, 13, 7], *random_prompts(rng, (3, 20), VOCAB)]
    model = HYBRIDS[name]()
    before = copy.deepcopy(model.state_dict())
    wanted = [greedy_tokens(plain, torch.tensor([ids]), 20)[len(ids) :] for ids in prompts]
    runner = attach(model, chunk=8)
    for drafts in ("goose:budget=12", "auto"):
        engine = Engine(runner, method(drafts), max_batch=2)
        found = engine.generate([Request(ids, max_new_tokens=20, eos=()) for ids in prompts])
        assert [list(each.tokens) for each in found] == wanted
        assert drafts == "auto" or sum(each.tally.accepted for each in found) > 0
    # Plain generate is what it was, attached and detached.
    ids = torch.tensor([prompts[0]])
    assert greedy_tokens(model, ids, 8)[ids.shape[1] :] == wanted[0][:8]
    runner.detach()
    assert greedy_tokens(model, ids, 8)[ids.shape[1] :] == wanted[0][:8]
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize("drafts", ["goose", "auto", "talon"])
@pytest.mark.parametrize("name", known("qwen3_5_text", "granitemoehybrid"))
def test_long_answers_are_those_of_generate(name: str, drafts: str) -> None:
    """128 tokens of each of eight prompts, four at once; the draft model is the target, changed."""
    plain, prompts = HYBRIDS[name](), random_prompts(np.random.default_rng(3), range(4, 12), VOCAB)
    wanted = [greedy_tokens(plain, torch.tensor([ids]), 128)[len(ids) :] for ids in prompts]
    options = {"draft": changed(HYBRIDS[name]())} if drafts == "talon" else {}
    with attached(HYBRIDS[name]()) as runner:
        engine = Engine(runner, method(drafts, **options), max_batch=4)
        found = engine.generate([Request(ids, max_new_tokens=128, eos=()) for ids in prompts])
    assert [list(each.tokens) for each in found] == wanted
    assert drafts == "auto" or sum(each.tally.accepted for each in found) > 0


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("name", known("qwen3_5_text", "granitemoehybrid", "lfm2"))
def test_generate_decodes_with_trees(name: str, adapted: bool) -> None:
    """Also of a model with an adapter on its recurrent layers."""
    model = HYBRIDS[name]()
    if adapted:
        peft = pytest.importorskip("peft")
        linears = ["q_proj", "v_proj", "in_proj", "in_proj_qkv", "out_proj"]
        model = peft.get_peft_model(
            model, peft.LoraConfig(target_modules=linears, init_lora_weights=False)
        ).eval()
    ids = torch.tensor([[5, 9, 13, 7, 22, 41, 3, 5, 9, 13, 7]])
    wanted = greedy_tokens(model, ids, 16)
    assert greedy_tokens(model, ids, 16, custom_generate=draftwood.goose()) == wanted
    draftwood.detach(model)


def changed(model: Any) -> Any:
    """The model with a little noise on its weights."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("name", known("qwen3_5_text", "jamba", "lfm2"))
def test_a_tree_that_grows_equals_one_forward(name: str) -> None:
    """As of a draft model with recurrent layers; the sequences are in other batches by level."""
    rng = np.random.default_rng(2)
    texts = random_prompts(rng, (12, 5), VOCAB)
    trees = [random_tree(rng, 9, VOCAB), random_tree(rng, 7, VOCAB)]

    def front(tree: TokenTree, nodes: int) -> TokenTree:
        return tree_of(tree.tokens[:nodes].tolist(), tree.parents[:nodes].tolist())

    with attached(HYBRIDS[name]()) as runner:
        slots = [runner.open(40) for _ in texts]
        runner.prefill(slots, texts, NOTHING)
        whole = [rows.logits for rows in runner.forward(slots, trees, NOTHING)]
        ends = [(2, 1), (5, 1), (5, 4), (9, 7)]
        before = (0, 0)
        for sizes in ends:
            grown = [i for i in range(2) if sizes[i] > before[i]]
            rows = runner.forward(
                [slots[i] for i in grown],
                [front(trees[i], sizes[i]) for i in grown],
                NOTHING,
                done=[before[i] for i in grown],
            )
            for i, found in zip(grown, rows, strict=True):
                assert off(found.logits, whole[i][before[i] : sizes[i]]) < CLOSE
            before = sizes
        ways: list[Sequence[int]] = [trees[0].path(8), ()]
        runner.commit(slots, ways)
        again = tree_of([4, 5], [-1, 0])
        after = runner.forward(slots, [again, again], NOTHING)
        plain = HYBRIDS[name]()
        for i, last in enumerate(after):
            longer = texts[i] + [int(trees[i].tokens[node]) for node in (0, *ways[i])]
            assert off(last.logits, node_logits(plain, longer, again)) < CLOSE


@pytest.mark.parametrize("drafts", ["talon", "traversal:shape=2x2", "sd"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_recurrent_draft_model_drafts_for_a_recurrent_target(drafts: str, sampled: bool) -> None:
    draft, target = changed(HYBRIDS["qwen3_5_text"]()), HYBRIDS["qwen3_5_text"]()
    ids = [5, 9, 13, 7, 22]
    plain = Request(ids, max_new_tokens=16, eos=())
    runner = attach(target)
    found = Engine(runner, method(drafts, draft=draft)).generate([plain])[0]
    wanted = Engine(runner, method("ar")).generate([plain])[0]
    assert list(found.tokens) == list(wanted.tokens)
    assert found.tally.steps < 16
    if sampled:
        warm = replace(plain, sampling=replace(plain.sampling, temperature=1.0, seed=3))
        chosen = method(drafts, draft=draft)
        [other] = Engine(runner, chosen).generate([warm])
        assert len(other.tokens) == 16
        assert other.tally.accepted > 0
        assert chosen.same_tokens(1.0) == (drafts in ("sd", "talon"))
        if chosen.same_tokens(1.0):
            [wanted] = Engine(runner, method("ar")).generate([warm])
            assert other.tokens == wanted.tokens
    runner.detach()


@pytest.mark.parametrize("name", ALL)
def test_bfloat16_passes_the_self_test(name: str) -> None:
    attach(hybrid(name, torch.bfloat16)).detach()


def test_float64_passes_the_self_test() -> None:
    """Rules of the gated delta rule and of Mamba are float32 in transformers."""
    attach(hybrid("lfm2", torch.float64)).detach()


@pytest.mark.parametrize("name", known("qwen3_5_text", "falcon_h1", "lfm3"))
def test_a_step_on_a_device_waits_once(name: str) -> None:
    """With the tokens of a CPU."""
    requests = [Request(ids, max_new_tokens=14, eos=()) for ids in ([5, 9, 13, 7] * 3, [5, 6])]
    with attached(HYBRIDS[name]()) as runner:
        done = Engine(runner, method("goose:budget=8")).generate(requests)
        assert sum(each.tally.drafted for each in done) > 0
        wanted = {i: each.tokens for i, each in enumerate(done)}
    steps, found = 0, {}
    model = HYBRIDS[name]()
    with SimulatedCuda() as device:
        engine = Engine(attach(to_simulated(model), self_test=False), method("goose:budget=8"))
        for request in requests:
            engine.add(request)
        while engine.busy:
            for event in engine.step():
                if isinstance(event, Finished):
                    found[event.request_id] = event.completion.tokens
            steps += 1
            if steps == 3:
                device.work.clear()
    assert found == wanted
    if any("repeat_interleave" in _names(mixer.module) for mixer in find_mixers(HYBRIDS[name]())):
        pytest.skip("layers of this version of transformers wait for a device by themselves")
    work = device.work.per(steps - 3)
    assert work["waits"] == work["downloads"] == 1
    assert work["uploads"] <= 5
    assert not device.work.faults


@torch.no_grad()
@pytest.mark.parametrize("name", known("qwen3_5_text", "kimi_linear", "granitemoehybrid"))
def test_prompts_are_not_filled_up_to_whole_chunks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def noting(function: Any, module: str) -> Any:
        form = torch_form(function, module)

        def called(x: torch.Tensor, *given: Any, **named: Any) -> Any:
            if "chunk_size" in named:
                asked.append((x.shape[1], named["chunk_size"]))
            assert form is not None
            return form(x, *given, **named)

        return called

    model = HYBRIDS[name]()
    for layer in model.modules():
        if hasattr(layer, "chunk_size"):
            layer.chunk_size = 64
    prompts = random_prompts(np.random.default_rng(3), (1, 20, 70, 150), VOCAB)
    expected = [model(torch.tensor([each])).logits[0, -1:] for each in prompts]
    monkeypatch.setattr(mixers, "torch_form", noting)
    with attached(model) as runner:
        found = [runner.prefill([runner.open(160)], [each], NOTHING)[0].logits for each in prompts]
    assert {tokens for tokens, _ in asked} == {1, 20, 70, 150}
    for tokens, size in asked:
        chunks = -(-tokens // size)
        assert chunks * size - tokens < chunks
    for one, other in zip(found, expected, strict=True):
        assert off(one, other) < 1e-5


def in_order(
    parents: Sequence[Sequence[int]], done: Sequence[int], device: torch.device
) -> Ancestry:
    """Nodes as if each followed the one before it."""
    return ancestry([list(range(-1, len(own) - 1)) for own in parents], done, device)


def no_commit(self: Any, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
    """States stay behind the prompt."""


def convolution_in_order(trees: Ancestry, taps: int) -> torch.Tensor:
    """Windows over the nodes as they come."""
    b, n = trees.parents.shape
    first = torch.arange(b)[:, None] * (n + taps - 1) + torch.arange(n)
    return torch.arange(taps)[:, None] + first.flatten()


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (forwards, "ancestry", in_order),
        (Ancestry, "windows", convolution_in_order),
        (states.RecurrentStates, "commit", no_commit),
    ],
    ids=["recurrence", "convolution", "commit"],
)
def test_the_self_test_sees_wrong_states(
    where: Any, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong)
    model = HYBRIDS["qwen3_5_text"]()
    with pytest.raises(DraftwoodError, match="self-test failed"):
        attach(model)
    assert not any("forward" in module.__dict__ for module in model.modules())
    monkeypatch.undo()
    attach(model).detach()


def test_a_state_goes_back_to_the_beginning_only() -> None:
    with attached(HYBRIDS["lfm2"]()) as runner:
        slot = runner.open(20)
        first = runner.prefill([slot], [[5, 6, 7, 8]], NOTHING)[0].logits
        runner.roll_back(slot, 4)
        with pytest.raises(DraftwoodError, match="cut it to 0 and cache its text again"):
            runner.roll_back(slot, 2)
        runner.roll_back(slot, 0)
        again = runner.prefill([slot], [[5, 6, 7, 8]], NOTHING)[0].logits
        assert torch.equal(first, again)
        assert runner.savable(slot, 2) == 0


def test_nodes_that_nothing_is_known_of_are_refused() -> None:
    with attached(HYBRIDS["lfm2"]()) as runner:
        slot = runner.open(20)
        runner.prefill([slot], [[5, 6, 7, 8]], NOTHING)
        with pytest.raises(DraftwoodError, match="grows from 2 nodes"):
            runner.forward([slot], [tree_of([1, 2, 3], [-1, 0, 1])], NOTHING, done=[2])


def test_a_mixer_that_was_replaced_is_refused() -> None:
    model = HYBRIDS["qwen3_5_text"]()
    mixer = model.model.layers[0].linear_attn
    mixer.forward = mixer.forward
    with pytest.raises(DraftwoodError, match="forward was replaced"):
        attach(model)


@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        ("mamba", {}, "has no layer with attention"),
        ("mamba2", {"num_heads": 8, "head_dim": 16}, "has no layer with attention"),
        (
            "recurrent_gemma",
            {"lru_width": 64, "attention_window_size": 32, "num_hidden_layers": 3},
            "cannot branch",
        ),
        ("minimax", {"head_dim": 16, "num_local_experts": 4}, "cannot branch"),
        ("zaya", {"head_dim": 16}, "cannot branch"),
        (
            "zamba",
            {
                "num_key_value_heads": 4,
                "layers_block_type": ["mamba", "hybrid"] * 2,
                "n_mamba_heads": 2,
                "mamba_d_state": 8,
                "mamba_dt_rank": 8,
            },
            "several recurrent states of one kind",
        ),
    ],
)
def test_states_that_are_not_served_are_refused(
    kind: str, settings: dict[str, Any], complaint: str
) -> None:
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {kind}")
    own = {} if kind.startswith("mamba") else SMALL
    few = {"vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 2}
    config = AutoConfig.for_model(kind, **few | own | settings)
    made: Any = AutoModelForCausalLM
    with pytest.raises(DraftwoodError, match=complaint):
        attach(made.from_config(config).eval())


def test_other_models_have_no_states() -> None:
    with attached(FAMILIES["llama"]()) as runner:
        assert runner.recurrent is None

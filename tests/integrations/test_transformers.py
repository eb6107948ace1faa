"""``generate`` with a Draftwood method returns what plain ``generate`` returns."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import pytest
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    SynthIDTextWatermarkingConfig,
    pipeline,
)
from transformers.generation.utils import GenerateDecoderOnlyOutput

from draftwood.engine.request import Completion, Delta
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import CustomGenerate, custom_generate
from draftwood.lab.lossless.chi_square import ChiSquare, chi_square
from tests.factories.grammars import Forking, Grammar
from tests.factories.literal_verifiers import Eager
from tests.factories.model_families import FAMILIES
from tests.factories.tiny_llama import VOCAB, tiny_llama, tiny_tokenizer

GOOSE = custom_generate("goose", budget=12)
AR = custom_generate("ar")
PAD = 257
PROMPTS = ([5, 17, 8, 5, 17], [90, 3, 22, 61, 7, 90, 3, 22, 61, 7, 90], [201, 14, 9, 201, 14, 9, 8])


def repetitive(*, context: int = 256) -> Any:
    """A model that mostly generates some two dozen tokens, so that drafts of them are accepted."""
    model = tiny_llama(seed=3, context=context)
    with torch.no_grad():
        model.lm_head.weight[24:] *= 0.2
    return model


@cache
def plain_model() -> Any:
    """The reference; it is never attached."""
    return repetitive()


@cache
def attached_model() -> Any:
    """The same weights; Draftwood's methods run on it."""
    return repetitive()


def padded(prompts: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    width = max(map(len, prompts))
    ids = [[PAD] * (width - len(p)) + list(p) for p in prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def run(model: Any, prompts: Sequence[Sequence[int]], **kwargs: Any) -> Any:
    settings = {"max_new_tokens": 24, "eos_token_id": None, "pad_token_id": PAD} | kwargs
    return model.generate(**padded(prompts), **settings)


def plain(prompts: Sequence[Sequence[int]] = PROMPTS, **kwargs: Any) -> torch.Tensor:
    return cast(torch.Tensor, run(plain_model(), prompts, **kwargs))


def ours(
    prompts: Sequence[Sequence[int]] = PROMPTS, method: CustomGenerate = GOOSE, **kwargs: Any
) -> torch.Tensor:
    found = run(attached_model(), prompts, custom_generate=method, **kwargs)
    return cast(torch.Tensor, found)


@cache
def unset(rows: int) -> torch.Tensor:
    """The result of plain greedy decoding with default settings."""
    return plain(PROMPTS[:rows])


@cache
def greedy() -> tuple[tuple[int, ...], ...]:
    """The tokens of plain greedy decoding for each prompt alone."""
    return tuple(tuple(plain([p])[0, len(p) :].tolist()) for p in PROMPTS)


def some_eos() -> int:
    """A token that ends the prompts' continuations at different places, none at once."""
    for token in range(VOCAB):
        places = [row.index(token) if token in row else 99 for row in greedy()]
        if min(places) > 2 and len(set(places)) > 1 and sorted(places)[1] < 99:
            return token
    raise AssertionError("choose another seed")


class Ban(LogitsProcessor):
    """A caller's own processor with something for every row of the batch."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = torch.tensor(list(tokens))

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> Any:
        return scores.scatter(1, self.tokens[:, None], float("-inf"))


class Sum(StoppingCriteria):
    """Ends a row when its last three ids add up to a multiple of ``modulus``."""

    def __init__(self, modulus: int) -> None:
        self.modulus = modulus
        self.seen: list[list[int]] = []

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> Any:
        self.seen.append(input_ids[0].tolist())
        return input_ids[:, -3:].sum(dim=1) % self.modulus == 0


class Unsure(StoppingCriteria):
    """Ends a row at the first token whose score is not ``margin`` above the runner-up's."""

    def __init__(self, margin: float) -> None:
        self.margin = margin

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> Any:
        assert len(scores) == 1 or scores[0].shape == scores[-1].shape
        best = scores[-1].topk(2).values
        return best[:, 0] - best[:, 1] < self.margin


def settings() -> dict[str, dict[str, Any]]:
    rows = greedy()
    eos = some_eos()
    return {
        "plain": {},
        "max_length": {"max_new_tokens": None, "max_length": 26},
        "one token": {"max_new_tokens": 1},
        "eos": {"eos_token_id": eos},
        "several eos": {"eos_token_id": [eos, rows[1][9]]},
        "eos is the pad token": {"eos_token_id": eos, "pad_token_id": eos},
        "min_new_tokens": {"eos_token_id": eos, "min_new_tokens": 12},
        "min_length": {"eos_token_id": eos, "min_length": 20},
        "forced_eos": {"eos_token_id": eos, "forced_eos_token_id": 9},
        "repetition_penalty": {"repetition_penalty": 1.4},
        "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.5},
        "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
        "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 1},
        "bad_words_ids": {"bad_words_ids": [[rows[0][2]], [rows[1][3], rows[1][4]]]},
        "sequence_bias": {
            "sequence_bias": [[[rows[0][1]], -5.0], [[rows[2][1], rows[2][2]], -9.0]]
        },
        "suppress_tokens": {"suppress_tokens": [row[0] for row in rows]},
        "begin_suppress_tokens": {"begin_suppress_tokens": [row[0] for row in rows]},
        "exponential_decay": {
            "eos_token_id": eos,
            "exponential_decay_length_penalty": (3, 1.2),
        },
        "prefix_allowed": {
            "prefix_allowed_tokens_fn": lambda row, ids: list(range(row + 1, VOCAB, 2))
        },
        "several": {"eos_token_id": eos, "repetition_penalty": 1.2, "no_repeat_ngram_size": 3},
        "processor": {
            "logits_processor": lambda n: LogitsProcessorList([Ban([row[1] for row in rows[:n]])])
        },
        "grammar": {
            "logits_processor": lambda n: LogitsProcessorList([Grammar(Forking, *range(n))])
        },
        "guidance": {"guidance_scale": 1.7},
        "watermark": {
            "watermarking_config": SynthIDTextWatermarkingConfig(ngram_len=3, keys=[1, 2, 3])
        },
        "criterion": {"stopping_criteria": lambda n: StoppingCriteriaList([Sum(5)])},
        "criterion and eos": {
            "eos_token_id": eos,
            "stopping_criteria": lambda n: StoppingCriteriaList([Sum(7)]),
        },
        "max_time": {"max_time": 1e-9},
    }


def case(name: str, rows: int) -> dict[str, Any]:
    made = ("logits_processor", "stopping_criteria")
    return {k: v(rows) if k in made else v for k, v in settings()[name].items()}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", settings())
def test_greedy_output_equals_generate(name: str, rows: int) -> None:
    prompts = PROMPTS[:rows]
    expected = plain(prompts, **case(name, rows))
    got = ours(prompts, **case(name, rows))
    assert got.dtype == expected.dtype
    assert got.tolist() == expected.tolist()
    # A setting that changed nothing would have been honoured by ignoring it.
    assert torch.equal(expected, unset(rows)) == (name == "plain")


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_what_a_row_may_say_is_asked_of_its_own_text_up_to_its_end(
    rows: int, sampled: bool
) -> None:
    end = 99
    prompts = [[5, 17, 8, end, 9, 5, 17, 8, end, 9, 5], [90, 3, 22, end, 90, 3, 22, end, 90]][:rows]
    texts, width = ([17, 8, end], [3, 22, end]), len(prompts[0])
    done: list[Sequence[Completion]] = []

    def allowed(row: int, ids: torch.Tensor) -> list[int]:
        said = ids.tolist()[width:]
        assert said == texts[row][: len(said)]
        return texts[row][len(said) :][:1]  # transformers raises an error if that is empty

    found = ours(
        prompts,
        eos_token_id=end,
        prefix_allowed_tokens_fn=allowed,
        do_sample=sampled,
        return_dict_in_generate=True,
        output_scores=True,
        on_finish=done.append,
    )
    got: Any = found
    assert got.sequences[:, width:].tolist() == [*texts][:rows]
    assert got.scores is not None
    assert len(got.scores) == 3
    assert all(each.tally.steps < 2 for each in done[0]), "the end was drafted and accepted"


@pytest.mark.parametrize("method", ["ar", "pld", "tr", "iso3", "goose:budget=5"])
def test_any_method(method: str) -> None:
    assert torch.equal(ours(method=custom_generate(method)), plain())


def test_a_pipeline_passes_the_method_on() -> None:
    model: Any = repetitive()
    done: list[Sequence[Completion]] = []
    pipe: Any = pipeline("text-generation", model=model, tokenizer=tiny_tokenizer())
    given: dict[str, Any] = {"max_new_tokens": 16, "do_sample": False, "return_tensors": True}
    [expected] = pipe("abc abc abc", **given)
    [found] = pipe("abc abc abc", **given, custom_generate=GOOSE, on_finish=done.append)
    assert found == expected
    assert done[0][0].tally.steps < 15, "drafts were accepted"


@pytest.mark.parametrize("family", ["gpt2", "gpt_oss", "gemma2", "deepseek_v3"])
def test_other_architectures(family: str) -> None:
    """Beyond the windows of those that have some."""
    model = FAMILIES[family]()
    for prompt in PROMPTS:
        prompts = [[token % 90 for token in prompt] * 3]
        assert torch.equal(run(model, prompts, custom_generate=GOOSE), run(model, prompts))


def test_a_criterion_gets_the_padded_batch() -> None:
    for modulus in (5, 10_007):
        theirs, mine = Sum(modulus), Sum(modulus)
        plain(PROMPTS[:1], stopping_criteria=StoppingCriteriaList([theirs]))
        ours(PROMPTS[:1], stopping_criteria=StoppingCriteriaList([mine]))
        assert mine.seen == theirs.seen
        assert mine.seen


def test_a_criterion_gets_scores() -> None:
    wanted: dict[str, Any] = {
        "return_dict_in_generate": True,
        "output_scores": True,
        "eos_token_id": some_eos(),
    }
    for rows in (1, 3):
        found = [
            decode(PROMPTS[:rows], **wanted, stopping_criteria=StoppingCriteriaList([Unsure(0.3)]))
            for decode in (plain, ours)
        ]
        expected, got = (cast(GenerateDecoderOnlyOutput, f).sequences for f in found)
        assert torch.equal(got, expected)
        assert got.shape[1] < 11 + 24


@pytest.mark.parametrize("rows", [1, 3])
def test_scores_and_logits(rows: int) -> None:
    kwargs: dict[str, Any] = {
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
        "repetition_penalty": 1.3,
        "eos_token_id": some_eos(),
    }
    expected = cast(GenerateDecoderOnlyOutput, plain(PROMPTS[:rows], **kwargs))
    got = cast(GenerateDecoderOnlyOutput, ours(PROMPTS[:rows], **kwargs))
    assert type(got) is type(expected)
    assert torch.equal(got.sequences, expected.sequences)
    assert got.past_key_values is None
    assert got.attentions is None
    width = padded(PROMPTS[:rows])["input_ids"].shape[1]
    for name in ("scores", "logits"):
        steps, reference = getattr(got, name), getattr(expected, name)
        assert len(steps) == len(reference)
        for i, (mine, theirs) in enumerate(zip(steps, reference, strict=True)):
            assert mine.shape == theirs.shape
            assert mine.dtype == theirs.dtype
            ended = got.sequences[:, width + i] == PAD
            torch.testing.assert_close(mine[~ended], theirs[~ended], atol=1e-4, rtol=1e-4)
            assert not mine[ended].any()
    assert not torch.allclose(got.scores[0], got.logits[0])  # type: ignore[index]


def test_only_requested_outputs_are_reported() -> None:
    got = cast(GenerateDecoderOnlyOutput, ours(return_dict_in_generate=True, output_logits=True))
    assert got.scores is None
    assert got.logits is not None
    assert cast(GenerateDecoderOnlyOutput, ours(return_dict_in_generate=True)).logits is None


def sampled(seed: int, method: CustomGenerate = GOOSE, **kwargs: Any) -> torch.Tensor:
    torch.manual_seed(seed)
    kwargs = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.95} | kwargs
    return ours(method=method, **kwargs)


def test_seeds_determine_samples() -> None:
    first = sampled(1)
    assert torch.equal(first, sampled(1))
    assert not torch.equal(first, sampled(2))
    assert not torch.equal(first, ours())


@pytest.mark.parametrize("kwargs", [{}, {"repetition_penalty": 1.3}, {"min_p": 0.1, "top_p": 1.0}])
def test_drafting_samples_the_tokens_of_plain_decoding(kwargs: dict[str, Any]) -> None:
    assert torch.equal(sampled(4, **kwargs), sampled(4, AR, **kwargs))


def test_greedy_decoding_does_not_use_torchs_generator() -> None:
    before = torch.get_rng_state()
    ours()
    assert torch.equal(torch.get_rng_state(), before)
    ours(do_sample=True)
    assert not torch.equal(torch.get_rng_state(), before)


SAMPLES = 400
LEAST_P = 1e-3
"""A right method has a smaller p-value one time in a thousand. By Cauchy and Schwarz a law that is
off by a total variation of 0.25 has one with a probability above 0.99, in 26 degrees of freedom."""


@cache
def looping() -> tuple[int, ...]:
    """A prompt that holds most of what may follow it, so that it is drafted."""
    return tuple(plain(PROMPTS[:1], max_new_tokens=48)[0].tolist())


@cache
def law() -> dict[tuple[int, ...], float]:
    """Probabilities of three tokens: the prefill's, and two that may be drafted."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer = {}
        for tokens, share in found.items():
            with torch.no_grad():
                row = plain_model()(torch.tensor([[*looping(), *tokens]])).logits[0, -1]
            best = row.double().topk(3)
            chances = best.values.softmax(-1).tolist()
            for token, chance in zip(best.indices.tolist(), chances, strict=True):
                longer[*tokens, token] = share * chance
        found = longer
    return found


def against_the_law(method: CustomGenerate) -> tuple[ChiSquare, int]:
    """Samples against the law of three tokens, and how many had accepted drafts among these."""
    sources: list[list[str]] = [[] for _ in range(SAMPLES)]
    torch.manual_seed(0)
    found = ours(
        [looping()],
        method,
        do_sample=True,
        top_k=3,
        num_return_sequences=SAMPLES,
        max_new_tokens=8,  # with fewer there is no room for a draft
        on_tokens=lambda delta: sources[delta.request_id].extend(delta.sources),
    )
    assert found.shape == (SAMPLES, len(looping()) + 8)
    counted = Counter(tuple(row[:3]) for row in found[:, -8:].tolist())
    return chi_square(counted, law()), sum(any(each[:3]) for each in sources)


def test_samples_follow_the_models_distribution() -> None:
    test, accepted = against_the_law(GOOSE)
    assert accepted > SAMPLES / 2
    assert test.degrees > 10
    assert test.p_value > LEAST_P


def test_samples_of_a_wrong_verifier_do_not() -> None:
    """Negative control."""
    wrong = replace(GOOSE, key="wrong", method=replace(GOOSE.method, verifier=Eager()))
    test, accepted = against_the_law(wrong)
    assert accepted > SAMPLES / 2
    assert test.p_value < LEAST_P


def test_statistics_and_events() -> None:
    done: list[list[Completion]] = []
    deltas: list[Delta] = []
    tokens = ours(on_finish=done.append, on_tokens=deltas.append)
    assert len(done) == 1
    width = tokens.shape[1] - 24
    for row, completion in enumerate(done[0]):
        generated = tuple(tokens[row, width:].tolist())
        assert completion.tokens == generated
        assert sum((d.tokens for d in deltas if d.request_id == row), ()) == generated
    assert min(c.tally.mean_acceptance_length for c in done[0]) > 1.5
    ours(method=AR, on_finish=done.append)
    assert {c.tally.mean_acceptance_length for c in done[1]} == {1.0}


def test_the_context_ends_a_sequence(caplog: pytest.LogCaptureFixture) -> None:
    model = repetitive(context=32)
    tokens = run(model, PROMPTS[:1], custom_generate=GOOSE, max_new_tokens=60)
    assert tokens[0].tolist() == ours(PROMPTS[:1], max_new_tokens=27)[0].tolist()
    assert tokens.shape[1] == 32
    assert "end of the model's context" in caplog.text


def test_rows_that_cannot_be_padded_are_refused() -> None:
    model = repetitive(context=24)
    with pytest.raises(DraftwoodError, match="set pad_token_id"):
        run(model, PROMPTS[:2], custom_generate=GOOSE, max_new_tokens=60, pad_token_id=None)


class Refusing(LogitsProcessor):
    """A caller's own, which gives up on rows that begin with a token."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> Any:
        if input_ids.shape[1] > 15 and self.token in input_ids[:, 0]:
            raise LookupError("not this one")
        return scores


@pytest.mark.parametrize("prompts", [PROMPTS[1:2], PROMPTS[:2]])
def test_a_processors_error_is_raised_unchanged(prompts: Sequence[Sequence[int]]) -> None:
    with pytest.raises(LookupError, match="not this one") as caught:
        ours(prompts, logits_processor=LogitsProcessorList([Refusing(PROMPTS[1][0])]))
    notes = getattr(caught.value, "__notes__", [])
    assert ("row 1" in "".join(notes)) == (len(prompts) > 1)
    assert torch.equal(ours(prompts), plain(prompts)), "the model can be used on"


def test_a_row_without_possible_tokens_is_named() -> None:
    ban: dict[str, Any] = {"suppress_tokens": list(range(VOCAB))}
    with pytest.raises(DraftwoodError, match=r"^no token can follow at position 5: "):
        ours(PROMPTS[:1], **ban)
    with pytest.raises(DraftwoodError, match=r"^row 0: no token can follow at position 5: "):
        ours(PROMPTS[:2], **ban)

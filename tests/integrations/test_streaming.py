"""Arguments that ``generate`` withholds work, or are refused before decoding."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, TextStreamer

import draftwood
from draftwood.engine.request import Completion, Delta
from draftwood.errors import DraftwoodError
from draftwood.integrations.transformers import CustomGenerate, custom_generate, generate
from draftwood.integrations.transformers.calling_frame import withheld_from
from draftwood.runner.attached_models import find_attached
from tests.factories.recording_streamer import Recording
from tests.factories.tiny_llama import VOCAB, save_tiny, tiny_llama, tiny_tokenizer

TEXT = "ab ab ab ab"
LETTERS = {"suppress_tokens": [i for i in range(VOCAB) if not 64 <= i < 91]}
SETTINGS: dict[str, Any] = {"max_new_tokens": 16, "eos_token_id": None, "pad_token_id": 0}
HUB = Path(__file__).parents[2] / "hub"


def encoded(*texts: str) -> dict[str, torch.Tensor]:
    found = tiny_tokenizer()(list(texts), return_tensors="pt")
    return {name: found[name] for name in ("input_ids", "attention_mask")}


def goose() -> CustomGenerate:
    return custom_generate("goose", budget=8)


def plainly(**kwargs: Any) -> Any:
    model: Any = tiny_llama()
    return model.generate(**encoded(TEXT), **SETTINGS, **kwargs)


def test_a_streamer_gets_the_tokens_of_generate_through_wrappers_too() -> None:
    model: Any = tiny_llama()
    method = goose()

    def around(*args: Any, **rest: Any) -> Any:
        return method(*args, **rest)

    for eos in (None, int(plainly()[0, -4])):
        theirs, direct, wrapped, function = Recording(), Recording(), Recording(), Recording()
        kwargs = encoded(TEXT) | SETTINGS | {"eos_token_id": eos}
        plain: Any = tiny_llama()
        plain.generate(**kwargs, streamer=theirs)
        model.generate(**kwargs, streamer=direct, custom_generate=method)
        model.generate(**kwargs, streamer=wrapped, custom_generate=around)
        generate(model, kwargs.pop("input_ids")[0], method, streamer=function, **kwargs)
        assert direct.values == wrapped.values == function.values == theirs.values
        assert theirs.values[-1] == "end"
        assert (len(theirs.values) < 18) == (eos is not None)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_a_streamer_through_peft() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")
    model: Any = peft.get_peft_model(tiny_llama(), config).eval()
    theirs, mine = Recording(), Recording()
    model.generate(**encoded(TEXT), **SETTINGS, streamer=theirs)
    model.generate(**encoded(TEXT), **SETTINGS, streamer=mine, custom_generate=goose())
    assert mine.values == theirs.values


def test_a_streamer_is_ended_when_decoding_fails() -> None:
    model: Any = tiny_llama()
    kwargs = encoded(TEXT) | SETTINGS | {"custom_generate": goose()}

    def fail(delta: Delta) -> None:
        raise RuntimeError("enough")

    failed = Recording()
    with pytest.raises(RuntimeError, match="enough"):
        model.generate(**kwargs, streamer=failed, on_tokens=fail)
    refused = Recording()
    with pytest.raises(DraftwoodError, match="num_beams"):
        model.generate(**kwargs, streamer=refused, num_beams=2)
    assert refused.values[1:] == ["end"]
    broken = Recording(fails=3)
    with pytest.raises(RuntimeError, match="the reader has gone"):
        model.generate(**kwargs, streamer=broken)
    assert len(broken.values) == 4
    assert broken.values[-1] == "end"
    good = Recording()
    model.generate(**kwargs, streamer=good)
    assert len(good.values) == 18
    assert failed.values == [*good.values[: len(failed.values) - 1], "end"]


def test_a_streamer_is_ended_once_however_generate_is_called() -> None:
    for kwargs in ({}, {"num_beams": 2}, {"guidance_scale": 2.0}):
        recording = Recording()
        try:
            generate(tiny_llama(), encoded(TEXT), goose(), streamer=recording, **SETTINGS, **kwargs)
        except ValueError:
            assert kwargs
        assert recording.values.count("end") == 1
    recording = Recording()
    with pytest.raises(DraftwoodError, match="no prompt"):
        generate(tiny_llama(), None, goose(), streamer=recording)
    assert recording.values == ["end"]


def test_a_streamer_of_several_rows_is_refused_before_decoding() -> None:
    model: Any = tiny_llama()
    two = encoded(TEXT, TEXT[::-1]) | SETTINGS | {"custom_generate": goose()}
    with pytest.raises(ValueError, match="batch size 1"):
        model.generate(**two, streamer=TextStreamer(tiny_tokenizer()))
    recording = Recording()
    with pytest.raises(DraftwoodError, match="a streamer takes one sequence and there are 2"):
        model.generate(**two, streamer=recording)
    assert recording.values[1:] == ["end"]
    several: dict[str, Any] = {"do_sample": True, "num_return_sequences": 2, "streamer": recording}
    with pytest.raises(DraftwoodError, match="num_return_sequences"):
        generate(model, encoded(TEXT), goose(), **SETTINGS, **several)


def test_an_assistant_and_synced_gpus_are_refused_by_name() -> None:
    model: Any = tiny_llama()
    deltas: list[Delta] = []
    kwargs = encoded(TEXT) | SETTINGS | {"custom_generate": goose(), "on_tokens": deltas.append}
    with pytest.raises(DraftwoodError, match=r"draftwood\.talon\(draft=assistant_model\)"):
        model.generate(**kwargs, assistant_model=tiny_llama(layers=1))
    with pytest.raises(DraftwoodError, match="synced_gpus"):
        model.generate(**kwargs, synced_gpus=True)
    assert not deltas


def test_stop_strings_and_the_tokenizer_work() -> None:
    model: Any = tiny_llama()
    tokenizer = tiny_tokenizer()
    kwargs = encoded(TEXT) | SETTINGS | LETTERS
    text = tokenizer.decode(model.generate(**kwargs)[0, len(TEXT) :])
    stop = {"tokenizer": tokenizer, "stop_strings": [text[7:9]]}
    expected = model.generate(**kwargs, **stop)
    assert expected.shape[1] < len(TEXT) + 16
    assert torch.equal(model.generate(**kwargs, **stop, custom_generate=goose()), expected)
    # transformers' own words where there is no tokenizer.
    with pytest.raises(ValueError, match="tokenizer"):
        model.generate(**kwargs, stop_strings=["a"], custom_generate=goose())


def test_a_tokenizer_gives_events_and_completions_their_text() -> None:
    model: Any = tiny_llama()
    for tokenizer in (tiny_tokenizer(), None):
        deltas: list[Delta] = []
        done: list[Completion] = []
        ids = model.generate(
            **encoded(TEXT),
            **SETTINGS,
            **LETTERS,
            tokenizer=tokenizer,
            custom_generate=goose(),
            on_tokens=deltas.append,
            on_finish=done.extend,
        )
        text = tiny_tokenizer().decode(ids[0, len(TEXT) :]) if tokenizer else ""
        assert [c.text for c in done] == [text]
        assert "".join(piece for d in deltas for piece in d.pieces) == text


def test_called_directly_no_argument_is_withheld() -> None:
    model: Any = tiny_llama()
    found = withheld_from(model)
    assert (found.streamer, found.assistant_model, found.synced_gpus) == (None, None, None)
    recording = Recording()
    inner: list[object] = []

    def another(outer: Any, input_ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        # The frame of another model's generate is none of ours.
        inner.append(withheld_from(model).streamer)
        inner.append(withheld_from(outer).streamer)
        return input_ids

    other: Any = tiny_llama()
    other.generate(**encoded(TEXT), **SETTINGS, streamer=recording, custom_generate=another)
    assert inner == [None, recording]


def test_a_checkpoint_directory_with_a_generate_of_its_own(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    shutil.copytree(HUB / "custom_generate", tmp_path / "custom_generate")
    tokenizer = tiny_tokenizer()
    expected = plainly()
    theirs, named, loaded = Recording(), Recording(), Recording()
    plainly(streamer=theirs)
    kwargs = encoded(TEXT) | SETTINGS
    model: Any = tiny_llama()
    hub = {"custom_generate": str(tmp_path), "trust_remote_code": True}
    assert torch.equal(model.generate(**kwargs, **hub, streamer=named), expected)
    assert find_attached(model) is not None
    own: Any = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert torch.equal(own.generate(**kwargs, streamer=loaded), expected)
    assert theirs.values == named.values == loaded.values
    # A tokenizer, stop strings, another method and a positional prompt reach it as well.
    text = tokenizer.decode(model.generate(**kwargs, **LETTERS)[0, len(TEXT) :])
    stop = LETTERS | {"tokenizer": tokenizer, "stop_strings": [text[7:9]]}
    ended = model.generate(**kwargs, **stop)
    assert torch.equal(own.generate(**kwargs, **stop), ended)
    assert torch.equal(own.generate(**kwargs, custom_generate=draftwood.pld()), expected)
    ids = kwargs.pop("input_ids")
    assert torch.equal(own.generate(ids, **kwargs), expected)
    assert generate(own, ids, **SETTINGS).tolist() == expected.tolist()  # type: ignore[union-attr]

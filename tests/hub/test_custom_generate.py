"""The folder ``hub`` as a repository: ``generate`` finds it, checks it and decodes by it."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from packaging.requirements import Requirement
from transformers import AutoModelForCausalLM, LogitsProcessorList, SuppressTokensLogitsProcessor

import draftwood
from draftwood.errors import DraftwoodError
from draftwood.models import location
from draftwood.runner.attached_models import find_attached
from tests.factories.recording_streamer import Recording
from tests.factories.tiny_llama import VOCAB, save_tiny, tiny_llama, tiny_tokenizer
from tests.test_docs_python import run

HUB = Path(__file__).parents[2] / "hub"
TEXT = "ab ab ab ab"
SETTINGS: dict[str, Any] = {"max_new_tokens": 16, "eos_token_id": None, "pad_token_id": 0}
FOLDER = {"custom_generate": str(HUB), "trust_remote_code": True}
GREEDY: dict[str, Any] = {"do_sample": False}
SAMPLED: dict[str, Any] = {"do_sample": True, "temperature": 0.9, "top_p": 0.9}
LETTERS = [i for i in range(VOCAB) if not 64 <= i < 91]


def encoded(*texts: str) -> dict[str, torch.Tensor]:
    found = tiny_tokenizer()(list(texts), return_tensors="pt")
    return {name: found[name] for name in ("input_ids", "attention_mask")}


def generated(model: Any, **named: Any) -> Any:
    torch.manual_seed(7)
    return model.generate(**(encoded(TEXT) | SETTINGS | named))


def test_greedy_tokens_are_those_of_generate() -> None:
    for kwargs in (
        {},
        {"repetition_penalty": 1.2},
        {"min_new_tokens": 4},
        {"num_return_sequences": 1},
    ):
        expected = generated(tiny_llama(), **GREEDY, **kwargs)
        model = tiny_llama()
        assert torch.equal(generated(model, **GREEDY, **kwargs, **FOLDER), expected)
        assert find_attached(model) is not None, "Draftwood has decoded it"


def test_a_batch_with_padding() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token_id, tokenizer.padding_side = 0, "left"
    inputs = dict(tokenizer([TEXT, "b b"], padding=True, return_tensors="pt"))
    tokenizer.pad_token = None
    named = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    expected = generated(tiny_llama(), **named, **GREEDY)
    assert torch.equal(generated(tiny_llama(), **named, **GREEDY, **FOLDER), expected)


@pytest.mark.parametrize("method", ["auto", "goose:budget=8", "pld", "ar"])
def test_sampled_tokens_follow_from_the_seed_whatever_the_method(method: str) -> None:
    plain = generated(tiny_llama(), **SAMPLED, custom_generate=draftwood.ar())
    found = generated(tiny_llama(), **SAMPLED, **FOLDER, method=method)
    assert torch.equal(found, plain)
    assert not torch.equal(found, generated(tiny_llama(), **GREEDY))


def test_a_method_is_named_or_given_and_reports() -> None:
    expected = generated(tiny_llama(), **GREEDY)
    for method in ("tr:budget=8", "goose:budget=8", draftwood.goose(budget=8)):
        done: list[draftwood.Completion] = []
        model = tiny_llama()
        named = {"method": method, "on_finish": done.extend, "tokenizer": tiny_tokenizer()}
        assert torch.equal(generated(model, **GREEDY, **FOLDER, **named), expected)
        assert [each.tokens for each in done] == [tuple(expected[0, len(TEXT) :].tolist())]
        assert done[0].tally.drafted > 0
        assert done[0].text
    done = []
    generated(tiny_llama(), **GREEDY, **FOLDER, method="ar", on_finish=done.extend)
    assert done[0].tally.drafted == 0, "the method decides"


def test_a_streamer_and_stop_strings() -> None:
    theirs, ours = Recording(), Recording()
    generated(tiny_llama(), **GREEDY, streamer=theirs)
    generated(tiny_llama(), **GREEDY, streamer=ours, **FOLDER)
    assert ours.values == theirs.values
    assert theirs.values[-1] == "end"
    tokenizer = tiny_tokenizer()
    banned = {"suppress_tokens": LETTERS}
    text = tokenizer.decode(generated(tiny_llama(), **GREEDY, **banned)[0, len(TEXT) :])
    stop = {**banned, "tokenizer": tokenizer, "stop_strings": [text[7:9]]}
    expected = generated(tiny_llama(), **GREEDY, **stop)
    assert expected.shape[1] < len(TEXT) + 16
    assert torch.equal(generated(tiny_llama(), **GREEDY, **stop, **FOLDER), expected)


def test_a_callers_own_processor_and_a_dictionary() -> None:
    own = {
        "logits_processor": LogitsProcessorList([SuppressTokensLogitsProcessor(LETTERS)]),
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    expected = generated(tiny_llama(), **GREEDY, **own)
    found = generated(tiny_llama(), **GREEDY, **own, **FOLDER)
    assert torch.equal(found.sequences, expected.sequences)
    assert len(found.scores) == len(expected.scores)


def test_what_is_wrong_is_said_before_decoding() -> None:
    streamer = Recording()
    for named, message in (
        ({"method": "gose"}, "unknown method 'gose': did you mean 'goose'"),
        ({"method": "goose:budget=many"}, "budget='many': expected an integer"),
        ({"method": 3}, "a method is named by text"),
        ({"num_beams": 2}, "num_beams"),
        ({"cache_implementation": "paged"}, "decodes without Draftwood"),
        ({"nonsense": 1}, "nonsense"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            generated(tiny_llama(), **GREEDY, **FOLDER, **named, streamer=streamer)
    assert not any(isinstance(value, list) and len(value) == 1 for value in streamer.values)
    with pytest.raises(ValueError, match="trust_remote_code"):
        generated(tiny_llama(), custom_generate=str(HUB), trust_remote_code=False)


def copied(tmp_path: Path) -> Path:
    """A checkpoint with the folder in it."""
    save_tiny(tmp_path)
    shutil.copytree(HUB / "custom_generate", tmp_path / "custom_generate")
    return tmp_path


def test_a_checkpoint_that_holds_it_names_its_own_method(tmp_path: Path) -> None:
    file = copied(tmp_path) / "custom_generate" / "generate.py"
    file.write_text(file.read_text().replace('METHOD = "auto"', 'METHOD = "goose:budget=3"'))
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True)
    done: list[draftwood.Completion] = []
    expected = generated(tiny_llama(), **GREEDY)
    assert torch.equal(generated(model, **GREEDY, on_finish=done.extend), expected)
    assert 0 < done[0].tally.drafted <= 3 * done[0].tally.steps
    assert torch.equal(generated(model, **GREEDY, method="ar", on_finish=done.extend), expected)
    assert done[1].tally.drafted == 0
    with pytest.raises(DraftwoodError, match="leave one of them out"):
        generated(model, **GREEDY, method="ar", custom_generate=draftwood.pld())


def test_the_requirements_are_those_that_transformers_checks(tmp_path: Path) -> None:
    file = HUB / "custom_generate" / "requirements.txt"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    [found] = map(Requirement, lines)
    assert found.name == "draftwood"
    assert found.specifier.contains(draftwood.__version__)
    assert len(found.specifier) == 1, "transformers reads one comparison a line"
    # A newer one than is installed is refused by name.
    shutil.copytree(HUB, tmp_path / "newer")
    (tmp_path / "newer" / "custom_generate" / "requirements.txt").write_text("draftwood>=99\n")
    with pytest.raises(ImportError, match=r"draftwood>=99 \(installed: "):
        generated(tiny_llama(), custom_generate=str(tmp_path / "newer"), trust_remote_code=True)


def test_the_card_has_the_tag_and_its_code_runs() -> None:
    card = ModelCard((HUB / "README.md").read_text(encoding="utf-8"))
    facts = vars(card.data)
    assert "custom_generate" in facts["tags"]
    assert (facts["library_name"], facts["license"]) == ("transformers", "apache-2.0")
    code = "".join(re.findall(r"^```python\n(.*?)^```$", card.text, re.DOTALL | re.MULTILINE))
    names: dict[str, Any] = {}
    changed = code.replace("USER/draftwood", str(HUB))
    changed = changed.replace("Qwen/Qwen3-0.6B", location("embedded"))
    out = run(changed, names)
    assert out.startswith("The ship left the harbour. The ship")
    assert re.search(r"^[0-9.]+ tokens per call of the model$", out, re.MULTILINE)


def test_the_folder_is_uploaded_as_it_is() -> None:
    files = {path.relative_to(HUB).as_posix() for path in HUB.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert files == {
        "README.md",
        "custom_generate/generate.py",
        "custom_generate/requirements.txt",
    }

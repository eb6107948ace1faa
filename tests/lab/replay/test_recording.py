"""Recordings of a tiny model: ends of answers, refused replays, and the file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from draftwood.errors import DraftwoodError
from draftwood.lab.bench.prompts import Prompt
from draftwood.lab.replay import file
from draftwood.lab.replay.file import digest
from draftwood.lab.replay.recording import PAST_END, MissingRowError, Recording, Text, draft_name
from draftwood.lab.replay.replayer import Replayer
from draftwood.lab.replay.substitute import drafter_name, harvest_accepted, replay_method
from draftwood.lab.replay.target import ReplayTarget
from draftwood.methods import method
from draftwood.protocols import Needs
from draftwood.tree import tree_of
from tests.factories.tiny_llama import save_tiny, tiny_llama
from tests.lab.replay.live_and_replayed import Stage, lived, replayed, stage

PROMPTS = [
    Prompt("a", "t", "s", ("abcabcabcabc",), completion=True),
    Prompt("b", "t", "s", ("xyz", "w"), completion=True),
]


@pytest.fixture(scope="module")
def at(checkpoint: str) -> Stage:
    return stage(checkpoint)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = save_tiny(tmp_path_factory.mktemp("draft"))
    tiny_llama(seed=1, layers=1, context=48).save_pretrained(where)
    return str(where)


def answer(recording: Recording) -> tuple[int, ...]:
    return recording.prompts[0].texts[0].tokens


def test_a_recording_has_a_row_for_every_position_but_the_last(at: Stage) -> None:
    recording = at.record(PROMPTS, max_new_tokens=10, width=4)
    text = recording.prompts[1].texts[1]
    main = text.paths.main
    assert text.rows.keys == list(range(len(main) - 1))
    assert text.rows.tokens.shape == (len(main) - 1, 4)
    # Greedy: the likeliest token of a row is the one that follows.
    first = text.context - 1
    assert text.rows.tokens[first:, 0].tolist() == main[first + 1 :]
    assert recording.prompts[1].seed == 1
    assert len(recording.prompts[1].texts[0].tokens) == 10


@pytest.mark.parametrize("known", [False, True], ids=["given", "the model's own"])
def test_an_answer_is_recorded_past_its_end(
    at: Stage, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = answer(at.record(PROMPTS[:1], max_new_tokens=100))
    end = free[20]
    if known:
        info = replace(at.host.target.info, eos=frozenset({end}))
        monkeypatch.setattr(at.host.target, "info", info)
    recording = at.record(PROMPTS[:1], max_new_tokens=100, eos=(end,))
    text = recording.prompts[0].texts[0]
    assert text.tokens == free[: free.index(end) + 1]
    assert len(text.paths.main) == text.context + text.answer + PAST_END
    assert tuple(text.paths.main[text.context :]) == free[: text.answer + PAST_END]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_beyond_an_end_are_accepted_as_in_a_live_run(at: Stage, temperature: float) -> None:
    free = at.record(PROMPTS, max_new_tokens=60, temperature=temperature)
    ends = {prompt.texts[0].tokens[25] for prompt in free.prompts}
    recording = at.record(PROMPTS, max_new_tokens=60, temperature=temperature, eos=tuple(ends))
    crossed = 0
    for prompt in recording.prompts:
        for spelt in ("pld", "goose"):
            steps, _ = replayed(Replayer(recording, at.host), spelt, prompt)
            assert steps == lived(at, spelt, prompt, recording.settings)
            # Of the last step more may have been accepted than was committed.
            crossed += any(len(step.path) + 1 > step.committed for step in steps)
    assert crossed or temperature


def test_a_draft_model_with_a_short_context_stops_as_in_a_live_run(at: Stage, draft: str) -> None:
    recording = at.record(PROMPTS[:1], max_new_tokens=60)
    spelt = f"sd:draft={draft}"
    prompt = recording.prompts[0]
    wanted = lived(at, spelt, prompt, recording.settings)
    assert wanted[-2].draft_calls == 0  # the context of the draft model has ended
    assert wanted[0].draft_calls > 0
    assert replayed(Replayer(recording, at.host), spelt, prompt)[0] == wanted
    assert replayed(Replayer(recording), spelt, prompt)[0] == wanted


def test_steps_have_the_width_of_each_draft_forward(at: Stage, draft: str) -> None:
    recording = at.record(PROMPTS[:1], max_new_tokens=12)
    spelt = f"fixed-tree:threshold=0:breadth=2:depth=3:budget=14:draft={draft}"
    _, found = replayed(Replayer(recording, at.host), spelt, recording.prompts[0])
    assert found.steps[0].nodes == 14
    assert found.steps[0].levels == {"draft": (1, 2, 4)}


def test_a_wider_query_asks_the_model_again(at: Stage, draft: str) -> None:
    recording = at.record(PROMPTS[:1], max_new_tokens=12)
    prompt = recording.prompts[0]
    narrow = f"fixed-tree:threshold=0:depth=1:breadth=3:budget=3:draft={draft}"
    wide = narrow.replace("breadth=3:budget=3", "breadth=40:budget=40")
    replayed(Replayer(recording, at.host), narrow, prompt)
    with pytest.raises(MissingRowError):
        replayed(Replayer(recording), wide, prompt)
    wanted = lived(at, wide, prompt, recording.settings)
    assert replayed(Replayer(recording, at.host), wide, prompt)[0] == wanted
    assert replayed(Replayer(recording), wide, prompt)[0] == wanted
    assert not replayed(Replayer(recording), narrow, prompt)[1].used_model


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelt", "message"),
    [
        ("auto", "--costs FILE"),
        ("tr", r"the 8 likeliest .* has 6: record again with --top 8"),
    ],
)
def test_what_a_recording_lacks_is_named(at: Stage, spelt: str, message: str) -> None:
    recording = at.record(PROMPTS[:1], max_new_tokens=4, width=6)
    with pytest.raises(DraftwoodError, match=message):
        replayed(Replayer(recording), spelt, recording.prompts[0])


def test_a_loaded_draft_model_is_refused(at: Stage) -> None:
    spec = method("sd", draft=tiny_llama(layers=1)).drafters["draft"]
    with pytest.raises(
        DraftwoodError, match="has a loaded LlamaForCausalLM: give the model by name"
    ):
        drafter_name(spec)


def test_a_name_has_the_number_format_only_if_it_was_given() -> None:
    usual, cast = (method(text).drafters["draft"] for text in ("sd", "sd:draft.dtype=bfloat16"))
    assert "dtype" not in drafter_name(usual)
    assert "dtype='bfloat16'" in drafter_name(cast)


def test_an_unrecorded_context_is_refused(at: Stage) -> None:
    recording = at.record(PROMPTS[:1], max_new_tokens=4)
    target = ReplayTarget(at.facts.info(), recording.prompts[0].by_context(), rejected=True)
    with pytest.raises(DraftwoodError, match="a context of 2 tokens was not recorded"):
        target.prefill([target.open(8)], [[1, 2]], Needs())


def test_other_tokens_than_recorded_are_refused(at: Stage) -> None:
    recording = at.record(PROMPTS[:1], max_new_tokens=6)
    recording.prompts[0].texts[0].answer -= 1
    with pytest.raises(DraftwoodError, match="'ar' generated other tokens than were recorded"):
        replayed(Replayer(recording), "ar", recording.prompts[0])


def test_harvest_accepted_changes_drafters_that_have_the_setting(at: Stage) -> None:
    goose = method("goose")
    assert replay_method(goose, at.facts.info()).reads_rejected
    replayable = replay_method(harvest_accepted(goose), at.facts.info())
    assert not replayable.reads_rejected
    assert replayable.method.drafters["context"] == goose.drafters["context"]
    assert not replay_method(method("talon"), at.facts.info()).reads_rejected


def test_unread_rows_of_rejected_nodes_have_no_tokens(at: Stage) -> None:
    recording = at.record(PROMPTS[:1], max_new_tokens=6)
    text = recording.prompts[0].texts[0]
    wrong = (text.tokens[1] + 1) % at.facts.vocab_size
    tree = tree_of([text.tokens[0], text.tokens[1], wrong], [-1, 0, 0])
    for rejected in (True, False):
        target = ReplayTarget(at.facts.info(), {text.prompt: text}, rejected=rejected)
        slot = target.open(8)
        target.prefill([slot], [text.prompt], Needs())
        if rejected:
            with pytest.raises(MissingRowError, match="no row of the target"):
                target.forward([slot], [tree], Needs(4))
            continue
        (rows,) = target.forward([slot], [tree], Needs(4))
        assert rows.argmax.tolist() == [text.tokens[1], text.tokens[2], at.facts.vocab_size]
        assert rows.top_tokens[0].tolist() == text.rows.tokens[text.context, :4].tolist()
        assert rows.top_tokens[2].tolist() == [-1] * 4
        assert rows.top_probs[2].tolist() == [0.0] * 4
        target.commit([slot], [[1]])
        assert target.length(slot) == text.context + 2


# --- the digest and the file ----------------------------------------------------------------------


def test_digests_of_different_weights_differ() -> None:
    one, same, other = tiny_llama(), tiny_llama(), tiny_llama(seed=3)
    assert digest(one) == digest(same) != digest(other)
    same.lm_head.weight.data *= 1.01
    assert digest(one) != digest(same)


def parts(text: Text) -> list[object]:
    """All that a text holds, in comparable form."""
    tables = [("", text.rows), *text.drafts.items()]
    return [
        *(text.context, text.answer, text.paths.main, text.paths.parents, text.paths.tokens),
        *((name, t.keys, t.asked, t.tokens.tolist(), t.values.tolist()) for name, t in tables),
    ]


@pytest.fixture(scope="module")
def saved(at: Stage, draft: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recording = at.record(PROMPTS, max_new_tokens=12, chat=False)
    replayer = Replayer(recording, at.host)
    replayed(replayer, "tr", recording.prompts[1])
    replayed(replayer, f"sd:draft={draft}", recording.prompts[0])
    path = tmp_path_factory.mktemp("saved") / "r.safetensors"
    file.write(path, recording)
    back = file.read(path)
    for name in ("model", "settings", "rooted"):
        assert getattr(back, name) == getattr(recording, name)
    for one, other in zip(recording.prompts, back.prompts, strict=True):
        for name in ("id", "task", "set", "seed"):
            assert getattr(one, name) == getattr(other, name)
        assert [parts(text) for text in one.texts] == [parts(text) for text in other.texts]
    return path


def test_added_rows_are_written_and_read(saved: Path, draft: str, at: Stage) -> None:
    recording = file.read(saved)
    assert not replayed(Replayer(recording), "tr", recording.prompts[1])[1].used_model
    spelt = f"sd:draft={draft}"
    assert not replayed(Replayer(recording), spelt, recording.prompts[0])[1].used_model
    with pytest.raises(MissingRowError):
        replayed(Replayer(recording), "tr", recording.prompts[0])
    # A recording that was read gains rows as well.
    replayed(Replayer(recording, at.host), "tr", recording.prompts[0])
    assert not replayed(Replayer(recording), "tr", recording.prompts[0])[1].used_model


def test_other_files_are_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tensors")
    arrays = load_file(saved)
    with safe_open(saved, "np") as opened:
        metadata = opened.metadata()
    save_file(arrays, tmp_path / "bare")
    save_file(arrays, tmp_path / "newer", {"draftwood_recording": json.dumps({"version": 2})})
    header = json.loads(metadata["draftwood_recording"])
    for dtype in ("x", "nn"):
        changed = {**header, "model": {**header["model"], "dtype": dtype}}
        save_file(arrays, tmp_path / dtype, {"draftwood_recording": json.dumps(changed)})
    nameless = {**header, "model": 1}
    save_file(arrays, tmp_path / "nameless", {"draftwood_recording": json.dumps(nameless)})
    for name in ("rows.keys", "text.context"):
        save_file({k: v for k, v in arrays.items() if k != name}, tmp_path / name, metadata)
    save_file({**arrays, "main": arrays["main"][:-1]}, tmp_path / "short", metadata)
    for complaint, names in {
        "cannot read the recording": ("none", "text"),
        "is not a version-1 recording": ("bare", "newer"),
        "is damaged": ("rows.keys", "text.context", "short", "nameless"),
        "is damaged .*header.model: there is no dtype 'x'": ("x",),
        "is damaged .*header.model: there is no dtype 'nn'": ("nn",),
    }.items():
        for name in names:
            with pytest.raises(DraftwoodError, match=complaint):
                file.read(tmp_path / name)


def test_a_drafter_has_a_table_per_temperature() -> None:
    assert draft_name("d", 1.0) == "d"
    assert draft_name("d", 0.5) == "d at temperature 0.5"

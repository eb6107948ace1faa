"""A chat on the command line: its turns, its commands, and what it refuses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftwood.cli import chat
from draftwood.engine.session import Session
from draftwood.files import CACHE_VARIABLE
from tests.factories import tiny_gguf
from tests.factories.command_line import refused, run

BRIEF = ("--max-new-tokens", "6")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    tiny_gguf.install(tmp_path / "site", monkeypatch)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Any], dict[str, Any]]]:
    """The chat before each message, and the settings of its answer."""
    found: list[tuple[list[Any], dict[str, Any]]] = []
    stream = Session.stream

    def noted(self: Session, text: str, **settings: Any) -> Any:
        roles = [(each["role"], each["content"]) for each in self.messages]
        found.append(([*roles, ("user", text)], settings))
        return stream(self, text, **settings)

    monkeypatch.setattr(Session, "stream", noted)
    return found


def chatted(typed: str, *argv: str, ends: int = 0) -> tuple[str, str]:
    """Standard output and standard error of a chat, whose exit code is checked."""
    code, out, err = run("chat", "smollm2", *BRIEF, *argv, typed=typed)
    assert code == ends, err
    return out, err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input is typed at a terminal."""
    run = chat.Talk.run

    def typed(self: chat.Talk, lines: Iterator[str]) -> None:
        self.typed = True
        run(self, lines)

    monkeypatch.setattr(chat.Talk, "run", typed)


Asked = list[tuple[list[Any], dict[str, Any]]]


def test_each_line_is_a_message_and_turns_follow_one_another(asked: Asked) -> None:
    out, err = chatted("Once\nAnd then?\n\n", "--system", "Be brief.")
    assert len(asked) == 2, "an empty line is no message"
    assert asked[0][0] == [("system", "Be brief."), ("user", "Once")]
    assert [role for role, _ in asked[1][0]] == ["system", "user", "assistant", "user"]
    assert asked[1][0][-1] == ("user", "And then?")
    assert err.count("tokens per call") == 2
    assert asked[1][0][2][1] in out


def test_a_line_with_a_backslash_goes_on_in_the_next(asked: Asked) -> None:
    chatted("one\\\ntwo\\\nthree\nfour\\\n")
    assert [turns[-1][1] for turns, _ in asked] == ["one\ntwo\nthree", "four"]


def test_the_seed_grows_with_the_turns(asked: Asked) -> None:
    chatted("Once\nAnd\n", "--temperature", "0.8", "--seed", "5", "--top-k", "4")
    assert [settings["sampling"].seed for _, settings in asked] == [5, 6]
    assert {settings["max_new_tokens"] for _, settings in asked} == {6}
    asked.clear()
    chatted("Once\nAnd\n", "--temperature", "0.8", "--seed", str(2**64 - 1))
    assert [settings["sampling"].seed for _, settings in asked] == [2**64 - 1, 0]


def test_new_and_undo_change_the_chat(asked: Asked) -> None:
    chatted("one\n/undo\n/undo\ntwo\nthree\n/undo\nfour\n/new\nfive\n", "--system", "Be brief.")
    lengths = [len(turns) for turns, _ in asked]
    assert lengths == [2, 2, 4, 4, 2]
    assert {turns[0] for turns, _ in asked} == {("system", "Be brief.")}


@pytest.mark.usefixtures("terminal")
def test_commands_are_explained_and_exit_leaves(asked: Asked) -> None:
    out, err = chatted("/helpp\n/stats\nOnce\n/exit\nnever\n")
    assert "there is no command /helpp" in err
    assert "/undo" in err
    assert "tokens per call" not in err
    assert len(asked) == 1
    assert out.strip()


@pytest.mark.parametrize("message", ["/etc/passwd: what is it?", "/new words"])
@pytest.mark.parametrize("fixture", ["asked", "terminal"])
def test_what_only_begins_like_a_command_is_a_message(
    fixture: str, message: str, asked: Asked, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(fixture)
    chatted(f"{message}\n")
    assert [turns[-1][1] for turns, _ in asked] == [message]


def test_a_file_has_messages_that_no_command_is_near_to(asked: Asked) -> None:
    chatted("/tmp\n/exit\nnever\n")
    assert [turns[-1][1] for turns, _ in asked] == ["/tmp"]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the first text of the first answer."""
    shown: list[Any] = []

    def show(delta: Any) -> None:
        shown.append(delta)
        if len(shown) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(chat, "show", show)


@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_ends_a_chat_without_a_terminal(asked: Asked) -> None:
    _, err = chatted("one\ntwo\n", ends=130)
    assert "draftwood: interrupted" in err
    assert len(asked) == 1


@pytest.mark.usefixtures("interrupted", "terminal")
def test_an_answer_that_is_interrupted_is_not_in_the_chat(asked: Asked) -> None:
    _, err = chatted("one\ntwo\n")
    assert "the chat is as it was before" in err
    assert [len(turns) for turns, _ in asked] == [1, 1]


def test_a_message_longer_than_the_context_is_refused_and_the_chat_goes_on(asked: Asked) -> None:
    _, err = chatted(f"{'word ' * 20_000}\nOnce\n", ends=1)
    assert "context" in err
    assert [len(turns) for turns, _ in asked] == [1, 1]
    assert err.count("tokens per call") == 1


def test_bytes_that_are_no_text_are_refused_and_the_chat_goes_on(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the C locale, standard input hands them on as surrogates."""
    monkeypatch.setattr(chat, "_messages", lambda _: iter(["bad\udcff", "Once"]))
    _, err = chatted("", ends=1)
    assert "the message is not valid UTF-8, at character 3" in err
    assert [len(turns) for turns, _ in asked] == [1, 1]
    assert err.count("tokens per call") == 1
    system = ("chat", "smollm2", "--system", "bad\udcff")
    assert "the system message is not valid UTF-8, at character 3" in refused(*system)


def test_a_terminal_is_asked_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[str | type[BaseException]] = iter(["one", KeyboardInterrupt, "two", EOFError])

    def typed(prompt: str) -> str:
        assert prompt == "> "
        found = next(answers)
        if isinstance(found, str):
            return found
        raise found

    monkeypatch.setattr("builtins.input", typed)
    assert list(chat._typed()) == ["one", "two"]


def test_what_cannot_be_chatted_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Callable[..., Any]] = []
    with monkeypatch.context() as patched:
        patched.setattr("draftwood.cli._options.ModelOptions.load", loads.append)
        assert "memory" in refused("chat", "smollm2", "--memory", "much")
    assert not loads, "before a model is loaded"
    bare = SimpleNamespace(name="bare", tokenizer=SimpleNamespace(chat_template=None))
    monkeypatch.setattr("draftwood.cli._options.ModelOptions.load", lambda *_: bare)
    assert "bare has no chat template: name a chat model" in refused("chat", "smollm2")

"""The page, the sources of tokens in answers, and the figures of ``/stats``."""

import json
import re
import subprocess
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from draftwood.server.parsing import AnswerParser, Part
from draftwood.server.routes import page
from tests.factories.running_server import Running, running, tiny_engine

ASK: dict[str, Any] = {"prompt": "abcabcabc", "max_tokens": 40, "temperature": 0}
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "abc abc abc abc"}],
    "max_tokens": 40,
    "temperature": 0,
}
PROMPT = "User: abc abc abc abc\n\nAssistant:"
KEY = {"Authorization": "Bearer secret"}
CHROMIUM = Path("/usr/bin/chromium")
_HOURS = 10 * 3600 * 1000
"""Milliseconds of virtual time, which runs from one request of the page to the next."""


class Silent:
    """A parser that leaves all text out."""

    def feed(self, piece: str) -> list[Part]:
        return []

    def finish(self) -> list[Part]:
        return []


def choices(server: Running, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a stream's chunks."""
    text = server.post(path, body | {"stream": True}).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2]]
    return [choice for event in events for choice in event["choices"]]


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/completions", ASK), ("/v1/chat/completions", CHAT)]
)
def test_the_sources_of_all_tokens(server: Running, path: str, body: dict[str, Any]) -> None:
    found = choices(server, path, body | {"token_sources": True})
    tokens = [token for choice in found for token in choice.get("token_sources", ())]
    assert len(tokens) == 40
    text = "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in found)
    assert "".join(token["text"] for token in tokens) == text != ""
    counted = Counter(token["source"] for token in tokens)
    stats = found[-1]["speculative_decoding_stats"]
    assert counted.pop(None) == 1 + stats["num_spec_steps"], "the prompt's and each step's"
    assert counted == stats["sources"] != {}
    whole = server.post(path, body | {"token_sources": True}).json()["choices"][0]
    assert whole["token_sources"] == tokens
    plainly = choices(server, path, body | {"token_sources": True, "speculate": False})
    own_tokens = [token for choice in plainly for token in choice.get("token_sources", ())]
    assert own_tokens == [{**token, "source": None} for token in tokens]
    assert not any("token_sources" in choice for choice in choices(server, path, body))


def test_tokens_without_text_have_a_source_too() -> None:
    with running(tiny_engine("goose:budget=12")) as server:
        body = ASK | {"prompt": "éééééééé", "max_tokens": 30, "token_sources": True}
        body |= {"logit_bias": {0xC3: 50, 0xA9: 50}, "repetition_penalty": 1.5}
        found = choices(server, "/v1/completions", body)
        tokens = [token for choice in found for token in choice.get("token_sources", ())]
        assert len(tokens) == 30
        assert any(token["text"] == "" for token in tokens)
        assert "".join(token["text"] for token in tokens) == "".join(c["text"] for c in found)


def test_the_text_of_sources_is_not_parsed() -> None:
    def make(_prompt: str, _tools: Any) -> AnswerParser:
        return Silent()

    with running(tiny_engine("goose:budget=12"), parser=make) as server:
        body = CHAT | {"token_sources": True}
        found = choices(server, "/v1/chat/completions", body)
        assert not any(choice["delta"].get("content") for choice in found)
        tokens = [token for choice in found for token in choice.get("token_sources", ())]
        assert len(tokens) == 40
        plain = server.post("/v1/completions", {**ASK, "prompt": PROMPT}).json()
        assert "".join(token["text"] for token in tokens) == plain["choices"][0]["text"]


def test_the_figures_are_the_sums_of_the_answers() -> None:
    with running(tiny_engine("goose:budget=8", max_batch=2)) as server:
        empty = server.get("/stats").json()
        assert empty["model"] == "tiny"
        assert empty["method"] == "goose"
        assert empty["has_chat_template"]
        names = ("request_steps", "committed_tokens", "draft_tokens", "accepted_draft_tokens")
        assert [empty[name] for name in names] == [0, 0, 0, 0]
        answers = server.post("/v1/completions", ASK | {"n": 2}).json()["choices"]
        assert server.idle()
        found = server.get("/stats").json()
        stats = [choice["speculative_decoding_stats"] for choice in answers]
        expected = [
            sum(each["num_spec_steps"] for each in stats),
            78,
            sum(each["num_draft_tokens"] for each in stats),
            sum(each["num_accepted_draft_tokens"] for each in stats),
        ]
        assert [found[name] for name in names] == expected
        assert found["sources"] == dict(sum((Counter(s["sources"]) for s in stats), Counter()))
        assert found["running"] == found["waiting"] == 0
        assert 0 <= found["cache_usage"] <= 1


def test_the_price_of_a_node_is_shown_where_it_is_weighed() -> None:
    for name in ("auto:neural=", "goose"):
        with running(tiny_engine(name)) as server:
            server.post("/v1/completions", ASK)
            assert server.idle()
            price = server.get("/stats").json()["price"]
            page = server.get("/metrics").text
        if name == "goose":
            assert price is None
            assert re.search(r"^draftwood:spec_decode_node_price{.*} NaN$", page, re.MULTILINE)
        else:
            assert 0.0 < price <= 1.0
            shown = re.search(r"^draftwood:spec_decode_node_price{.*} (.*)$", page, re.MULTILINE)
            assert shown is not None
            assert float(shown[1]) == pytest.approx(price)


def test_the_page_needs_no_key_and_what_it_asks_for_does() -> None:
    with running(tiny_engine("ar"), api_keys=("secret",)) as server:
        index = server.get("/")
        assert index.headers["content-type"].startswith("text/html")
        parts = re.findall(r'(?:href|src)="(page/[^"]+)"', index.text)
        assert {"page/main.js", "page/style.css"} <= set(parts)
        for path in ("/", *parts):
            found = server.get(f"/{path.lstrip('/')}")
            assert found.status_code == 200
            policy = found.headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "unsafe" not in policy
            assert found.headers["x-content-type-options"] == "nosniff"
        script = server.get("/page/main.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert server.get("/page/none.js").status_code == 404
        assert server.get("/page/..%2Frun.py").status_code == 404
        assert server.get("/stats").status_code == 401
        assert server.get("/stats", headers=KEY).status_code == 200


def test_the_page_is_whole_and_asks_nobody_else() -> None:
    texts = {name: content.decode() for name, content in page.FILES.items()}
    assert set(texts) >= {"index.html", "style.css", "main.js"}
    html = texts["index.html"]
    for name in ("http:", "https:", "innerHTML", "insertAdjacentHTML", "document.write", "eval("):
        allowed = {"icon.svg"} if name == "http:" else set()
        assert {file for file, text in texts.items() if name in text} <= allowed
    assert not re.search(r"\s(style|on\w+)=", html), "the policy forbids them"
    ids = set(re.findall(r'\bid="([^"]+)"', html))
    asked = {name for text in texts.values() for name in re.findall(r'\bplace\("([^"]+)"\)', text)}
    assert set() < asked <= ids
    imported = {n for text in texts.values() for n in re.findall(r'from "\./([^"]+)"', text)}
    assert set() < imported <= set(texts)


DRIVER = """
const place = (id) => document.getElementById(id);
const until = async (test) => {
  while (!test()) {
    await new Promise((go) => {
      const options = { subtree: true, childList: true, attributes: true, characterData: true };
      new MutationObserver(go).observe(document.body, options);
    });
  }
};
const ask = async (text) => {
  place("prompt").value = text;
  place("ask").requestSubmit();
  await until(() => document.querySelector(".answer:last-child .text").textContent);
};
await until(() => !place("key-form").hidden);
for (const key of ["wrong", "secret"]) {
  place("key").value = key;
  place("key-form").requestSubmit();
  await until(() => place(key === "wrong" ? "problem" : "served").textContent);
}
place("max-tokens").value = 40;
place("compare").checked = true;
await ask("<b>abc</b> <b>abc</b>");
await until(() => document.querySelector(".plain .same, .plain .other"));
place("compare").checked = false;
await until(() => !place("send").disabled);
await ask("abc abc");
await until(() => !place("send").disabled);
place("max-tokens").value = 1500;
await ask("abc");
place("stop").click();
await until(() => !place("send").disabled);
window.setTimeout = () => 0; // without timers, virtual time is over at once
document.body.dataset.done = "yes";
"""


@pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed")
def test_chromium_shows_an_answer_by_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = page.FILES["index.html"].replace(
        b"</head>", b'<script type="module" src="page/driver.js"></script></head>'
    )
    files = {**page.FILES, "index.html": index, "driver.js": DRIVER.encode()}
    monkeypatch.setattr(page, "FILES", files)
    with running(tiny_engine("goose:budget=12"), api_keys=("secret",)) as server:
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={tmp_path}", f"--virtual-time-budget={_HOURS}", "--dump-dom"]
        shown = subprocess.run(
            [*command, server.root], capture_output=True, timeout=90, check=True
        ).stdout.decode()  # its line ends as they are
        assert server.idle(5), "a stopped answer is cancelled"
        conversation: list[dict[str, str]] = []
        said = []
        for text in ("<b>abc</b> <b>abc</b>", "abc abc"):
            conversation.append({"role": "user", "content": text})
            body = CHAT | {"messages": conversation}
            found = server.post("/v1/chat/completions", body, headers=KEY).json()
            said.append(found["choices"][0]["message"]["content"])
            conversation.append({"role": "assistant", "content": said[-1]})
    assert 'data-done="yes"' in shown, shown
    assert "The server does not accept this key." not in shown, "the right one has come"
    assert shown.count("The text is the same.") == 1
    assert '<p class="text">&lt;b&gt;abc' in shown, "text is no markup"
    spans = re.findall(r'<span class="source source-\d" title="(\w+)">', shown)
    assert set(spans) == {"context", "adjacency"}
    answers = re.findall(r'class="message answer"><p class="text">(.*?)</p>', shown, re.DOTALL)
    assert len(answers) == 3, "the last one was stopped"
    assert [unescape(re.sub(r"</?span[^>]*>", "", each)) for each in answers[:2]] == said
    assert re.search(r'<dd id="running">\d', shown)
    assert re.search(r'<li><span class="own">the model\'s own</span> \d+', shown)

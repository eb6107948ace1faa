"""No value of any field makes the server fail: it answers, or refuses."""

from typing import Any

import httpx
import msgspec
import pytest

from draftwood.server.schemas.chat import ChatRequest
from draftwood.server.schemas.completion import CompletionRequest
from tests.factories.running_server import Running

VALUES: list[Any] = [None, True, False, 0, 1, -1, 2**31, 2**63, 2**70, -(2**70), 0.5, -0.5, 1e300]
VALUES += ["", "a", "\0", "é" * 10, [], [1], [-1], [2**40], ["a"], ["a", 1], [[]], [[1]], [{}]]
VALUES += [{}, {"a": 1}, {"1": 1}, {"-1": 1}, {"type": "text"}, {"type": {}}, [{"role": "user"}]]
VALUES += [[{"role": "user", "content": []}], [{"role": "tool", "content": "x"}]]
CASES = (
    (
        "/v1/chat/completions",
        ChatRequest,
        {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 3},
    ),
    ("/v1/completions", CompletionRequest, {"prompt": "abc", "max_tokens": 3}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "kind", "body"), CASES)
def test_every_field_with_many_values(
    server: Running, path: str, kind: type[msgspec.Struct], body: dict[str, Any]
) -> None:
    seen = set()
    with httpx.Client(timeout=30) as client:
        for field in kind.__struct_fields__:
            for value in VALUES:
                found = client.post(server.root + path, json={"stop": ["e"], **body, field: value})
                assert found.status_code in (200, 400, 404), (field, value, found.text)
                assert ('"error"' in found.text) == (found.status_code != 200), (field, value)
                seen.add(found.status_code)
    assert seen == {200, 400, 404}
    assert server.idle()
    assert server.get("/health").status_code == 200

"""What a server says of itself: its models, its name and its version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.client import Client, Failed

OWN = "draftwood"

SWITCHES: Mapping[str, Mapping[str, Any]] = {OWN: {"speculate": False}}
"""Fields that decode one request plainly, by the server's name."""

_VERSIONS = (
    ("/version", "version"),  # vLLM, Draftwood
    ("/get_server_info", "version"),  # SGLang
    ("/props", "build_info"),  # llama.cpp
)


@dataclass(frozen=True)
class Identity:
    """A server as it reports itself.

    Attributes:
        name: who its models are owned by, such as ``"vllm"``, or its ``Server`` header.
        version: empty if it reports none.
        model: name of the model that is asked.
    """

    name: str
    version: str
    model: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip() or "unknown"


def identify(client: Client, model: str | None) -> Identity:
    """Ask a server who it is.

    Args:
        client: of the server.
        model: name of the model; None: the only one that is served.

    Raises:
        DraftwoodError: the server does not answer, or no model was named and it does not list one.
    """
    try:
        response = client.get("/models")
    except Failed as error:
        raise DraftwoodError(f"no server answers: {error}") from error
    if response.status_code in (401, 403):
        raise DraftwoodError(
            f"{client.url} needs another key: give --api-key ({client.said(response)})"
        )
    try:
        if response.status_code != 200:
            raise ValueError(f"status {response.status_code}")
        entries = {str(entry["id"]): entry for entry in response.json()["data"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if model is None:
            raise DraftwoodError(
                f"{client.url}/models is no list of models ({error}): give the base URL of an "
                "OpenAI-compatible API, or the model's name (--served-model)"
            ) from error
        entries = {}
    if model is None:
        model = _only(client, list(entries))
    entry: Mapping[str, Any] = entries.get(model) or next(iter(entries.values()), {})
    owner = entry.get("owned_by")
    name = str(owner or response.headers.get("Server", "")).lower()
    return Identity(name, _version(client), model)


def _only(client: Client, names: Sequence[str]) -> str:
    """The only model of a list.

    Raises:
        DraftwoodError: there are several, or none.
    """
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    what = f"several models ({shown})" if names else "a list without models"
    raise DraftwoodError(f"{client.url} serves {what}: name one with --served-model")


def _version(client: Client) -> str:
    for path, key in _VERSIONS:
        try:
            found = client.get(f"{client.root}{path}").json()[key]
        except (Failed, AttributeError, KeyError, TypeError, ValueError):
            continue
        if isinstance(found, str):
            return found
    return ""

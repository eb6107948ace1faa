"""What the server is told when it starts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from draftwood.errors import DraftwoodError

Names = Literal["draftwood", "vllm"]

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""Sampling parameters whose defaults a model may bring."""

PREFIX_CACHE = "auto"
"""Memory of finished texts by the model: 1 GB, or none with recurrent layers."""


_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")
_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class ServeSettings:
    """Settings of a server.

    Attributes:
        names: that clients call the model by; the first one is reported.
        root: what the model was loaded from.
        context: most tokens of a prompt and its answer.
        max_body: most bytes of a request's body.
        headers_within: seconds in which a client must send a request's headers.
        body_within: seconds in which it must send the body then.
        api_keys: one of them is asked for, if there are any.
        allowed_origins: whose pages may ask from a browser; ``"*"``: all pages.
        metrics_names: what the names of metrics begin with.
        sampling: of requests that leave it out, by field.
        max_tokens: default of chats; None: what the context holds.
    """

    names: tuple[str, ...]
    root: str
    context: int
    max_body: int = 8 << 20
    headers_within: float = 30.0
    body_within: float = 120.0
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    metrics_names: Names = "draftwood"
    sampling: Mapping[str, float] = field(default_factory=dict)
    max_tokens: int | None = None


def checked_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """API keys without the white space around them, such as the end of a line of their file.

    Raises:
        DraftwoodError: one is empty, or has characters that a header cannot carry.
    """
    found = tuple(key.strip() for key in _listed("api_keys", keys))
    if not all(map(_KEY.fullmatch, found)):
        raise DraftwoodError(
            "an API key is empty, or has a space or a character beyond ASCII in it: clients could "
            "not send it. Give another one (--api-key, DRAFTWOOD_API_KEY)"
        )
    return found


def checked_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """Origins of pages, as browsers send them.

    Raises:
        DraftwoodError: one is none.
    """
    found = tuple(_listed("allowed_origins", origins))
    for each in found:
        if not _ORIGIN.fullmatch(each):
            raise DraftwoodError(
                f"{each!r} is no origin: give a scheme, a host and perhaps a port, such as "
                "https://chat.example or http://localhost:3000, or '*' for all pages"
            )
    return found


def _listed(name: str, given: Iterable[str]) -> Iterable[str]:
    if isinstance(given, str):
        raise DraftwoodError(f"{name} is a text: give a list of texts")
    return given


def model_defaults(generation_config: Any) -> tuple[dict[str, float], int | None]:
    """Sampling parameters and the limit of new tokens that a model's generation config names."""
    given: dict[str, Any] = {} if generation_config is None else generation_config.to_diff_dict()
    sampling = {name: given[name] for name in SAMPLING if given.get(name) is not None}
    return sampling, given.get("max_new_tokens")

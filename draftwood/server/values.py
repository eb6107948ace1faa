"""Fields of which the server supports some values only: any other one is refused by name."""

from collections.abc import Mapping
from typing import Annotated, Any, get_origin, get_type_hints

import msgspec

from draftwood.server.errors import ApiError, bad_request
from draftwood.server.schemas.fields import SamplingFields

_MOST_CHOICES = 128
"""Most choices of a prompt, as in OpenAI's API."""

SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "service_tier": ("auto", "default"),
    "continue_final_message": (False,),
    "functions": (),
    "function_call": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "suffix": (),
    "prompt_logprobs": (),
}
"""Values that are supported beside null; the fields' descriptions say why."""


def check_values(body: SamplingFields) -> None:
    """Refuse what is known and cannot be honoured.

    Raises:
        ApiError: a field has such a value.
    """
    for name, values in SUPPORTED.items():
        found = getattr(body, name, None)
        if found is not None and found not in values:
            raise _refused(body, name, found)
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options needs stream: true", "stream_options")
    if not 1 <= body.value("n", 1) <= _MOST_CHOICES:
        raise bad_request(f"n is {body.n}: ask for 1 to {_MOST_CHOICES}", "n")


def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the server does with each field of a struct."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: next(each.description for each in hint.__metadata__)
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
    }


def _refused(body: msgspec.Struct, name: str, found: Any) -> ApiError:
    shown = msgspec.json.encode(found).decode()
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return ApiError(
        400,
        f"{name} cannot be {shown} ({descriptions(type(body))[name]})",
        param=name,
        code="unsupported",
    )

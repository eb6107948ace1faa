"""``response_format``: which forms of an answer a request may ask for."""

from draftwood.server.errors import refused
from draftwood.server.schemas.fields import SamplingFields


def refuse_structured(body: SamplingFields) -> None:
    """Refuse all forms but text.

    Raises:
        ApiError: another one is asked for.
    """
    form = body.response_format
    kind = form.get("type") if isinstance(form, dict) else form
    if kind not in (None, "text"):
        raise refused("response_format", f"{kind!r}; the server writes text")

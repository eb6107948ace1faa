"""What ``/stats`` returns."""

from typing import Annotated

import msgspec
from msgspec import Meta


class Stats(msgspec.Struct, kw_only=True):
    """Figures of the server now, and sums over the steps of all requests so far."""

    model: Annotated[str, Meta(description="the first served name")]
    method: Annotated[str, Meta(description="what decodes")]
    has_chat_template: Annotated[bool, Meta(description="whether the server answers chats")]
    running: Annotated[int, Meta(description="requests that are decoded")]
    waiting: Annotated[int, Meta(description="requests that wait to be decoded")]
    cache_usage: Annotated[
        float, Meta(description="share of the memory of keys and values in use, 0 to 1")
    ]
    price: Annotated[
        float | None,
        Meta(
            description="a token is drafted if its expected gain, in accepted tokens, is at least "
            "this; null: the method does not weigh costs"
        ),
    ]
    prefix_queries: Annotated[int, Meta(description="prompt tokens of choices with a first token")]
    prefix_hits: Annotated[
        int,
        Meta(description="those of them that were copied from other texts or choices"),
    ]
    prefix_bytes: Annotated[
        int, Meta(description="bytes of the finished texts whose keys and values are kept")
    ]
    request_steps: Annotated[
        int, Meta(description="steps after the prompt; one of a batch counts for each request")
    ]
    committed_tokens: Annotated[int, Meta(description="tokens that these steps committed")]
    draft_tokens: Annotated[int, Meta(description="drafted tokens, those of all branches")]
    accepted_draft_tokens: Annotated[int, Meta(description="accepted drafted tokens")]
    sources: Annotated[
        dict[str, int], Meta(description="accepted drafted tokens by the source that drafted them")
    ]

"""A request as a command that repeats it."""

import json
import shlex

from draftwood.lab.endpoint.result import Asked

KEY_VARIABLE = "OPENAI_API_KEY"


def curl(asked: Asked) -> str:
    """The command, with the key's variable in the place of a key."""
    key = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if asked.has_key else ""
    body = shlex.quote(json.dumps(dict(asked.body), ensure_ascii=False))
    return f"curl {shlex.quote(asked.url)} -H 'Content-Type: application/json'{key} -d {body}"

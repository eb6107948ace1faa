"""Whether the endpoint drafted during a run, and the reference did not.

Answers of some servers report their drafted tokens. Others count them among their metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from draftwood.lab.endpoint.client import Client, Failed
from draftwood.lab.endpoint.comparison import Side
from draftwood.lab.endpoint.result import Result
from draftwood.lab.endpoint.server import Server

NAME = "speculation"

_DRAFTED = "spec_decode_num_draft_tokens_total"
_ACCEPTED = "spec_decode_num_accepted_tokens_total"
"""Ends of the names of counters, as vLLM and Draftwood have them."""


@dataclass(frozen=True)
class Counters:
    """Counters of a server's metrics; None: it has none."""

    drafted: float | None = None
    accepted: float | None = None


def counters(client: Client) -> Counters:
    """The counters now."""
    try:
        response = client.get(f"{client.root}/metrics")
    except Failed:
        return Counters()
    found = _sums(response.text) if response.status_code == 200 else {}
    return Counters(found.get(_DRAFTED), found.get(_ACCEPTED))


def _sums(page: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for line in page.splitlines():
        name, _, rest = line.partition("{")
        value = (rest.rpartition("}")[2] if rest else line).split()[-1:]
        name = name.split()[0] if name.split() else ""
        for end in (_DRAFTED, _ACCEPTED):
            if name.endswith(end) and value:
                try:
                    found[end] = found.get(end, 0.0) + float(value[0])
                except ValueError:
                    continue
    return found


def drafting(endpoint: Server, reference: Side, before: Counters, after: Counters) -> Result:
    """What is known of both sides' drafts; undecided if the reference drafted as well."""
    plain = reference.drafts if isinstance(reference, Server) else None
    if plain is not None and plain.drafted:
        text = (
            f"the reference drafted {plain.drafted} tokens, so that it is no reference: give "
            "another switch (--plain-body) or another server (--reference)"
        )
        return Result(NAME, "", "undecided", text)
    mine = endpoint.drafts
    if mine.reported:
        accepted, drafted, origin = mine.accepted, mine.drafted, "as the answers say"
    elif None not in (before.accepted, after.accepted):
        accepted = int((after.accepted or 0) - (before.accepted or 0))
        drafted = int((after.drafted or 0) - (before.drafted or 0))
        origin = "as the server's metrics say"
    else:
        return Result(NAME, "", "note", "the server does not say whether it drafted")
    figures = {"drafted": float(drafted), "accepted": float(accepted)}
    if not accepted:
        text = f"no drafted token was accepted ({origin}), so that equal answers show little"
        return Result(NAME, "", "note", text, figures=figures)
    text = f"{accepted} of {drafted} drafted tokens were accepted, {origin}"
    return Result(NAME, "", "passed", text, figures=figures)

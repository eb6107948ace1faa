"""A run of all checks: connects to both sides, and collects results."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import draftwood
from draftwood.errors import DraftwoodError
from draftwood.lab.endpoint.checks import CHECKS
from draftwood.lab.endpoint.checks._common import Cost, Size, unfinished
from draftwood.lab.endpoint.client import Client, Failed, Limit, Refused, Stopped
from draftwood.lab.endpoint.comparison import Comparison, Settings, Side
from draftwood.lab.endpoint.identity import SWITCHES, Identity, identify
from draftwood.lab.endpoint.plan import checked_plan
from draftwood.lab.endpoint.prompts import Prompt
from draftwood.lab.endpoint.result import Result
from draftwood.lab.endpoint.server import CHAT, Server
from draftwood.lab.endpoint.speculation import counters, drafting

if TYPE_CHECKING:
    from draftwood.lab.endpoint.local import LocalModel


@dataclass(frozen=True)
class Target:
    """A server, and how it is reached.

    Attributes:
        url: base URL of its API.
        key: if it needs one.
        model: name of the model; None: the only one that it serves.
    """

    url: str
    key: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What is checked, and how.

    Attributes:
        endpoint: the server that speculates.
        reference: another server; None: the same, or a local model.
        plain: fields of the reference's requests; None: those that are known of the server.
        api: ``"completions"``, ``"chat"`` or ``"auto"``.
        prompts: for greedy answers.
        settings: of the checks.
        timeout: most seconds for a request.
        most: most requests.
    """

    endpoint: Target
    reference: Target | None
    plain: Mapping[str, Any] | None
    api: str
    prompts: Sequence[Prompt]
    settings: Settings
    timeout: float
    most: int


@dataclass
class Report:
    """What a run found.

    Attributes:
        endpoint: the server as it reports itself.
        url: of the endpoint.
        reference: what it was compared with, in words.
        settings: of the run.
        prompts: names of the prompts.
        planned: most requests and tokens.
        date: of the begin, UTC.
        sent: requests that were sent, retries included.
        results: in the order of the checks.
    """

    endpoint: Identity
    url: str
    reference: str
    settings: Settings
    prompts: tuple[str, ...]
    planned: Cost
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = draftwood.__version__
    sent: int = 0
    results: list[Result] = field(default_factory=list)


def run(
    wanted: Wanted,
    local: "LocalModel | None" = None,
    planned: Callable[[Cost], None] | None = None,
    found: Callable[[Result], None] | None = None,
) -> Report:
    """Check a server.

    Args:
        wanted: what is checked.
        local: the reference, if it is a local model.
        planned: called with the plan, before any token is asked for.
        found: called with each result.

    Raises:
        DraftwoodError: a server cannot be used or breaks down over the first requests, there is no
            reference, or more requests would be sent than are allowed.
    """
    limit = Limit(wanted.most)
    size = Size(len(wanted.prompts), wanted.settings.samples, 1 if local is not None else 2)
    cost = checked_plan(size, wanted.most)
    with ExitStack() as stack:
        client = _client(stack, wanted.endpoint, wanted.timeout, limit)
        identity = identify(client, wanted.endpoint.model)
        plain = _plain(wanted, identity, local)
        second = None
        if wanted.reference is not None:
            second = _client(stack, wanted.reference, wanted.timeout, limit)
            other = identify(second, wanted.reference.model)
        if planned is not None:
            planned(cost)
        endpoint = Server(client, identity.model, wanted.api)
        reference: Side
        if local is not None:
            reference, words = local, f"the local model {local.name} ({local.dtype}), plain"
        elif second is not None:
            reference = Server(second, other.model, wanted.api, plain)
            words = f"{other} at {second.url}, model {other.model}"
        else:
            reference = Server(client, identity.model, wanted.api, plain)
            words = f"the same server with {json.dumps(dict(plain))}"
        try:
            comparison = _comparison(wanted, endpoint, reference)
        except Failed as failure:
            raise DraftwoodError(f"the first requests failed: {failure}") from failure
        names = tuple(each.name for each in comparison.prompts)
        report = Report(identity, client.url, words, wanted.settings, names, cost)
        for result in _results(comparison, client):
            report.results.append(result)
            if found is not None:
                found(result)
        report.sent = limit.sent
    return report


def _results(comparison: Comparison, client: Client) -> Iterator[Result]:
    before = counters(client)
    for check in CHECKS:
        try:
            yield from check.run(comparison)
        except (Failed, Stopped) as reason:
            yield unfinished(check.name, "", reason)
        except (DraftwoodError, Refused) as error:
            yield Result(check.name, "", "not checked", str(error))
    yield drafting(comparison.endpoint, comparison.reference, before, counters(client))


def _client(stack: ExitStack, target: Target, timeout: float, limit: Limit) -> Client:
    client = Client(target.url, target.key, timeout, limit)
    stack.callback(client.close)
    return client


def _plain(wanted: Wanted, identity: Identity, local: "LocalModel | None") -> Mapping[str, Any]:
    """The fields that turn speculation off in the reference's requests."""
    if wanted.plain is not None:
        return wanted.plain
    if wanted.reference is not None or local is not None:
        return {}
    known = SWITCHES.get(identity.name)
    if known is None:
        raise DraftwoodError(
            f"no reference: {identity} has no known switch that turns speculation off for one "
            "request. Give the URL of a server without speculation (--reference URL), a local "
            "model (--reference-model NAME), or the server's own switch (--plain-body JSON)"
        )
    return known


def _comparison(wanted: Wanted, endpoint: Server, reference: Side) -> Comparison:
    """Both sides, with prompts that are asked in the same way of both."""
    paths = endpoint.abilities.paths

    def as_asked(prompt: Prompt) -> Prompt:
        return replace(prompt, chat=endpoint.path_of(prompt) == CHAT)

    prompts = [as_asked(prompt) for prompt in wanted.prompts]
    settings = replace(wanted.settings, sampled_prompt=as_asked(wanted.settings.sampled_prompt))
    if isinstance(reference, Server):
        for prompt in (*prompts, settings.sampled_prompt):
            path = endpoint.path_of(prompt)
            if path not in reference.abilities.paths:
                raise DraftwoodError(
                    f"the reference has no {path}, where {prompt.name!r} is asked: give --api "
                    f"{'chat' if paths[0] != CHAT else 'completions'}, or other prompts"
                )
    return Comparison(endpoint, reference, prompts, settings)

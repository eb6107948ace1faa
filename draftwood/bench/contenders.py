"""Which contenders a run has: our methods on one attached target, peers on an untouched one.

Knows nothing of prompts and clocks. Names and settings are checked before a model is loaded.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

from draftwood.bench import peers
from draftwood.bench.measure import Answer, Contender, Decode
from draftwood.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.hosting import TargetHost
from draftwood.hosts import Host
from draftwood.methods import method, recipe
from draftwood.models import Loaded
from draftwood.protocols import Target
from draftwood.recipes import Method
from draftwood.requests import Completion, Finished, Request, Stepped
from draftwood.settings import parse
from draftwood.settings import settings as fields_of
from draftwood.stats import StepStats
from draftwood.target.attach import attach
from draftwood.tree import Draw

REFERENCE = "ar"
"""Plain decoding through our engine: every run has it, and speed and tokens are held against it."""


class Stage:
    """The model twice: attached for our methods and, once somebody asks, untouched for peers.

    Two instances of the same weights, so that repacking for trees can neither slow nor speed a
    peer: it decodes on what a user of the plain library has.
    """

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._load = load
        self.loaded = load()
        self._parameters = sum(p.numel() for p in self.loaded.model.parameters())
        self.target: Target = attach(self.loaded.model)
        self.host = TargetHost(self.target, self.loaded.tokenizer)

    @cached_property
    def stock(self) -> Loaded:
        """A second instance that is never attached."""
        return self._load()

    def facts(self) -> dict[str, object]:
        """The model's name, revision, class, parameters (tied ones once), dtype and device."""
        model = self.loaded.model
        return {
            "name": self.loaded.name,
            "revision": getattr(model.config, "_commit_hash", None),
            "class": type(model).__name__,
            "parameters": self._parameters,
            "dtype": str(self.target.info.dtype).removeprefix("torch."),
            "device": str(self.target.info.device),
            "context_limit": self.target.info.context_limit,
        }


class Choice(Protocol):
    """A contender whose settings are decided."""

    @property
    def name(self) -> str:
        """As the user spelt it."""
        ...

    @property
    def samples_alike(self) -> bool:
        """Whether it draws the same tokens as the reference for the same seed."""
        ...

    @property
    def settings(self) -> dict[str, object]:
        """Every setting with its value."""
        ...

    def enter(self, stage: Stage) -> Contender:
        """The contender on this model."""
        ...


@dataclass(frozen=True)
class OwnChoice:
    """One of our methods."""

    name: str
    method: Method

    @property
    def samples_alike(self) -> bool:
        """Where nothing is sampled but the target's own tokens."""
        return self.method.policy.draws == {Draw.ONE_HOT}

    @property
    def settings(self) -> dict[str, object]:
        """The policy's, its budget first, the drafters' as ``source.field``, and the verifier."""
        parts = {"": self.method.policy}
        found: dict[str, object] = {"budget": self.method.policy.budget}
        for prefix, part in (*parts.items(), *self.method.drafters.items()):
            for setting in fields_of(type(part)):
                key = f"{prefix}.{setting.name}" if prefix else setting.name
                found[key] = getattr(part, setting.name)
        return {**found, "verifier": type(self.method.verifier).__name__}

    def enter(self, stage: Stage) -> Contender:
        """Our engine on the stage's attached target."""
        return OwnContender(stage.target, self.method, stage.host)


@dataclass(frozen=True)
class PeerChoice:
    """Another library's way of decoding."""

    name: str
    peer: peers.Peer
    samples_alike: bool = False

    @property
    def settings(self) -> dict[str, object]:
        """The fields of the peer."""
        return {s.name: getattr(self.peer, s.name) for s in fields_of(type(self.peer))}

    def enter(self, stage: Stage) -> Contender:
        """The peer on the stage's untouched model."""
        return self.peer.enter(stage.stock)


@dataclass(frozen=True)
class OwnContender:
    """A method on a target; every group gets an engine of its own, its drafters empty."""

    target: Target
    method: Method
    host: Host

    def begin(self, batch: int) -> Decode:
        """An engine without a tokenizer: peers return token ids as well."""
        engine = Engine(self.target, self.method, max_batch=batch, host=self.host)
        return partial(decode_with, engine)


def decode_with(engine: Engine, requests: Sequence[Request]) -> list[Answer]:
    """The engine's answers, in the order of the requests, each with its steps."""
    steps: dict[int, list[StepStats]] = {}
    done: dict[int, Completion] = {}
    for event in engine.stream(requests):
        if isinstance(event, Stepped):
            steps.setdefault(event.request_id, []).append(event.stats)
        elif isinstance(event, Finished):
            done[event.request_id] = event.completion
    return [Answer(done[n], tuple(steps.get(n, ()))) for n in sorted(done)]


def choose(specs: Sequence[str], budget: int | None = None) -> list[Choice]:
    """The contenders named, the reference first; it is added if it is missing.

    Args:
        specs: ``draftwood.methods.method`` strings, or names of peers with settings spelt alike.
        budget: for every contender that has one and whose text does not set it.

    Raises:
        DraftwoodError: a name or a setting is unknown, or a contender is named twice.
    """
    names = [spec.strip() for spec in specs if spec.strip()]
    for name in names:
        if names.count(name) > 1:
            raise DraftwoodError(f"method {name!r} is named twice: leave one out")
    ordered = [REFERENCE, *(name for name in names if name != REFERENCE)]
    return [_choice(name, budget) for name in ordered]


def unnamed_peers(choices: Sequence[Choice]) -> list[str]:
    """Sorted names of the peers that none of the choices is, whatever its settings."""
    named = {choice.name.partition(":")[0] for choice in choices}
    return [name for name in peers.names() if name not in named]


def default_peer(name: str) -> Choice:
    """A peer with the settings it comes with.

    Raises:
        DraftwoodError: what it needs is not installed.
    """
    return PeerChoice(name, _peer(name, ()))


def _choice(text: str, budget: int | None) -> Choice:
    name, *spelt = text.split(":")
    keys = {item.partition("=")[0] for item in spelt}
    if name in peers.names():
        return PeerChoice(text, _peer(name, spelt))
    open_budget = budget is not None and "budget" not in keys
    if open_budget and "budget" in recipe(name).settings():
        return OwnChoice(text, method(f"{text}:budget={budget}"))
    return OwnChoice(text, method(text))


def _peer(name: str, spelt: Sequence[str]) -> peers.Peer:
    part = peers.load(name)
    known = {setting.name: setting for setting in fields_of(part)}
    values: dict[str, object] = {}
    for item in spelt:
        key, equals, value = item.partition("=")
        if not equals or key not in known:
            has = f"one of {', '.join(known)}" if known else "none: it has no settings"
            raise DraftwoodError(f"peer {name!r} has no setting {item!r}: write {has}")
        values[key] = parse(known[key], value)
    made: peers.Peer = part(**values)
    return made


def plain(value: object) -> object:
    """A setting's value as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

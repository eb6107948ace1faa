"""Contenders of a run: methods on an attached target, peers on an untouched model.

Names and settings are checked before a model is loaded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TypeAlias

from draftwood.costs.cache import digest
from draftwood.engine.engine import Engine
from draftwood.engine.host import ModelHost
from draftwood.engine.request import Completion, Finished, Request, Stepped
from draftwood.engine.stats import StepStats
from draftwood.errors import DraftwoodError
from draftwood.files import encode
from draftwood.lab.bench import peers
from draftwood.lab.bench.defaults import Defaults
from draftwood.lab.bench.document import REFERENCE
from draftwood.lab.bench.measure import Answer, Contender, Decode
from draftwood.methods import method
from draftwood.methods.equip import Equipped, equipped
from draftwood.methods.recipe import Method
from draftwood.methods.settings import parse
from draftwood.models import Loaded
from draftwood.models.quantising import is_quantised
from draftwood.protocols import Fingerprint, Host, Target
from draftwood.protocols.settings import settings as fields_of
from draftwood.runner.attach import attach


class Stage:
    """The model, attached for methods, and a second, untouched instance for peers.

    Peers decode with the weights in the layout that users of their library have. Several runs can
    have one stage: what drafters load is kept for the next one.

    Args:
        load: loads an instance of the model.
        computes_as: fingerprint of a model that has the same output and other weights. Methods take
            the table and the calibration that are shipped for it; its head would not fit.
    """

    def __init__(self, load: Callable[[], Loaded], computes_as: Fingerprint | None = None) -> None:
        self._load = load
        self._computes_as = computes_as
        self.loaded = load()
        self._parameters = sum(p.numel() for p in self.loaded.model.parameters())
        self.target: Target = attach(self.loaded.model)
        self.host = ModelHost(self.target, self.loaded.tokenizer)

    @cached_property
    def stock(self) -> Loaded:
        """A second instance that is never attached."""
        return self._load()

    def equipped(self, own: Method) -> Equipped:
        """A method with the settings that it takes from what is shipped for the model."""
        same = self._computes_as
        fingerprint = same or self.host.info.fingerprint
        without = () if same is None else ("head",)
        return equipped(own, fingerprint, lambda: self.host.vocabulary, without)

    def facts(self) -> dict[str, object]:
        """What is recorded of the model.

        Parameters count tied ones once; ``weights`` is a digest of the fingerprint; ``kernels`` is
        the version of the compiled kernels, "" without.
        """
        model, info = self.loaded.model, self.target.info
        dtype = str(info.dtype).removeprefix("torch.")
        return {
            "name": self.loaded.name,
            "revision": getattr(model.config, "_commit_hash", None),
            "class": type(model).__name__,
            "parameters": self._parameters,
            "dtype": f"int8 with {dtype}" if is_quantised(model) else dtype,
            "device": str(info.device),
            "context_limit": info.context_limit,
            "weights": digest(encode(info.fingerprint)) if info.fingerprint else None,
            "kernels": info.kernels,
        }


@dataclass(frozen=True)
class OwnChoice:
    """A Draftwood method; ``note`` is a line about the shipped parts that it uses."""

    name: str
    method: Method
    note: str = ""

    def same_tokens(self, temperature: float) -> bool:
        """See :meth:`draftwood.methods.recipe.Method.same_tokens`."""
        return self.method.same_tokens(temperature)

    @property
    def settings(self) -> dict[str, object]:
        """Settings of policy (budget first), drafters and verifier, spelt as in a method's name."""
        own = self.method
        found: dict[str, object] = {"budget": own.policy.budget}
        for prefix, part in {"": own.policy, **own.drafters}.items():
            for setting in fields_of(type(part)):
                key = setting.flag or f"{prefix}.{setting.name}".lstrip(".")
                found[key] = getattr(part, setting.name)
        return {**found, "verifier": type(own.verifier).__name__}

    def equipped(self, stage: Stage) -> "OwnChoice":
        """The same with the settings that the method takes from what is shipped for the model."""
        found = stage.equipped(self.method)
        return replace(self, method=found.method, note=found.note)

    def enter(self, stage: Stage) -> Contender:
        """An engine on the attached target."""
        return OwnContender(stage.target, self.method, stage.host)


@dataclass(frozen=True)
class PeerChoice:
    """A method of another library."""

    name: str
    peer: peers.Peer

    def same_tokens(self, temperature: float) -> bool:
        """Only for greedy decoding by the model's weights: other random numbers are their own."""
        return temperature == 0 and getattr(self.peer, "weights", "model") == "model"

    @property
    def settings(self) -> dict[str, object]:
        """The fields of the peer."""
        return {s.name: getattr(self.peer, s.name) for s in fields_of(type(self.peer))}

    def enter(self, stage: Stage) -> Contender:
        """The peer on the untouched model."""
        return self.peer.enter(stage.stock)


Choice: TypeAlias = OwnChoice | PeerChoice
"""A contender whose settings are decided."""


@dataclass(frozen=True)
class OwnContender:
    """A method on a target; every group gets a new engine with empty drafters."""

    target: Target
    method: Method
    host: Host

    def begin(self, batch: int) -> Decode:
        """An engine without a tokenizer: peers return token ids as well."""
        engine = Engine(self.target, self.method, max_batch=batch, host=self.host)
        return partial(decode_with, engine)


class WarmContender:
    """A contender that keeps its drafters' state from group to group.

    Args:
        contender: begins on first use.
        batch: size of the largest group.
    """

    def __init__(self, contender: Contender, batch: int) -> None:
        self._begun = cache(partial(contender.begin, batch))

    def begin(self, batch: int) -> Decode:  # noqa: ARG002
        """The decoder of the first call."""
        return self._begun()


def decode_with(engine: Engine, requests: Sequence[Request]) -> list[Answer]:
    """Decode requests; answers are in the order of the requests, with their steps."""
    steps: dict[int, list[StepStats]] = {}
    done: dict[int, Completion] = {}
    for event in engine.stream(requests):
        if isinstance(event, Stepped):
            steps.setdefault(event.request_id, []).append(event.stats)
        elif isinstance(event, Finished):
            done[event.request_id] = event.completion
    return [Answer(done[n], tuple(steps.get(n, ()))) for n in sorted(done)]


def choose(specs: Sequence[str], defaults: Defaults | None = None) -> list[Choice]:
    """The named contenders, with the reference first.

    Args:
        specs: ``draftwood.methods.method`` strings, or names of peers with settings alike.
        defaults: settings for contenders that have them and do not give them themselves.

    Raises:
        DraftwoodError: a name or a setting is unknown, or a contender is named twice.
    """
    names = [spec.strip() for spec in specs]
    for name in names:
        if not name:
            raise DraftwoodError(
                "--methods has an empty item: write names with single commas, such as ar,goose"
            )
        if names.count(name) > 1:
            raise DraftwoodError(f"method {name!r} is named twice: leave one out")
    ordered = [REFERENCE, *(name for name in names if name != REFERENCE)]
    return [chosen(name, defaults) for name in ordered]


def chosen(text: str, defaults: Defaults | None = None) -> Choice:
    """A contender by name and settings, such as ``goose:budget=16`` or ``hf-lookup``.

    Raises:
        DraftwoodError: a name or a setting is unknown, or a peer's library is not installed.
    """
    given = (defaults or Defaults()).of(text)
    name, *spelt = text.split(":")
    if name in peers.names():
        return PeerChoice(text, _peer(name, spelt, given))
    return OwnChoice(text, method(text, **{k.replace(".", "__"): v for k, v in given.items()}))


def unnamed_peers(names: Iterable[str]) -> list[str]:
    """Sorted names of the peers that are not among these contenders, with any settings."""
    return sorted(set(peers.names()) - {name.partition(":")[0] for name in names})


def _peer(name: str, spelt: Sequence[str], given: Mapping[str, object]) -> peers.Peer:
    part = peers.load(name)
    known = {setting.name: setting for setting in fields_of(part)}
    values: dict[str, object] = dict(given)
    for item in spelt:
        key, equals, value = item.partition("=")
        if not equals or key not in known:
            has = f"one of {', '.join(known)}" if known else "none: it has no settings"
            raise DraftwoodError(f"peer {name!r} has no setting {item!r}: write {has}")
        values[key] = parse(known[key], value)
    made: peers.Peer = part(**values)
    return made

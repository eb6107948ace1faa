"""What a recipe and a method are: which drafters, which policy, which verifier.

A recipe only names parts; the registry finds them and their settings. A method is a recipe with
every setting decided, checked to be lossless before anything is loaded.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from draftwood.errors import DraftwoodError, did_you_mean
from draftwood.methods import registry
from draftwood.methods.binding import DRAFT, binder, bindings, model_flags
from draftwood.methods.settings import checked
from draftwood.protocols import DrafterSpec, Policy, Verifier
from draftwood.protocols.settings import Setting, settings
from draftwood.tree import SAMPLED, Draw


@dataclass(frozen=True)
class Recipe:
    """A method's parts by name.

    Attributes:
        name: what the user types.
        summary: one line.
        paper: where it was published.
        policy: registered name of the policy.
        drafters: source name, as the policy calls it, to registered name of the drafter.
        verifier: registered name of the verifier, by default; a setting too.
        presets: settings this recipe decides, by name (``"source.field"`` for a drafter's).
        optional: sources that are bound only once the user gives them any setting (which drafter
            answers, or one of its own), to the policy's setting that then gets the source's name.
        search: values that ``draftwood search`` tries, by setting, where they are not the part's.
    """

    name: str
    summary: str
    paper: str
    policy: str
    drafters: Mapping[str, str] = field(default_factory=dict)
    verifier: str = "walk"
    presets: Mapping[str, object] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    search: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    def rebound(self, drafters: Mapping[str, str]) -> "Recipe":
        """The same recipe with some sources answered by other drafters, in default settings.

        Args:
            drafters: source name to registered name of the drafter.

        Raises:
            DraftwoodError: there is no such drafter.
        """
        presets = dict(self.presets)
        for source, part in drafters.items():
            registry.load("drafters", part)
            if part != self.drafters[source]:
                presets = {k: v for k, v in presets.items() if not k.startswith(f"{source}.")}
        presets |= {self.optional[source]: source for source in drafters if source in self.optional}
        return dataclasses.replace(self, drafters={**self.drafters, **drafters}, presets=presets)

    def given(self, options: Mapping[str, object]) -> dict[str, object]:
        """The options without those that are None by default and None here: they say nothing."""
        known = self.settings()
        return {
            name: value
            for name, value in options.items()
            if value is not None or name not in known or known[name].default is not None
        }

    def bound(self, options: Mapping[str, object]) -> "Recipe":
        """The same recipe with its sources answered as the options say.

        Raises:
            DraftwoodError: see :func:`draftwood.methods.binding.bindings`.
        """
        return self.rebound(bindings(self.name, self.drafters, self.optional, options))

    def binds(self, source: str) -> bool:
        """Whether the source is asked: an optional one has to be given first."""
        return source not in self.optional or self.presets.get(self.optional[source]) == source

    def settings(self) -> dict[str, Setting]:
        """Everything that can be set, by option name, with this recipe's defaults.

        :mod:`draftwood.methods.binding` says what those do that bind a source to a drafter.
        """
        found: dict[str, Setting] = {}
        parts = [("", registry.load("policies", self.policy))]
        for source, drafter in self.drafters.items():
            name = binder(source)
            default = drafter if self.binds(source) else None
            kinds = ", ".join(registry.names("drafters"))
            text = f"which drafter answers the source {source}: {kinds}"
            found[name] = Setting(name, str, default, text)
            parts.append((f"{source}.", registry.load("drafters", drafter)))
        if DRAFT in self.drafters:
            for flag, (_, setting) in model_flags().items():
                found[flag] = dataclasses.replace(setting, name=flag, default=None)
        rules = f"accept rule: {', '.join(registry.names('verifiers'))}"
        found["verifier"] = Setting("verifier", str, self.verifier, rules)
        for prefix, part in parts:
            for setting in settings(part):
                name = setting.flag or prefix + setting.name
                value = self.presets.get(name, setting.default)
                if setting.flag and not self.binds(prefix[:-1]):
                    value = None
                tried = self.search.get(name, setting.search)
                found[name] = dataclasses.replace(setting, name=name, default=value, search=tried)
        return found

    def build(self, options: Mapping[str, object] | None = None) -> "Method":
        """The method with these options.

        Raises:
            DraftwoodError: an option is unknown or out of range, or policy and verifier together
                are not lossless.
        """
        options = self.given(options or {})
        return self.bound(options)._built(options)

    def _built(self, options: Mapping[str, object]) -> "Method":
        known = self.settings()
        optional = {
            setting: source
            for source, setting in self.optional.items()
            if any(name.startswith(f"{source}.") for name in options)
        }
        values = {**self.presets, **optional, **options}
        for name in values:
            if name not in known:
                near = did_you_mean(name, known) or f"it has {', '.join(known)}"
                raise DraftwoodError(f"method {self.name!r} has no setting {name!r}: {near}")
        values |= {name: checked(known[name], value) for name, value in options.items()}
        accept_rule = str(values.pop("verifier", self.verifier))

        def made(kind: registry.Kind, name: str, prefix: str = "") -> Any:
            part = registry.load(kind, name)
            own = {s.name: s.flag or prefix + s.name for s in settings(part)}
            return part(**{field: values[key] for field, key in own.items() if key in values})

        policy = cast(Policy, made("policies", self.policy))
        drafters = {
            source: cast(DrafterSpec, made("drafters", part, f"{source}."))
            for source, part in self.drafters.items()
            if source in policy.sources
        }
        verifier = cast(Verifier, registry.load("verifiers", accept_rule)())
        return Method(self.name, policy, drafters, verifier)


LARGEST_BUDGET = 16_384
"""Far above every tree that pays; what a step reserves grows with its budget."""


def _rule(verifier: Verifier) -> str:
    """The registered name of a verifier, or its class's."""
    rules = {registry.load("verifiers", name): name for name in registry.names("verifiers")}
    return rules.get(type(verifier), type(verifier).__name__)


def _suiting(policy: Policy) -> str:
    """The registered verifiers that are lossless for a policy, for a message."""
    found = []
    for name in registry.names("verifiers"):
        rule = cast(Verifier, registry.load("verifiers", name)())
        if policy.draws <= rule.accepts and (rule.branching or not policy.branching):
            found.append(name)
    return " or ".join(found) or "another one"


@dataclass(frozen=True)
class Method:
    """A recipe with every setting decided.

    Raises:
        DraftwoodError: the policy's trees are such that the verifier is not lossless, or the policy
            asks for a drafter that the method does not bind or that cannot sample.
    """

    name: str
    policy: Policy
    drafters: Mapping[str, DrafterSpec]
    verifier: Verifier

    def __post_init__(self) -> None:
        if self.policy.budget > LARGEST_BUDGET:
            raise DraftwoodError(
                f"budget is {self.policy.budget}; at most {LARGEST_BUDGET} nodes are drafted a step"
            )
        wrong = self.policy.draws - self.verifier.accepts
        if wrong:
            raise DraftwoodError(
                f"verifier {_rule(self.verifier)} is not lossless for the nodes that method "
                f"{self.name} draws: use {_suiting(self.policy)}"
            )
        if self.policy.draws & SAMPLED and Draw.COUPLED in self.policy.draws:
            raise DraftwoodError(
                f"policy {type(self.policy).__name__} draws nodes with the target's random numbers "
                "and others with their own: no verifier is lossless for both"
            )
        if self.policy.branching and not self.verifier.branching:
            raise DraftwoodError(
                f"verifier {_rule(self.verifier)} is lossless for chains only, and method "
                f"{self.name} drafts trees: use {_suiting(self.policy)}"
            )
        missing = set(self.policy.sources) - set(self.drafters)
        if missing:
            raise DraftwoodError(
                f"policy {type(self.policy).__name__} asks drafters {sorted(missing)}, "
                f"which method {self.name!r} does not bind"
            )
        able = {draw for spec in self.drafters.values() for draw in spec.draws} | {Draw.ONE_HOT}
        if self.policy.draws - able:
            raise DraftwoodError(
                f"policy {type(self.policy).__name__} samples its nodes, but no drafter among "
                f"{', '.join(self.drafters) or 'none'} can: bind one with a model, such as 'model'"
            )

    def same_tokens(self, temperature: float) -> bool:
        """Whether equal seeds give the tokens of plain decoding, and not only their distribution.

        True at temperature 0; above it if the policy samples none of its nodes, or only with the
        target's own random numbers, because every verifier follows the target's own draws through
        such trees.
        """
        return temperature == 0 or not self.policy.draws & SAMPLED

"""What a recipe and a method are: which drafters, which policy, which verifier, which tuner.

A recipe only names parts; the registry finds them and their settings. A method is a recipe with
every setting decided, checked to be lossless before anything is loaded.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from draftwood import registry
from draftwood.errors import DraftwoodError
from draftwood.hosts import DrafterSpec
from draftwood.protocols import Policy, Verifier
from draftwood.settings import Setting, settings
from draftwood.tree import Draw
from draftwood.tuning import TunerSpec


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
        tuner: registered name of the tuner.
        optional: sources that are bound only once the user gives them any setting (which drafter
            answers, or one of its own), to the policy's setting that then gets the source's name.
    """

    name: str
    summary: str
    paper: str
    policy: str
    drafters: Mapping[str, str] = field(default_factory=dict)
    verifier: str = "walk"
    presets: Mapping[str, object] = field(default_factory=dict)
    tuner: str = "none"
    optional: Mapping[str, str] = field(default_factory=dict)

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

    def settings(self) -> dict[str, Setting]:
        """Everything that can be set, by option name, with this recipe's defaults.

        A source's name is a setting too: which registered drafter answers (:meth:`rebound`).
        """
        found: dict[str, Setting] = {
            source: Setting(source, str, part, "drafter that answers this source's queries")
            for source, part in self.drafters.items()
        }
        found["verifier"] = Setting("verifier", str, self.verifier, "accept rule")
        parts = {"": registry.load("policies", self.policy)}
        parts |= {f"{src}.": registry.load("drafters", d) for src, d in self.drafters.items()}
        parts["tuner."] = registry.load("tuners", self.tuner)
        for prefix, part in parts.items():
            for setting in settings(part):
                name = prefix + setting.name
                default = self.presets.get(name, setting.default)
                found[name] = dataclasses.replace(setting, name=name, default=default)
        return found

    def build(self, options: Mapping[str, object] | None = None) -> "Method":
        """The method with these options.

        Raises:
            DraftwoodError: an option is unknown or out of range, or policy and verifier together
                are not lossless.
        """
        options = dict(options or {})
        named = {source: str(options.pop(source)) for source in self.drafters if source in options}
        if named:
            return self.rebound(named).build(options)
        known = self.settings()
        accept_rule = str(options.pop("verifier", self.verifier))
        bound = {
            setting: source
            for source, setting in self.optional.items()
            if any(name.startswith(f"{source}.") for name in options)
        }
        values = {**self.presets, **bound, **options}
        for name in values:
            if name not in known:
                raise DraftwoodError(
                    f"method {self.name!r} has no setting {name!r}: it has {', '.join(known)}"
                )

        def of(prefix: str) -> dict[str, Any]:
            n = len(prefix)
            own = {k[n:]: v for k, v in values.items() if k.startswith(prefix)}
            return {k: v for k, v in own.items() if "." not in k}

        policy = cast(Policy, registry.load("policies", self.policy)(**of("")))
        drafters = {
            source: cast(DrafterSpec, registry.load("drafters", part)(**of(f"{source}.")))
            for source, part in self.drafters.items()
            if source in policy.sources
        }
        verifier = cast(Verifier, registry.load("verifiers", accept_rule)())
        tuner = cast(TunerSpec, registry.load("tuners", self.tuner)(**of("tuner.")))
        return Method(self.name, policy, drafters, verifier, tuner)


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
    tuner: TunerSpec = field(default_factory=registry.load("tuners", "none"))

    def __post_init__(self) -> None:
        wrong = self.policy.draws - self.verifier.accepts
        if wrong:
            kinds = ", ".join(sorted(draw.name for draw in wrong))
            raise DraftwoodError(
                f"policy {type(self.policy).__name__} draws {kinds} nodes, for which verifier "
                f"{type(self.verifier).__name__} is not lossless: choose another verifier"
            )
        if self.policy.branching and not self.verifier.branching:
            raise DraftwoodError(
                f"policy {type(self.policy).__name__} grows trees, but verifier "
                f"{type(self.verifier).__name__} is lossless for chains only: choose another one"
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

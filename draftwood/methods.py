"""The named recipes a user picks: which drafters, which policy, which verifier.

A recipe only names parts; the registry finds them and their settings. A method is a recipe with
every setting decided, checked to be lossless before anything is loaded.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

from draftwood import registry
from draftwood.errors import DraftwoodError
from draftwood.protocols import DrafterSpec, Policy, Verifier
from draftwood.settings import Setting, parse, settings


@dataclass(frozen=True)
class Recipe:
    """A method's parts by name.

    Attributes:
        name: what the user types.
        summary: one line.
        paper: where it was published.
        policy: registered name of the policy.
        drafters: source name, as the policy calls it, to registered name of the drafter.
        verifier: registered name of the verifier.
        presets: settings this recipe decides, by name (``"source.field"`` for a drafter's).
    """

    name: str
    summary: str
    paper: str
    policy: str
    drafters: Mapping[str, str] = field(default_factory=dict)
    verifier: str = "walk"
    presets: Mapping[str, object] = field(default_factory=dict)

    def settings(self) -> dict[str, Setting]:
        """Everything that can be set, by option name, with this recipe's defaults."""
        found: dict[str, Setting] = {}
        parts = {"": registry.load("policies", self.policy)}
        parts |= {f"{src}.": registry.load("drafters", d) for src, d in self.drafters.items()}
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
        known = self.settings()
        values = {**self.presets, **(options or {})}
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
        }
        verifier = cast(Verifier, registry.load("verifiers", self.verifier)())
        return Method(self.name, policy, drafters, verifier)


@dataclass(frozen=True)
class Method:
    """A recipe with every setting decided.

    Raises:
        DraftwoodError: the policy's nodes are drawn in a way for which the verifier is not
            lossless, or the policy asks for a drafter that the method does not bind.
    """

    name: str
    policy: Policy
    drafters: Mapping[str, DrafterSpec]
    verifier: Verifier

    def __post_init__(self) -> None:
        wrong = self.policy.draws - self.verifier.accepts
        if wrong:
            kinds = ", ".join(sorted(draw.name for draw in wrong))
            raise DraftwoodError(
                f"policy {type(self.policy).__name__} draws {kinds} nodes, for which verifier "
                f"{type(self.verifier).__name__} is not lossless: choose another verifier"
            )
        missing = set(self.policy.sources) - set(self.drafters)
        if missing:
            raise DraftwoodError(
                f"policy {type(self.policy).__name__} asks drafters {sorted(missing)}, "
                f"which method {self.name!r} does not bind"
            )


_GOOSE = "GOOSE (spine trees of context match and adjacency)"
_BUILT_IN = (
    Recipe("ar", "plain decoding through the same engine", "-", "plain"),
    Recipe(
        "pld",
        "a chain copied from the context",
        "Prompt Lookup Decoding, as GOOSE defines it",
        "chain",
        {"context": "context"},
    ),
    Recipe(
        "tr",
        "a static tree over the last token's successors",
        "Token Recycling",
        "recycling",
        {"adjacency": "adjacency"},
        presets={
            "adjacency.bigram": False,
            "adjacency.width": 8,
            "adjacency.min_score": 0.0,  # Token Recycling prunes nothing
        },
    ),
    Recipe(
        "iso3",
        "a uniform 3-ary tree over GOOSE's two sources",
        f"{_GOOSE}, baseline Iso(3)",
        "isotropic",
        {"context": "context", "adjacency": "adjacency"},
        presets={"k": 3},
    ),
    Recipe(
        "iso5",
        "a uniform 5-ary tree over GOOSE's two sources",
        f"{_GOOSE}, baseline Iso(5)",
        "isotropic",
        {"context": "context", "adjacency": "adjacency"},
        presets={"k": 5},
    ),
    Recipe(
        "goose",
        "a spine copied from the context, with branches from the adjacency table",
        _GOOSE,
        "spine",
        {"context": "context", "adjacency": "adjacency"},
    ),
)


@cache
def recipes() -> dict[str, Recipe]:
    """All recipes by name, third parties' (entry points ``draftwood.methods``) included."""
    own = {recipe.name: recipe for recipe in _BUILT_IN}
    return own | {point.name: point.load() for point in entry_points(group="draftwood.methods")}


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        DraftwoodError: there is none.
    """
    if name not in recipes():
        raise DraftwoodError(f"unknown method {name!r}: choose from {', '.join(recipes())}")
    return recipes()[name]


def method(text: str, **options: object) -> Method:
    """A method from its name and settings, e.g. ``method("goose:budget=16:bypass=off")``.

    Settings may be spelt in ``text``, behind colons, or given as keyword arguments, where a
    drafter's ``source.field`` is written ``source__field``.

    Raises:
        DraftwoodError: the name or a setting is unknown, or a value is out of range.
    """
    name, *spelt = text.split(":")
    chosen = recipe(name)
    known = chosen.settings()
    values = {key.replace("__", "."): value for key, value in options.items()}
    for item in spelt:
        key, equals, value = item.partition("=")
        if not equals or key not in known:
            raise DraftwoodError(
                f"method {name!r} has no setting {item!r}: write name=value with one of "
                f"{', '.join(known)}"
            )
        values[key] = parse(known[key], value)
    return chosen.build(values)

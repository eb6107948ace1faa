"""From a recipe to a method.

A recipe names parts; the registry finds them and their settings. A method is a recipe with every
setting decided, checked to be lossless before anything is loaded.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_origin

from draftwood.errors import DraftwoodError, did_you_mean
from draftwood.methods import registry
from draftwood.methods.binding import (
    binder,
    bindings,
    further_drafters,
    model_flags,
    named_in,
)
from draftwood.methods.settings import checked
from draftwood.protocols import DrafterSpec, Policy, Recipe, Verifier
from draftwood.protocols.drafter import OWN
from draftwood.protocols.recipe import DRAFT
from draftwood.protocols.settings import Setting, settings
from draftwood.tree import SAMPLED, Draw


def rebound(recipe: Recipe, drafters: Mapping[str, str]) -> Recipe:
    """A recipe with some sources answered by other drafters, in default settings.

    Args:
        recipe: as declared.
        drafters: source name to registered name of the drafter; new sources have a model.

    Raises:
        DraftwoodError: there is no such drafter.
    """
    presets = dict(recipe.presets)
    for source, part in drafters.items():
        registry.load("drafters", part)
        if part != recipe.drafters.get(source):
            presets = {k: v for k, v in presets.items() if not k.startswith(f"{source}.")}
        setting = recipe.optional.get(source, "" if source in recipe.drafters else recipe.models)
        if setting:
            several = [*named_in(recipe, setting, presets), source]
            one = not _takes_several(recipe, setting)
            presets[setting] = source if one else tuple(dict.fromkeys(several))
    return dataclasses.replace(recipe, drafters={**recipe.drafters, **drafters}, presets=presets)


def _takes_several(recipe: Recipe, setting: str) -> bool:
    types = {each.name: each.type for each in settings(registry.load("policies", recipe.policy))}
    return get_origin(types[setting]) is tuple


def given(recipe: Recipe, options: Mapping[str, object]) -> dict[str, object]:
    """The options that are set: those that are not None."""
    known = settings_of(recipe)
    return {
        name: value
        for name, value in options.items()
        if value is not None or name not in known or known[name].default is not None
    }


def bound(recipe: Recipe, options: Mapping[str, object]) -> Recipe:
    """A recipe with its sources bound by the options.

    Raises:
        DraftwoodError: see :func:`draftwood.methods.binding.bindings`; or a further source names no
            drafter, or one with a model.
    """
    drafters = {**recipe.drafters, **further_drafters(recipe, options)}
    presets = dict(recipe.presets)
    if recipe.models in options:
        presets[recipe.models] = tuple(named_in(recipe, recipe.models, options))
    recipe = dataclasses.replace(recipe, drafters=drafters, presets=presets)
    return rebound(recipe, bindings(recipe, options))


def settings_of(recipe: Recipe) -> dict[str, Setting]:
    """Everything that can be set, by option name, with this recipe's defaults.

    Options that bind a source to a drafter: :mod:`draftwood.methods.binding`.
    """
    found: dict[str, Setting] = {}
    parts = [("", registry.load("policies", recipe.policy))]
    flagless = _flagless(recipe)
    for source, drafter in recipe.drafters.items():
        name = binder(source)
        default = drafter if recipe.binds(source) else None
        kinds = ", ".join(registry.names("drafters"))
        text = f"which drafter answers the source {source}: {kinds}"
        found[name] = Setting(name, str, default, text)
        parts.append((f"{source}.", registry.load("drafters", drafter)))
    if DRAFT in recipe.drafters:
        for flag, (_, setting) in model_flags().items():
            found[flag] = dataclasses.replace(setting, name=flag, default=None)
    rules = f"accept rule: {', '.join(registry.names('verifiers'))}"
    found["verifier"] = Setting("verifier", str, recipe.verifier, rules)
    for prefix, part in parts:
        for setting in settings(part):
            name = _option(setting, prefix, flagless)
            value = recipe.presets.get(name, setting.default)
            if setting.flag and not recipe.binds(prefix[:-1]):
                value = None
            tried = recipe.search.get(name, setting.search)
            found[name] = dataclasses.replace(setting, name=name, default=value, search=tried)
    return found


def _flagless(recipe: Recipe) -> set[tuple[str, str]]:
    """Sources with a model whose flag an earlier one of them has, each with that flag."""
    seen, found = set[str](), set[tuple[str, str]]()
    for source in named_in(recipe, recipe.models, {}):
        own = registry.load("drafters", recipe.drafters[source])
        for flag in [each.flag for each in settings(own) if each.flag]:
            if flag in seen:
                found.add((source, flag))
            seen.add(flag)
    return found


def _option(setting: Setting, prefix: str, flagless: Collection[tuple[str, str]]) -> str:
    """The option of a part's setting; ``prefix``: of the source's settings, with a dot."""
    if setting.flag is None:
        return prefix + setting.name
    source = prefix.removesuffix(".")
    return prefix + setting.flag if (source, setting.flag) in flagless else setting.flag


def build(recipe: Recipe, options: Mapping[str, object] | None = None) -> "Method":
    """The method with these options.

    Raises:
        DraftwoodError: an option is unknown or out of range, or policy and verifier together
            are not lossless.
    """
    options = given(recipe, options or {})
    return _built(bound(recipe, options), options)


def check_names(method: str, names: Iterable[str], known: Collection[str]) -> None:
    """Check that a method has settings of these names.

    Raises:
        DraftwoodError: it lacks one of them.
    """
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            hint = f": {near}" if near else ""
            raise DraftwoodError(
                f"method {method!r} has no setting {name!r}{hint} "
                f"('draftwood methods {method}' lists them)"
            )


def _built(recipe: Recipe, options: Mapping[str, object]) -> "Method":
    known = settings_of(recipe)
    values = {**recipe.presets, **options}
    check_names(recipe.name, values, known)
    for source in recipe.optional:
        unused = [name for name in options if name.startswith(f"{source}.")]
        if unused and not recipe.binds(source):
            raise DraftwoodError(
                f"{unused[0]} is a setting of a drafter that method {recipe.name!r} does not have "
                f"here: give {' or '.join(f'{flag}=PATH' for flag in model_flags())} as well"
            )
    values |= {name: checked(known[name], value) for name, value in options.items()}
    accept_rule = str(values.pop("verifier", recipe.verifier))
    flagless = _flagless(recipe)

    def made(kind: registry.Kind, name: str, prefix: str = "") -> Any:
        part = registry.load(kind, name)
        own = {s.name: _option(s, prefix, flagless) for s in settings(part)}
        return part(**{field: values[key] for field, key in own.items() if key in values})

    policy = cast(Policy, made("policies", recipe.policy))
    for source in recipe.drafters:
        unused = [name for name in options if name.startswith(f"{source}.")]
        if unused and source not in policy.sources:
            raise DraftwoodError(
                f"{unused[0]} is a setting of a drafter that method {recipe.name!r} does not ask "
                "with these settings: leave it out"
            )
    drafters = {
        source: cast(DrafterSpec, made("drafters", part, f"{source}."))
        for source, part in recipe.drafters.items()
        if source in policy.sources
    }
    verifier = cast(Verifier, registry.load("verifiers", accept_rule)())
    return Method(recipe.name, policy, drafters, verifier)


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

    @property
    def missing(self) -> tuple[str, ...]:
        """Settings that its drafters need and that are not given, by name."""
        found, seen = [], set[str]()
        for source, spec in self.drafters.items():
            flags = {setting.name: setting.flag for setting in settings(type(spec))}
            flag = flags.get(spec.missing)
            if spec.missing:
                own = f"{source}.{flag or spec.missing}"
                found.append(flag if flag and flag not in seen else own)
            seen |= {each for each in flags.values() if each}
        return tuple(found)

    @property
    def in_target(self) -> bool:
        """Whether it drafts with layers of the target's own, which few targets have."""
        return any(spec.model == OWN for spec in self.drafters.values())

    @property
    def for_any_target(self) -> bool:
        """Whether it drafts as it is: with nothing that is missing or that few targets have."""
        return not self.missing and not self.in_target

    def same_tokens(self, temperature: float) -> bool:
        """Whether equal seeds give the tokens of plain decoding, and not only their distribution.

        True at temperature 0; above it if the policy samples none of its nodes, or only with the
        target's own random numbers, because every verifier follows the target's own draws through
        such trees.
        """
        return temperature == 0 or not self.policy.draws & SAMPLED

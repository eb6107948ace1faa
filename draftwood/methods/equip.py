"""Equips a method with what is shipped for the target's model.

The result is a method like any other, with these settings given: benchmarks and recordings name
them, and nothing is decided later.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, cast

from draftwood.methods import registry
from draftwood.methods.binding import model_flags
from draftwood.methods.recipe import Method
from draftwood.methods.settings import parse
from draftwood.methods.shipped_models import common_parts, shipped_for
from draftwood.protocols import DrafterSpec, Fingerprint
from draftwood.protocols.recipe import DRAFT
from draftwood.protocols.settings import settings


@dataclass(frozen=True)
class Equipped:
    """A method with every setting decided for a target.

    Attributes:
        method: the method.
        note: a line that says what of the shipped parts it uses; empty if none.
    """

    method: Method
    note: str = ""


def equipped(
    method: Method,
    fingerprint: Fingerprint | None,
    vocabulary: Callable[[], str] = str,
    without: Collection[str] = (),
) -> Equipped:
    """The method with the shipped parts that its policy adopts for a target.

    Args:
        method: may have been equipped before; then it is returned as it is.
        fingerprint: the target's.
        vocabulary: returns the digest of its tokenizer's, empty if that is unknown; with other
            tokens than the shipped model's there is no table. Called only where a table is offered.
        without: kinds of parts that are left out.
    """
    model = shipped_for(fingerprint)
    offered = common_parts() if model is None else model.parts
    offered = {kind: value for kind, value in offered.items() if kind not in without}
    adopted = method.policy.adopts(offered).values()
    # A digest reads the whole vocabulary, and most methods and models have no use for it.
    compared = model is not None and "table" in offered and offered["table"] in adopted
    if model is not None and compared and vocabulary() not in ("", model.vocabulary):
        del offered["table"]
    kinds = {value: kind for kind, value in offered.items()}
    found, used = method, list[str]()
    for name, value in method.policy.adopts(offered).items():
        before, found = found, _with(found, name, value)
        if found is not before and value in kinds:
            used.append(kinds[value])
    if model is None or not used:
        return Equipped(found)
    parts = " and ".join(filter(None, [", ".join(used[:-1]), used[-1]]))
    same = fingerprint is None or model.fingerprint.matches(fingerprint)
    name = model.name if same else f"{model.name}, whose weights are near this model's"
    note = f"{method.name} uses what is shipped for {name}: {parts} (shipped=off: nothing)"
    return Equipped(found, note)


def _with(method: Method, name: str, value: str) -> Method:
    """The method with a setting, by its name on the command line.

    A drafter stays as it is if it lacks the setting, was given another value, or was made wider
    than a shipped table is.
    """
    if name in model_flags():
        kind, setting = model_flags()[name]
        drafter = cast(DrafterSpec, registry.load("drafters", kind)(**{setting.name: value}))
        return replace(method, drafters={**method.drafters, DRAFT: drafter})
    source, dot, field = name.rpartition(".")
    if not dot:
        policy: Any = method.policy
        own = {each.name: each for each in settings(type(policy))}
        return replace(method, policy=replace(policy, **{name: parse(own[name], value)}))
    spec: Any = method.drafters.get(source)
    known = {} if spec is None else {each.name: each.default for each in settings(type(spec))}
    if spec is None or field not in known or getattr(spec, field) != known[field]:
        return method
    if "width" in known and spec.width > known["width"]:
        return method
    changed = replace(spec, **{field: value})
    return replace(method, drafters={**method.drafters, source: changed})

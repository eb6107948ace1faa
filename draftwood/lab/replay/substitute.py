"""A method for replay: the drafters that a recording must answer for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from draftwood.engine.model_free_host import ModelFreeHost
from draftwood.errors import DraftwoodError
from draftwood.methods.recipe import Method
from draftwood.protocols import DrafterSpec, TargetInfo
from draftwood.protocols.settings import settings
from draftwood.tree import Draw

_HARVEST = "harvest"
_ACCEPTED = "accepted"


@dataclass(frozen=True)
class ReplayMethod:
    """A method that can be replayed.

    Attributes:
        method: the method, unchanged.
        recorded: by source, the :func:`drafter_name` of each drafter that has a model.
        reads_rejected: whether a drafter or the policy reads rows of rejected nodes.
    """

    method: Method
    recorded: Mapping[str, str]
    reads_rejected: bool


def harvest_accepted(method: Method) -> Method:
    """The method with ``harvest=accepted`` for every drafter that has this setting."""
    drafters = {
        source: replace(spec, **{_HARVEST: _ACCEPTED}) if _harvests(spec) else spec
        for source, spec in _drafters(method).items()
    }
    return replace(method, drafters=drafters)


def replay_method(method: Method, info: TargetInfo) -> ReplayMethod:
    """Check a method and find the drafters that a recording must answer for.

    Raises:
        DraftwoodError: the method samples its drafts.
    """
    if method.policy.draws != {Draw.ONE_HOT}:
        raise DraftwoodError(
            f"method {method.name!r} samples its drafts, so that its tokens depend on more than "
            "the seed: run it live, or choose a method of deterministic trees"
        )
    recorded: dict[str, str] = {}
    reads_rejected = method.policy.needs.top_k > 0
    for source, spec in _drafters(method).items():
        if spec.model is not None:
            recorded[source] = drafter_name(spec)
            continue
        needs = spec.build(ModelFreeHost(info)).needs
        only_accepted = _harvests(spec) and getattr(spec, _HARVEST) == _ACCEPTED
        reads_rejected |= needs.top_k > 0 and not only_accepted
    return ReplayMethod(method, recorded, reads_rejected)


def drafter_name(spec: DrafterSpec) -> str:
    """A drafter's name in recordings: module, class and settings, but no default number format.

    Raises:
        DraftwoodError: its model is an object, which has no name.
    """
    if not isinstance(spec.model, str):
        raise DraftwoodError(
            f"a drafter has a loaded {type(spec.model).__name__}: give the model by name, so that "
            "recordings can tell it from others"
        )
    kind = type(spec)
    given = {s.name: getattr(spec, s.name) for s in settings(kind)}
    if spec.dtype == "auto":
        given.pop("dtype", None)
    values = ", ".join(f"{name}={value!r}" for name, value in given.items())
    # The name of a part is that of its package, whichever file of the package defines the class.
    return f"{kind.__module__.removesuffix('.drafter')}.{kind.__qualname__}({values})"


def _drafters(method: Method) -> Mapping[str, Any]:
    return {source: method.drafters[source] for source in method.policy.sources}


def _harvests(spec: DrafterSpec) -> bool:
    return any(setting.name == _HARVEST for setting in settings(type(spec)))

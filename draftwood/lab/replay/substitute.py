"""A method for replay: drafters with a model are substituted by their recordings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import ReplayDrafter
from draftwood.lab.replay.extend import RecordingDrafter
from draftwood.lab.replay.forward_log import ForwardLog
from draftwood.lab.replay.hosts import ModelFreeHost
from draftwood.lab.replay.recording import RecordedPrompt, Recording
from draftwood.methods.recipe import Method
from draftwood.protocols import DrafterSpec, Host, TargetInfo
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
        reads_rejected: whether a drafter reads rows of rejected nodes.
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
    reads_rejected = False
    for source, spec in _drafters(method).items():
        if spec.model is not None:
            recorded[source] = drafter_name(spec)
            continue
        needs = spec.build(ModelFreeHost(info)).needs
        only_accepted = _harvests(spec) and getattr(spec, _HARVEST) == _ACCEPTED
        reads_rejected |= needs.top_k > 0 and not only_accepted
    return ReplayMethod(method, recorded, reads_rejected)


def drafter_name(spec: DrafterSpec) -> str:
    """A drafter's name in recordings: module, class and settings.

    Raises:
        DraftwoodError: its model is an object, which has no name.
    """
    if not isinstance(spec.model, str):
        raise DraftwoodError(
            f"a drafter has a loaded {type(spec.model).__name__}: give the model by name, so that "
            "recordings can tell it from others"
        )
    kind = type(spec)
    values = ", ".join(f"{s.name}={getattr(spec, s.name)!r}" for s in settings(kind))
    # The name of a part is that of its package, whichever file of the package defines the class.
    return f"{kind.__module__.removesuffix('.drafter')}.{kind.__qualname__}({values})"


@dataclass(frozen=True, eq=False)
class ReplaySpec(DrafterSpec):
    """Spec of a drafter that answers from a recording.

    Attributes:
        name: the drafter's name in the recording.
        prompt: the prompt to decode.
        recording: the recording of the prompt.
        log: counts the drafter's forwards.
    """

    name: str
    prompt: RecordedPrompt
    recording: Recording
    log: ForwardLog = field(default_factory=ForwardLog)

    @property
    def model(self) -> str:
        """Name of the recorded drafter."""
        return self.name

    def build(self, host: Host) -> ReplayDrafter:  # noqa: ARG002
        """Build the drafter, without its model."""
        texts = self.prompt.by_context()
        return ReplayDrafter(self.name, texts, self.recording.rooted, self.log)


@dataclass(frozen=True, eq=False)
class RecordingSpec(ReplaySpec):
    """Spec of a drafter with its model, whose answers are added to the recording.

    Attributes:
        spec: settings of the drafter with its model.
    """

    spec: DrafterSpec = field(kw_only=True)

    def build(self, host: Host) -> ReplayDrafter:
        """Build the drafter with its model."""
        texts, rooted = self.prompt.by_context(), self.recording.rooted
        drafter = self.spec.build(host)
        # Hidden states are the target's at the root and the head's own estimates below it.
        rooted[self.name] = bool(drafter.needs.taps)
        return RecordingDrafter(self.name, texts, rooted, self.log, drafter)


def _drafters(method: Method) -> Mapping[str, Any]:
    return {source: method.drafters[source] for source in method.policy.sources}


def _harvests(spec: DrafterSpec) -> bool:
    return any(setting.name == _HARVEST for setting in settings(type(spec)))

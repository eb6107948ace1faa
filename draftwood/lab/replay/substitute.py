"""A method as a replay plays it: its drafters with a model answer from the recording.

Knows nothing of texts being decoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.drafter import LevelLog, RecordedDrafter
from draftwood.lab.replay.live import LiveDrafter
from draftwood.lab.replay.pricing import ModelFreeHost
from draftwood.lab.replay.recording import RecordedPrompt, Recording
from draftwood.methods.recipe import Method
from draftwood.methods.settings import settings
from draftwood.protocols import Drafter, DrafterSpec, Host, TargetInfo
from draftwood.tree import Draw

_HARVEST = "harvest"
_ACCEPTED = "accepted"


@dataclass(frozen=True)
class Part:
    """A method for replay.

    Attributes:
        method: as it was given.
        modelled: name of each drafter that has a model, by source: its kind and settings.
        reads_rejected: whether a drafter learns from rows of rejected nodes.
    """

    method: Method
    modelled: Mapping[str, str]
    reads_rejected: bool


def accepting(method: Method) -> Method:
    """The method with drafters that learn from accepted nodes only, where they have the choice."""
    drafters = {
        source: replace(spec, **{_HARVEST: _ACCEPTED}) if _harvests(spec) else spec
        for source, spec in _given(method).items()
    }
    return replace(method, drafters=drafters)


def part_of(method: Method, info: TargetInfo) -> Part:
    """What a replay must know of a method.

    Raises:
        DraftwoodError: it samples its drafts.
    """
    if method.policy.draws != {Draw.ONE_HOT}:
        raise DraftwoodError(
            f"method {method.name!r} samples its drafts, so that its tokens depend on more than "
            "the seed: run it live, or choose a method of deterministic trees"
        )
    modelled: dict[str, str] = {}
    reads_rejected = False
    for source, spec in _given(method).items():
        if spec.model is not None:
            modelled[source] = drafter_name(spec)
            continue
        needs = spec.build(ModelFreeHost(info)).needs
        only_accepted = _harvests(spec) and getattr(spec, _HARVEST) == _ACCEPTED
        reads_rejected |= needs.top_k > 0 and not only_accepted
    return Part(method, modelled, reads_rejected)


def drafter_name(spec: DrafterSpec) -> str:
    """Module, class and settings of a drafter: under which its rows are recorded.

    Raises:
        DraftwoodError: its model is an object, which no name tells from another.
    """
    if not isinstance(spec.model, str):
        raise DraftwoodError(
            f"a drafter has a loaded {type(spec.model).__name__}: name its model, so that what it "
            "says can be told from what another one would"
        )
    kind = type(spec)
    told = ", ".join(f"{s.name}={getattr(spec, s.name)!r}" for s in settings(kind))
    return f"{kind.__module__}.{kind.__qualname__}({told})"


@dataclass(frozen=True, eq=False)
class Recorded:
    """Stands for a drafter with a model: answers from the recording.

    Attributes:
        name: the drafter's.
        prompt: whose turns it is asked about.
        recording: of which the prompt is one.
        log: its forwards.
    """

    name: str
    prompt: RecordedPrompt
    recording: Recording
    log: LevelLog = field(default_factory=LevelLog)

    draws: ClassVar = frozenset({Draw.ONE_HOT})

    @property
    def model(self) -> str:
        """The recorded drafter."""
        return self.name

    def build(self, host: Host) -> RecordedDrafter:  # noqa: ARG002
        """The drafter without its model."""
        texts = self.prompt.by_context()
        return RecordedDrafter(self.name, texts, self.recording.rooted, self.log)


@dataclass(frozen=True, eq=False)
class Taught:
    """Stands for a drafter with a model: the model is there, and teaches the recording."""

    spec: DrafterSpec
    recorded: Recorded

    draws: ClassVar = frozenset({Draw.ONE_HOT})

    @property
    def model(self) -> Any:
        """The drafter's."""
        return self.spec.model

    def build(self, host: Host) -> Drafter:
        """The drafter beside its model."""
        recorded, live = self.recorded, self.spec.build(host)
        # What reads the target's hidden states says something else where it must guess them.
        recorded.recording.rooted[recorded.name] = bool(live.needs.taps)
        return LiveDrafter(recorded.name, live, recorded.build(host), recorded.log)


def _given(method: Method) -> Mapping[str, Any]:
    return {source: method.drafters[source] for source in method.policy.sources}


def _harvests(spec: DrafterSpec) -> bool:
    return any(setting.name == _HARVEST for setting in settings(type(spec)))

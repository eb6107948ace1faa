"""The interfaces of Draftwood, and the small frozen values that pass between them.

A *drafter* offers candidate tokens, a *policy* arranges them into a tree, a *target* scores the
whole tree in one forward pass, a *verifier* decides which path is accepted. Everything else in the
package either implements one of these or drives them.
"""

from draftwood.protocols.drafter import (
    Built,
    Candidates,
    Continuation,
    Continue,
    DraftDtype,
    Drafter,
    DrafterSpec,
    DraftHead,
    DraftModel,
    DraftNoise,
    Expand,
    Host,
    Mask,
    Translation,
)
from draftwood.protocols.evidence import Evidence, Feature
from draftwood.protocols.fingerprint import Fingerprint
from draftwood.protocols.policy import (
    FREE,
    NOTHING_PAYS,
    Answer,
    Bid,
    Grower,
    Growth,
    LevelBid,
    Policy,
    Price,
    Query,
    StepReport,
    Tuner,
)
from draftwood.protocols.recipe import Recipe
from draftwood.protocols.settings import Part, Setting, setting, settings
from draftwood.protocols.step import (
    Labelled,
    Outcome,
    Prediction,
    Prefill,
    RequestLoad,
    StepTimes,
    Verdict,
)
from draftwood.protocols.target import (
    Computed,
    Needs,
    Origin,
    Submitted,
    Target,
    TargetInfo,
    TargetOutput,
)
from draftwood.protocols.verifier import (
    Distributions,
    Noise,
    Proposals,
    Verification,
    Verifier,
)

__all__ = [
    "FREE",
    "NOTHING_PAYS",
    "Answer",
    "Bid",
    "Built",
    "Candidates",
    "Computed",
    "Continuation",
    "Continue",
    "Distributions",
    "DraftDtype",
    "DraftHead",
    "DraftModel",
    "DraftNoise",
    "Drafter",
    "DrafterSpec",
    "Evidence",
    "Expand",
    "Feature",
    "Fingerprint",
    "Grower",
    "Growth",
    "Host",
    "Labelled",
    "LevelBid",
    "Mask",
    "Needs",
    "Noise",
    "Origin",
    "Outcome",
    "Part",
    "Policy",
    "Prediction",
    "Prefill",
    "Price",
    "Proposals",
    "Query",
    "Recipe",
    "RequestLoad",
    "Setting",
    "StepReport",
    "StepTimes",
    "Submitted",
    "Target",
    "TargetInfo",
    "TargetOutput",
    "Translation",
    "Tuner",
    "Verdict",
    "Verification",
    "Verifier",
    "setting",
    "settings",
]

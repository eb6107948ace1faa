"""The recipe: a method's parts by name. A policy's file ends with the recipes that use it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DRAFT = "draft"
"""The source that draft models and heads answer."""


@dataclass(frozen=True)
class Recipe:
    """A method's parts and presets, as data; :mod:`draftwood.methods.recipe` builds the method.

    Attributes:
        name: name of the method, as the user types it.
        summary: one line.
        paper: source of the method; "-" if it is not published.
        policy: registered name of the policy; empty: the policy in whose file the recipe stands.
        drafters: source name, as the policy calls it, to registered name of the drafter.
        verifier: registered name of the verifier, by default; a setting too.
        presets: settings that the recipe decides, by name (``"source.field"`` for a drafter's).
        optional: sources that are bound only if the user configures them; maps the source to the
            policy's setting that receives its name, as one of several if it takes several.
        further: the policy's settings that name further sources; each is bound to the drafter
            registered under its name.
        search: values that ``draftwood search`` tries, by setting, where they are not the part's.
    """

    name: str
    summary: str
    paper: str
    policy: str = ""
    drafters: Mapping[str, str] = field(default_factory=dict)
    verifier: str = "walk"
    presets: Mapping[str, object] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    further: tuple[str, ...] = ()
    search: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    def binds(self, source: str) -> bool:
        """Whether the source is asked; an optional one has to be configured first."""
        given = self.presets.get(self.optional.get(source, ""))
        bound = source in given if isinstance(given, tuple) else given == source
        return source not in self.optional or bound

    @property
    def models(self) -> str:
        """The policy's setting that names further sources with a model; empty: there is none."""
        setting = self.optional.get(DRAFT, "")
        return setting if setting in self.further else ""

    @property
    def needs_model(self) -> bool:
        """Whether the method drafts with a model even if the user names none."""
        return DRAFT in self.drafters and self.binds(DRAFT)

"""Default settings of a run, for contenders that have them and do not give them themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftwood.errors import DraftwoodError
from draftwood.lab.bench import peers
from draftwood.methods import method, recipe
from draftwood.methods.binding import kind_of, model_flags
from draftwood.methods.recipe import bound, settings_of
from draftwood.protocols import Recipe
from draftwood.protocols.recipe import DRAFT
from draftwood.protocols.settings import settings

_PEERS = {"hf-assistant": ("draft",)}
"""Settings of peers that name a model."""

_USERS = {
    "draft": "a method that drafts with a model of its own, such as sd or dynatree",
    "head": "a method that drafts with such a head, as eagle3 does",
}


@dataclass(frozen=True)
class Defaults:
    """Default settings; those in a contender's text take precedence.

    Attributes:
        budget: most nodes drafted per step, for methods with a budget.
        draft: directory or hub id of the model, for drafters ``model`` and the peer hf-assistant.
        head: directory or hub id of the head, for drafters ``eagle3``.
        warm: turn on every setting ``SOURCE.shared``, so that tables outlive requests.
    """

    budget: int | None = None
    draft: str | None = None
    head: str | None = None
    warm: bool = False

    def of(self, text: str) -> dict[str, object]:
        """Default settings of this contender, by name.

        Raises:
            DraftwoodError: the text names no contender, or an unknown setting.
        """
        name, *spelt = text.split(":")
        pairs = [item.partition("=")[::2] for item in spelt]
        found = self._peer(name) if name in peers.names() else self._own(text, dict(pairs))
        keys = {key for key, _ in pairs}
        return {k: v for k, v in found.items() if v is not None and k not in keys}

    def check(self, names: Sequence[str]) -> None:
        """Refuse a draft model or a head that no contender uses.

        Raises:
            DraftwoodError: ``draft`` or ``head`` is given and no contender has such a setting.
        """
        for flag, only in (
            ("draft", Defaults(draft=self.draft)),
            ("head", Defaults(head=self.head)),
        ):
            given = getattr(self, flag)
            if given is not None and not any(only.of(name) for name in names):
                raise DraftwoodError(
                    f"--{flag} {given}: no contender of this run would use it: "
                    f"add {_USERS[flag]}, or leave --{flag} out"
                )

    def _peer(self, name: str) -> dict[str, object]:
        return {flag: getattr(self, flag) for flag in _PEERS.get(name, ())}

    def _own(self, text: str, spelt: dict[str, str]) -> dict[str, object]:
        chosen = bound(recipe(text.partition(":")[0]), spelt)
        found: dict[str, object] = {}
        if "budget" in settings_of(chosen):
            found["budget"] = self.budget
        # The policy may not use all bound drafters; only those that it uses are built.
        for source, spec in method(text).drafters.items():
            found |= {
                flag: getattr(self, flag, None)
                for flag in model_flags()
                if kind_of(flag, getattr(self, flag, None)) == chosen.drafters[source]
            }
            if self.warm and any(s.name == "shared" for s in settings(type(spec))):
                found[f"{source}.shared"] = True
        return found | self._optional(chosen, spelt)

    def _optional(self, chosen: Recipe, spelt: Mapping[str, str]) -> dict[str, object]:
        """Models of an optional source: the draft model and the head; one if it takes one only.

        None if the text gives the policy's setting itself (``auto:neural=``).
        """
        for source, setting in chosen.optional.items():
            if chosen.binds(source) or setting in spelt or source != DRAFT:
                continue
            models = {flag: getattr(self, flag) for flag in ("draft", "head")}
            given = {flag: model for flag, model in models.items() if model is not None}
            return given if chosen.models else dict([*given.items()][:1])
        return {}

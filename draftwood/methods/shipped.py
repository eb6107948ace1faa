"""Whether methods have what they draft with, before a model is loaded for them.

The draft model and the head that come with the package are what a method drafts with where nothing
else is named, and they were made for the embedded model; only the target's configuration is read to
say whether they can draft for it.
"""

from collections.abc import Mapping

from draftwood.errors import DraftwoodError
from draftwood.methods.binding import model_flags
from draftwood.methods.recipe import Method

_NOUNS = {"draft": "a draft model", "head": "an EAGLE-3 head"}


def check_drafts(
    target: str, methods: Mapping[str, Method], *, trust_remote_code: bool = False
) -> None:
    """Refuse methods that have nothing to draft with.

    They lack a setting, or would draft with a shipped model for a target of another vocabulary.

    Args:
        target: what :func:`draftwood.models.load` takes.
        methods: by their spelling.
        trust_remote_code: for the target's configuration.

    Raises:
        DraftwoodError: one of them would; which, and the flag to give.
    """
    for text, each in methods.items():
        if each.missing:
            name = each.missing[0]
            raise DraftwoodError(
                f"{text} has nothing to draft from: give --{name} VALUE, or write "
                f"{each.name}:{name}=VALUE ('draftwood methods {each.name}' says what it takes)"
            )
    if target == "embedded":
        return
    flags = {setting.default: flag for flag, (_, setting) in model_flags().items()}
    for text, each in methods.items():
        for spec in each.drafters.values():
            flag = flags.get(spec.model) if isinstance(spec.model, str) else None
            if flag is not None and not _shares_vocabulary(target, trust_remote_code):
                noun = _NOUNS.get(flag, f"a {flag}")
                raise DraftwoodError(
                    f"{text} would draft with {spec.model!r}, which has another vocabulary than "
                    f"{target}: name {noun} of this model by --{flag} PATH"
                )


def _shares_vocabulary(target: str, trust_remote_code: bool) -> bool:
    from draftwood import models

    size = models.vocabulary_size(target, trust_remote_code=trust_remote_code)
    return size == models.vocabulary_size("embedded")

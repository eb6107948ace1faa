"""A drafter that does not say what it knows of its candidates."""

from dataclasses import dataclass

from draftwood.protocols import Drafter, DrafterSpec, Host


@dataclass(frozen=True)
class Silent(DrafterSpec):
    """Without evidence."""

    def build(self, host: Host) -> Drafter:
        return Drafter()


PART = Silent

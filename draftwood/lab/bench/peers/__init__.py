"""Peers: decoding with other libraries, for comparison; each peer is a module here.

Its constant ``PEER`` is a frozen dataclass whose fields are the peer's settings, with a method
``enter`` that returns a contender. An underscore in the file's name is a hyphen in the peer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from draftwood.errors import DraftwoodError
from draftwood.methods import registry

if TYPE_CHECKING:
    from draftwood.lab.bench.measure import Contender
    from draftwood.models import Loaded


class Peer(Protocol):
    """Settings of a peer."""

    def enter(self, stock: Loaded) -> Contender:
        """Build the contender on a model that methods do not use.

        Raises:
            DraftwoodError: the peer does not support the model or the settings.
        """
        ...


def names() -> list[str]:
    """Sorted names of all peers."""
    return [name.replace("_", "-") for name in registry.parts(__name__)]


def load(name: str) -> Any:
    """Class of a peer.

    Raises:
        DraftwoodError: its library is not installed.
    """
    try:
        return registry.part(__name__, name.replace("-", "_"), "PEER")
    except ImportError as error:
        raise DraftwoodError(
            f"peer {name!r} needs a library that is not installed: {error}"
        ) from error

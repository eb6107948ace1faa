"""Other libraries' ways of decoding, for comparison; a peer is one file here, found by its name.

Such a module names its class in a constant ``PEER``: a frozen dataclass whose fields are its
settings, with a method ``enter`` that returns a contender on an untouched model. An underscore in
the file's name is a hyphen in the peer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from draftwood.errors import DraftwoodError
from draftwood.methods import registry

if TYPE_CHECKING:
    from draftwood.lab.bench.measure import Contender
    from draftwood.models import Loaded


class Peer(Protocol):
    """The settings of a peer."""

    def enter(self, stock: Loaded) -> Contender:
        """The peer on this model, which is nobody else's.

        Raises:
            DraftwoodError: the model or the settings do not suit it.
        """
        ...


def names() -> list[str]:
    """Sorted names of all peers."""
    return [name.replace("_", "-") for name in registry.parts(__name__)]


def load(name: str) -> Any:
    """The class of a peer.

    Raises:
        DraftwoodError: what it needs is not installed.
    """
    try:
        return registry.part(__name__, name.replace("-", "_"), "PEER")
    except ImportError as error:
        raise DraftwoodError(f"peer {name!r} needs what is not installed: {error}") from error

"""Room for choices whose prompts and grammars are being read, beside those that the engine holds.

So a full server refuses a request before it spends work on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from draftwood.engine.thread import Busy, EngineThread
from draftwood.server.errors import bad_request


class Places:
    """A few places for calls of one kind; of an event loop alone.

    Args:
        most: calls that may be under way.
    """

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take a place.

        Raises:
            Busy: all are taken.
        """
        if self._taken >= self._most:
            raise Busy(f"{self._taken} such calls are under way: try again later")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class Room:
    """The room of one server; of its event loop alone.

    Args:
        thread: holds the choices afterwards.

    Attributes:
        preparing: choices that are not handed over yet.
    """

    def __init__(self, thread: EngineThread) -> None:
        self.preparing = 0
        self._thread = thread

    def check(self) -> None:
        """Refuse a request for which there is no room now, before its body is read.

        Raises:
            Busy: the server holds too many choices.
            Closing: it is stopping.
        """
        self._thread.check_room(1, self.preparing)

    @contextmanager
    def of(self, count: int) -> Iterator[None]:
        """Keep room for the choices of a response.

        They are to be handed over as the block ends, with nothing awaited in between.

        Raises:
            ApiError: the server can never hold as many.
            Busy: it holds too many now.
            Closing: it is stopping.
        """
        most = self._thread.most
        if most is not None and count > most:
            raise bad_request(
                f"{count} choices were asked for, and the server holds at most {most} at once: ask "
                "for fewer, or in several requests",
                "n",
            )
        self._thread.check_room(count, self.preparing)
        self.preparing += count
        try:
            yield
        finally:
            self.preparing -= count

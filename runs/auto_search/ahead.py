"""What a recorded prompt goes on to say: the foresight of oracles. Knows nothing of trees."""

from collections.abc import Sequence

from draftwood.errors import DraftwoodError
from draftwood.lab.replay.recording import Text


class Ahead:
    """Follows a replay through the turns of one prompt.

    Args:
        texts: the turns in order.
    """

    def __init__(self, texts: Sequence[Text]) -> None:
        # An answer of one token is over before the first step.
        self._texts = [text for text in texts if text.answer > 1]
        self.restart()

    def restart(self) -> None:
        """The prompt begins anew."""
        self._turn = -1
        self.length = 0

    def begin(self, contexts: Sequence[int]) -> None:
        """A step begins, after so many tokens of the one request.

        Raises:
            DraftwoodError: these are not the steps of this prompt.
        """
        (length,) = contexts
        if self._turn < 0 or self.length >= self._text.context + self._text.answer:
            self._turn += 1
        elif length != self.length:
            raise DraftwoodError(f"a step begins at token {length} and not at {self.length}")
        if self._turn >= len(self._texts):
            raise DraftwoodError("there are more turns than were recorded")
        self.length = length

    def passed(self, committed: int) -> None:
        """The step is over."""
        self.length += committed

    @property
    def tokens(self) -> list[int]:
        """What comes after the root, to the end of what was recorded."""
        return self._text.paths.main[self.length :]

    @property
    def _text(self) -> Text:
        return self._texts[self._turn]

"""Texts that tokenizers take."""

from draftwood.errors import DraftwoodError


def check_text(text: str, what: str) -> None:
    """Refuse a text that UTF-8 does not have, as of a JSON escape of half a character.

    Args:
        text: to be tokenised.
        what: names it in the message.

    Raises:
        DraftwoodError: it has a lone surrogate.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DraftwoodError(
            f"{what} has half a surrogate pair at character {error.start}: write whole characters"
        ) from None

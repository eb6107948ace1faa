"""Files stay small: a newcomer holds one in their head."""

from pathlib import Path
from statistics import median

import draftwood

PACKAGE = Path(draftwood.__file__).parent


def test_the_median_file_is_small() -> None:
    assert median(len(p.read_text().splitlines()) for p in PACKAGE.rglob("*.py")) < 120

"""The README states how much code a plain decode runs through."""

import re
from pathlib import Path

from tests.reading_path import lines, reading_path

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_states_the_length_of_the_reading_path() -> None:
    stated = re.search(r"about ([\d,]+) lines in (\d+) files", README.read_text(encoding="utf-8"))
    assert stated is not None
    found = reading_path()
    assert int(stated[2]) == len(found)
    assert abs(int(stated[1].replace(",", "")) - lines(found)) <= 0.05 * lines(found)
    assert {Path("drafters/context.py"), Path("policies/chain.py")} < set(found)

"""The page of tested models has those of the tests."""

import pytest

from tests.factories.hybrid_families import CONFIGS, HYBRIDS
from tests.families import EXAMPLES, PAGE, written


@pytest.mark.skipif(set(CONFIGS) != set(HYBRIDS), reason="an older transformers has fewer types")
def test_the_tables_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python -m tests.families"


def test_every_row_has_an_example() -> None:
    assert set(CONFIGS) <= set(EXAMPLES)

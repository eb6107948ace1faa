"""Parts are found by file name."""

import pytest

from draftwood.errors import DraftwoodError
from draftwood.methods import registry


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_file_is_a_part(kind: registry.Kind) -> None:
    found = registry.names(kind)
    assert found
    for name in found:
        assert isinstance(registry.load(kind, name), type)


def test_unknown_part_is_refused_with_the_choices() -> None:
    with pytest.raises(DraftwoodError, match=r"'nope'.*spine"):
        registry.load("policies", "nope")

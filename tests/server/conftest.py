"""One server for all tests that change nothing."""

from collections.abc import Iterator

import pytest

from draftwood.engine.engine import Engine
from tests.factories.running_server import Running, running, tiny_engine


@pytest.fixture(scope="package")
def server() -> Iterator[Running]:
    """A tiny model, decoded by ``goose``, eight requests at once."""
    with running(tiny_engine("goose:budget=12", max_batch=8)) as found:
        yield found


@pytest.fixture(scope="package")
def plain() -> Engine:
    """The same model decoded plainly."""
    return tiny_engine("ar")

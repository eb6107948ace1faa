"""Settings of all tests."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import settings

from draftwood.costs import measure
from tests.factories.tiny_llama import save_tiny

# Measurements are cached for one run of the tests; the user's own cache is not touched.
os.environ["DRAFTWOOD_CACHE"] = tempfile.mkdtemp(prefix="draftwood-tests-")

# Examples are the same in every run and no clock decides, so that a failure is always the code's.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def brief_timing() -> Iterator[None]:
    """Costs of a model are measured in 50 ms, as no test depends on how exact they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "USUAL", replace(measure.USUAL, seconds=0.05))
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a tiny Llama and its tokenizer; tests only read it."""
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))

"""Settings of all tests."""

import os
import tempfile

from hypothesis import settings

# What is measured and kept is kept for one run of the tests, and the user's own is not touched.
os.environ["DRAFTWOOD_CACHE"] = tempfile.mkdtemp(prefix="draftwood-tests-")

# Examples are the same in every run and no clock decides, so that a failure is always the code's.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

"""Settings of all tests."""

from hypothesis import settings

# Examples are the same in every run and no clock decides, so that a failure is always the code's.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

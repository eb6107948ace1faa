"""A batch knows whether a forward was recorded in its step."""

from draftwood import recordings
from draftwood.engine.batch import Batch


def test_a_recording_is_seen_by_the_steps_that_it_is_in() -> None:
    batches = [Batch([], 0)]
    assert [batch.recorded for batch in batches] == [False]
    recordings.note()
    batches.append(Batch([], 0))
    assert [batch.recorded for batch in batches] == [True, False]


def test_forwards_are_recorded_at_once_in_a_context_only() -> None:
    assert not recordings.are_at_once()
    with recordings.at_once():
        assert recordings.are_at_once()
    assert not recordings.are_at_once()

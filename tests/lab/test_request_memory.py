"""How the memory of requests is told."""

from draftwood.lab.request_memory import RequestMemory


def test_rows_that_grow_take_a_quarter_more_than_blocks() -> None:
    rows = RequestMemory(23_040, 0, 0, 1, block=0)
    assert rows.told(10**9) == (
        "23 KB a token for keys and values; 1 GB are free: room for 33 requests of 1,024 tokens"
    )
    assert "room for 42 requests" in RequestMemory(23_040, 0, 0, 1, block=256).told(10**9)
    assert rows.told(None) == "23 KB a token for keys and values"


def test_states_and_nodes_count() -> None:
    found = RequestMemory(1000, 10**6, 10**5, nodes=65, block=256)
    assert found.told(10**9) == (
        "1 KB a token for keys and values, 1 MB a request for recurrent states and 100 KB for each "
        "of 65 nodes of its tree; 1 GB are free: room for 117 requests of 1,024 tokens"
    )


def test_what_caches_nothing_has_room_for_many() -> None:
    assert "room for 1,000 requests" in RequestMemory(0, 0, 0, 1, block=0).told(1000)

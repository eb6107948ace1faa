"""What of ``auto`` is left to gain, and by what: its trees, its chances, its costs or its sizes.

Everything is decoded over a recording (docs/replay.md), so that all methods and oracles see the
same texts; time is modelled by one cost curve. ``python -m runs.auto_search --help``.
"""

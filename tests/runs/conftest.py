"""Only a checkout has runs/: without it there is nothing to test here."""

from pathlib import Path

collect_ignore_glob = [] if (Path(__file__).parents[2] / "runs").exists() else ["test_*.py"]

"""Markdown pages of the kept runs: docs/results.md, and a page of each run beside its JSON."""

"""Markdown pages of the stored runs: docs/results.md, and a page of each run beside its JSON."""

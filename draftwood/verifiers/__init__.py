"""Verifiers: one file per accept rule, named after it."""

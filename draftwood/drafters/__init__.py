"""Drafters: one file per source of candidate tokens, named after it."""

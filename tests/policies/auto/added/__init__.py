"""Drafters that a user adds, each in one file."""
